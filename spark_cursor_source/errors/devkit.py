"""Errors of missing extras, endpoints of metrics, the development broker, the demo and the starter files."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class ExtraNotInstalled(CursorqError, ImportError):
    """Raised when something needs a library of an extra that is not installed. Also an ``ImportError``.

    >>> print(ExtraNotInstalled("cursorq demo", "rich", "cli"))
    cursorq demo needs rich, which is not installed. Run: pip install 'spark-cursor-source[cli]'
    """

    what: str
    library: str
    extra: str
    template = (
        "{what} needs {library}, which is not installed. Run: pip install 'spark-cursor-source[{extra}]'"
    )


class MetricsPortTaken(CursorqError):
    """Raised when an endpoint of metrics cannot listen on its address.

    >>> print(MetricsPortTaken("127.0.0.1", 9464, "Address in use"))
    Metrics cannot be shown on 127.0.0.1 port 9464: Address in use. Choose another port; 0 takes a free one.
    """

    host: str
    port: int
    why: str
    template = (
        "Metrics cannot be shown on {host} port {port}: {why}. Choose another port; 0 takes a free one."
    )


class BrokerError(CursorqError):
    """Base class of errors of the embedded development broker."""


class BrokerNotRunning(BrokerError):
    """Raised when an operation needs a running broker and there is none."""

    wanted: str
    template = (
        "{wanted} needs a running broker. Call start() first, or use `with EmbeddedKafka() as broker:`."
    )


class JavaNotFound(BrokerError):
    """Raised when there is no Java that can run the broker; it needs Java 17 or later.

    >>> print(JavaNotFound("java on PATH is version 11"))  # doctest: +ELLIPSIS
    The embedded broker needs Java 17 or later, but java on PATH is version 11. Install Java 17 and set ...
    """

    found: str
    template = (
        "The embedded broker needs Java 17 or later, but {found}. Install Java 17 and set JAVA_HOME, or "
        "add its bin directory to PATH."
    )


class PortTaken(BrokerError):
    """Raised when another process listens on the requested port.

    >>> print(PortTaken(9092))  # doctest: +ELLIPSIS
    Another process listens on port 9092 of 127.0.0.1. Stop that process, or choose another port. ...
    """

    port: int
    template = (
        "Another process listens on port {port} of 127.0.0.1. Stop that process, or choose another port. "
        "Without a port, the broker chooses a free one."
    )


class JarsNotResolved(BrokerError):
    """Raised when Spark's resolver cannot get the broker's jars, most often for lack of a network."""

    coordinate: str
    detail: str
    template = (
        "Spark's resolver did not find {coordinate}. The first start needs a network; later starts use the "
        "cache. Connect to a network once, or configure a reachable repository with spark.jars.ivySettings "
        "or spark.jars.repositories in spark-defaults.conf. Last lines of the resolver:\n"
        "{detail}"
    )


class BrokerNotReady(BrokerError):
    """Raised when the broker ended, or did not answer in time, while it was starting.

    ``log_tail`` holds the last lines of its log and ``log_path`` the whole.
    """

    what: str
    log_path: str
    log_tail: str
    template = (
        "The broker did not start: {what}. Check `properties` and the data directory, or set a longer "
        "ready_timeout_s. The whole log is {log_path}. Its last lines:\n"
        "{_last_lines}"
    )

    @property
    def _last_lines(self) -> str:
        return self.log_tail or "(the log is empty)"


class DemoProcessEnded(CursorqError):
    """Raised when a Spark process of the demo ended by itself; ``log_tail`` says why."""

    name: str
    log_tail: str
    template = "The {name} of the demo ended unexpectedly. The last lines of its log:\n{log_tail}"


class StarterFileExists(CursorqError):
    """Raised when ``cursorq init`` would overwrite a file.

    >>> print(StarterFileExists("queue/conf/tracker.toml"))
    queue/conf/tracker.toml exists. Name another directory, or move the file away.
    """

    path: str
    template = "{path} exists. Name another directory, or move the file away."


class UnknownProfile(CursorqError):
    """Raised when the profile that the command names does not exist.

    >>> print(UnknownProfile("prd", "/home/ann/.config/cursorq/config.toml", ("local", "prod")))
    There is no profile 'prd' in /home/ann/.config/cursorq/config.toml. It has: local, prod.
    >>> print(UnknownProfile("prd", "/home/ann/.config/cursorq/config.toml", ()))  # doctest: +ELLIPSIS
    There is no profile 'prd' in /home/ann/.config/cursorq/config.toml. Add a table [profile.prd] with ...
    """

    name: str
    path: str
    known: tuple[str, ...]
    template = "There is no profile '{name}' in {path}. {_next_move}"

    @property
    def _next_move(self) -> str:
        if self.known:
            return f"It has: {', '.join(self.known)}."
        return f"Add a table [profile.{self.name}] with bootstrap-servers to this file."


class ProfileUnreadable(CursorqError):
    """Raised when the file of the profiles cannot be used; ``why`` shows no values, which may be secrets."""

    path: str
    why: str
    template = "The profiles in {path} cannot be read: {why}. Correct the file."
