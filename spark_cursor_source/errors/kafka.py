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
    """The principal of the kafka.* options may not do this."""

    def __init__(self, resource: str, operation: str) -> None:
        super().__init__(resource, operation)
        self.resource, self.operation = resource, operation

    def __str__(self) -> str:
        return (
            f"not authorized: {self.operation} on '{self.resource}'; "
            "give the principal of the kafka.* options an ACL that allows it"
        )


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
