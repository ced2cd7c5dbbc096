"""Errors of the embedded development broker and of the demo."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class BrokerError(CursorqError):
    """Base class of errors of the embedded development broker."""


class BrokerNotRunning(BrokerError):
    """Raised when an operation needs a running broker and there is none."""

    wanted: str
    template = "{wanted} needs a running broker; call start() first, or use `with EmbeddedKafka() as broker:`"


class JavaNotFound(BrokerError):
    """Raised when there is no Java that can run the broker; it needs Java 17 or later.

    >>> print(JavaNotFound("java on PATH is version 11"))  # doctest: +ELLIPSIS
    java on PATH is version 11; the embedded broker needs Java 17 or later: install one and set JAVA_HOME ...
    """

    found: str
    template = (
        "{found}; the embedded broker needs Java 17 or later: install one and set JAVA_HOME to it, or put "
        "its bin directory on PATH"
    )


class PortTaken(BrokerError):
    """Raised when another process listens on the requested port.

    >>> print(PortTaken(9092))  # doctest: +ELLIPSIS
    port 9092 of 127.0.0.1 is taken by another process; end that process, choose another ...
    """

    port: int
    template = (
        "port {port} of 127.0.0.1 is taken by another process; end that process, choose another port, or "
        "give none to get a free one"
    )


class JarsNotResolved(BrokerError):
    """Raised when Spark's resolver cannot get the broker's jars, most often for lack of a network."""

    coordinate: str
    detail: str
    template = (
        "Spark's resolver did not find {coordinate}; the first start needs a network, later ones use the "
        "cache: connect once, or name a repository that can be reached, spark.jars.ivySettings or "
        "spark.jars.repositories in spark-defaults.conf. The resolver's last words:\n{detail}"
    )


class BrokerNotReady(BrokerError):
    """Raised when the broker ended, or did not answer in time, while it was starting.

    ``log_tail`` holds the last lines of its log and ``log_path`` the whole.
    """

    what: str
    log_path: str
    log_tail: str
    template = (
        "{what}; see the end of its log below (whole: {log_path}), then check `properties` and the data "
        "directory, or give a longer ready_timeout_s. Last lines:\n{_last_lines}"
    )

    @property
    def _last_lines(self) -> str:
        return self.log_tail or "(the log is empty)"


class DemoProcessEnded(CursorqError):
    """Raised when a Spark process of the demo ended by itself; ``log_tail`` says why."""

    name: str
    log_tail: str
    template = "the {name} of the demo ended by itself; its log says:\n{log_tail}"
