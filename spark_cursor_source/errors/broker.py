"""The embedded development broker, and the demo on it."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class BrokerError(CursorqError):
    """Something about the embedded development broker; see its subclasses for what to do next."""


class BrokerNotRunning(BrokerError):
    """An operation needs a running broker and there is none."""

    def __init__(self, wanted: str) -> None:
        super().__init__(wanted)
        self.wanted = wanted

    def __str__(self) -> str:
        return (
            f"{self.wanted} needs a running broker; call start() first, "
            "or use `with EmbeddedKafka() as broker:`"
        )


class JavaNotFound(BrokerError):
    """No Java that can run the broker.

    >>> print(JavaNotFound("java on PATH is version 11"))  # doctest: +ELLIPSIS
    java on PATH is version 11; the embedded broker needs Java 17 or later: install one and set JAVA_HOME ...
    """

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.found}; the embedded broker needs Java 17 or later: "
            "install one and set JAVA_HOME to it, or put its bin directory on PATH"
        )


class PortTaken(BrokerError):
    """Another process listens on the port that was asked for.

    >>> print(PortTaken(9092))  # doctest: +ELLIPSIS
    port 9092 of 127.0.0.1 is taken by another process; end that process, choose another ...
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.port = port

    def __str__(self) -> str:
        return (
            f"port {self.port} of 127.0.0.1 is taken by another process; "
            "end that process, choose another port, or give none to get a free one"
        )


class JarsNotResolved(BrokerError):
    """Spark's resolver could not get the broker's jars, most often for want of a network."""

    def __init__(self, coordinate: str, detail: str) -> None:
        super().__init__(coordinate, detail)
        self.coordinate, self.detail = coordinate, detail

    def __str__(self) -> str:
        return (
            f"Spark's resolver did not find {self.coordinate}; "
            "the first start needs a network, later ones use the cache: connect once, or name a repository "
            "that can be reached, spark.jars.ivySettings or spark.jars.repositories in spark-defaults.conf. "
            f"The resolver's last words:\n{self.detail}"
        )


class BrokerNotReady(BrokerError):
    """The broker ended, or answered nothing in time, while it was starting."""

    def __init__(self, what: str, log_path: str, log_tail: str) -> None:
        super().__init__(what, log_path, log_tail)
        self.what, self.log_path, self.log_tail = what, log_path, log_tail

    def __str__(self) -> str:
        return (
            f"{self.what}; see the end of its log below (whole: {self.log_path}), "
            "then check `properties` and the data directory, or give a longer ready_timeout_s. "
            f"Last lines:\n{self.log_tail or '(the log is empty)'}"
        )


class DemoProcessEnded(CursorqError):
    """A Spark process of the demo ended by itself."""

    def __init__(self, name: str, log_tail: str) -> None:
        super().__init__(name, log_tail)
        self.name, self.log_tail = name, log_tail

    def __str__(self) -> str:
        return f"the {self.name} of the demo ended by itself; its log says:\n{self.log_tail}"
