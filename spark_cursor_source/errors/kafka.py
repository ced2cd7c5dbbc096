"""The cluster's answers to any question."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class KafkaFailure(CursorqError):
    """The Kafka cluster did not do what it was asked to."""


class KafkaUnavailable(KafkaFailure):
    """No answer, or only "not now", until a deadline."""

    def __init__(self, operation: str, waited_ms: int, last: str) -> None:
        super().__init__(operation, waited_ms, last)
        self.operation, self.waited_ms, self.last = operation, waited_ms, last

    def __str__(self) -> str:
        return (
            f"{self.operation}: no answer from Kafka in {self.waited_ms} ms (the last that was heard: "
            f"{self.last}); see that the brokers of kafka.bootstrap.servers run, can be reached from here, "
            "and accept the kafka.security.protocol and login given"
        )


class NotAuthorized(KafkaFailure):
    """The principal of the kafka.* options lacks rights.

    ``acls`` are all rights that are known to be missing, and ``unknown`` those that it needs too and that
    nobody can be asked about yet; both in the words of ``kafka-acls.sh``.
    """

    def __init__(
        self, resource: str, operation: str, acls: tuple[str, ...] = (), unknown: tuple[str, ...] = ()
    ) -> None:
        super().__init__(resource, operation, acls, unknown)
        self.resource, self.operation = resource, operation
        self.acls, self.unknown = acls, unknown

    def __str__(self) -> str:
        text = f"not authorized: {self.operation} on '{self.resource}'"
        if len(self.acls) > 1:
            text += f" and {len(self.acls) - 1} more"
        text += "; give the principal of the kafka.* options what it lacks"
        if self.acls:
            text += f" (kafka-acls.sh --add --allow-principal User:...): {'; '.join(self.acls)}"
        if self.unknown:
            text += f". It also needs, which could not be checked: {'; '.join(self.unknown)}"
        return text


class KafkaRefused(KafkaFailure):
    """An answer that waiting does not change."""

    def __init__(self, operation: str, resource: str, why: str) -> None:
        super().__init__(operation, resource, why)
        self.operation, self.resource, self.why = operation, resource, why

    def __str__(self) -> str:
        return f"{self.operation} on '{self.resource}' was refused: {self.why}; correct that and start again"


class TopicNotFound(KafkaFailure):
    """Topics that were named do not exist, or may not be seen."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        super().__init__(topics)
        self.topics = topics

    def __str__(self) -> str:
        named = ", ".join(f"'{topic}'" for topic in self.topics)
        return f"topics that do not exist: {named}; create them, or correct the names in the options"
