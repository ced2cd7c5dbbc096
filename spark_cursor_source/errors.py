"""Every error of spark_cursor_source, in one tree.

An error states the facts and the next move. Errors of other libraries are turned into these once, where
they enter (``kafka/`` for librdkafka), and nothing here imports anything.
"""

from __future__ import annotations


class CursorqError(Exception):
    """Root of all errors of this library: ``except CursorqError`` catches each of them."""


class OptionsError(CursorqError):
    """An option, or a set of options, that was refused before anything ran."""


class InvalidDuration(OptionsError):
    """A text that is no duration: ``500ms``, ``30s``, ``5m``, ``2h`` and ``1d`` are."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return (
            f"{_shown(self.text)} is no duration; write a whole number and a unit: 500ms, 30s, 5m, 2h or 1d"
        )


class UnknownOption(OptionsError):
    """An option nobody reads; the nearest known one is named, its value never is."""

    def __init__(self, option: str, did_you_mean: str | None = None, why: str | None = None) -> None:
        super().__init__(option, did_you_mean, why)
        self.option, self.did_you_mean, self.why = option, did_you_mean, why

    def __str__(self) -> str:
        facts = f"unknown option '{self.option}'" + (f": {self.why}" if self.why else "")
        return facts + (f"; did you mean '{self.did_you_mean}'?" if self.did_you_mean else "; remove it")


class InvalidOption(OptionsError):
    """A known option with a value that cannot be; ``value`` is None where it could be a secret."""

    def __init__(self, option: str, value: object | None, why: str, next_move: str) -> None:
        super().__init__(option, value, why, next_move)
        self.option, self.value, self.why, self.next_move = option, value, why, next_move

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {_shown(self.value)}"
        return f"option '{self.option}'{value}: {self.why}; {self.next_move}"


class MissingOption(OptionsError):
    """An option that must be given is not there."""

    def __init__(self, option: str, next_move: str) -> None:
        super().__init__(option, next_move)
        self.option, self.next_move = option, next_move

    def __str__(self) -> str:
        return f"option '{self.option}' is missing; {self.next_move}"


class ConflictingOptions(OptionsError):
    """Options that are each valid and cannot be together."""

    def __init__(self, options: tuple[str, ...], why: str, next_move: str) -> None:
        super().__init__(options, why, next_move)
        self.options, self.why, self.next_move = options, why, next_move

    def __str__(self) -> str:
        named = ", ".join(f"'{option}'" for option in self.options)
        return f"options {named}: {self.why}; {self.next_move}"


class RefusedKafkaOption(OptionsError):
    """A ``kafka.*`` option that would break a promise, has no equivalent, or that librdkafka refuses."""

    def __init__(self, option: str, why: str, next_move: str) -> None:
        super().__init__(option, why, next_move)
        self.option, self.why, self.next_move = option, why, next_move

    def __str__(self) -> str:
        return f"option 'kafka.{self.option}': {self.why}; {self.next_move}"


class KafkaConfigFileUnreadable(CursorqError):
    """The file that ``kafka.config.file`` names cannot be read where it is needed."""

    def __init__(self, path: str, host: str, why: str) -> None:
        super().__init__(path, host, why)
        self.path, self.host, self.why = path, host, why

    def __str__(self) -> str:
        return (
            f"kafka.config.file '{self.path}' cannot be read on host '{self.host}': {self.why}; "
            "put the file at the same path on the driver and on every executor"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


class BrokerError(CursorqError):
    """Something about the embedded development broker; see its subclasses for what to do next."""


class BrokerNotRunning(BrokerError):
    """An operation needs a running broker and there is none."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(
            f"{wanted} needs a running broker; call start() first, or use `with EmbeddedKafka() as broker:`"
        )


class JavaNotFound(BrokerError):
    """No Java that can run the broker.

    >>> print(JavaNotFound("java on PATH is version 11"))  # doctest: +ELLIPSIS
    java on PATH is version 11; the embedded broker needs Java 17 or later: install one and set JAVA_HOME ...
    """

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"{found}; the embedded broker needs Java 17 or later: "
            "install one and set JAVA_HOME to it, or put its bin directory on PATH"
        )


class PortTaken(BrokerError):
    """Another process listens on the port that was asked for.

    >>> print(PortTaken(9092))  # doctest: +ELLIPSIS
    port 9092 of 127.0.0.1 is taken by another process; end that process, choose another ...
    """

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(
            f"port {port} of 127.0.0.1 is taken by another process; "
            "end that process, choose another port, or give none to get a free one"
        )


class JarsNotResolved(BrokerError):
    """Spark's resolver could not get the broker's jars, most often for want of a network."""

    def __init__(self, coordinate: str, detail: str) -> None:
        self.coordinate = coordinate
        self.detail = detail
        super().__init__(
            f"Spark's resolver did not find {coordinate}; "
            "the first start needs a network, later ones use the cache: connect once, or name a repository "
            "that can be reached, spark.jars.ivySettings or spark.jars.repositories in spark-defaults.conf. "
            f"The resolver's last words:\n{detail}"
        )


class BrokerNotReady(BrokerError):
    """The broker ended, or answered nothing in time, while it was starting."""

    def __init__(self, what: str, log_path: str, log_tail: str) -> None:
        self.what = what
        self.log_path = log_path
        self.log_tail = log_tail
        super().__init__(
            f"{what}; see the end of its log below (whole: {log_path}), "
            "then check `properties` and the data directory, or give a longer ready_timeout_s. "
            f"Last lines:\n{log_tail or '(the log is empty)'}"
        )


class WireError(CursorqError):
    """Bytes in a control topic or a checkpoint are not what this library writes."""


class InvalidMarker(WireError):
    """A record of the markers topic is no marker. The tracker counts, logs and skips it."""


class InvalidControlRecord(WireError):
    """A record of the redeliveries or cursors topic cannot be read.

    It was written by another program, or by a later version: use one version of the library everywhere, and
    topics that nothing else writes to.
    """


class InvalidOffset(WireError):
    """The offset in a checkpoint is not one of this source.

    The checkpoint belongs to another kind of source or to a later version: start the query with a checkpoint
    of its own; its subscription's cursor still says where to go on.
    """
