"""What was sent and is not confirmed, or not taken."""

from __future__ import annotations

from spark_cursor_source.errors.kafka import KafkaFailure


class MarkersNotDurable(KafkaFailure):
    """Markers the brokers have not confirmed: what they say may not have happened."""

    def __init__(self, topic: str, unsent: int, why: str) -> None:
        super().__init__(topic, unsent, why)
        self.topic, self.unsent, self.why = topic, unsent, why

    def __str__(self) -> str:
        return (
            f"{self.unsent} markers are not confirmed by markers topic '{self.topic}': {self.why}; "
            "see that its brokers run and start the query again: what was not acknowledged comes again"
        )


class CopiesNotDurable(KafkaFailure):
    """Dead letters the brokers have not confirmed; nothing of their origin was forgotten."""

    def __init__(self, topic: str, unsent: int, why: str) -> None:
        super().__init__(topic, unsent, why)
        self.topic, self.unsent, self.why = topic, unsent, why

    def __str__(self) -> str:
        return (
            f"{self.unsent} copies are not confirmed by topic '{self.topic}': {self.why}; "
            "correct that and start the tracker again: it writes them again and loses none"
        )


class MessagesNotDurable(KafkaFailure):
    """Messages of a queue topic the brokers have not confirmed; some may be there all the same."""

    def __init__(self, topic: str, unsent: int, why: str) -> None:
        super().__init__(topic, unsent, why)
        self.topic, self.unsent, self.why = topic, unsent, why

    def __str__(self) -> str:
        return (
            f"{self.unsent} messages are not confirmed by topic '{self.topic}': {self.why}; "
            "see that its brokers run and send them again: some may be there twice then"
        )


class MessageRefused(KafkaFailure):
    """A message that the brokers, or the client, do not take, and would not take later.

    Others of the same write may be there all the same, and are there twice when it is written again.
    """

    def __init__(self, topic: str, partition: int | None, size: int, why: str) -> None:
        super().__init__(topic, partition, size, why)
        self.topic, self.partition, self.size, self.why = topic, partition, size, why

    def __str__(self) -> str:
        where = f"topic '{self.topic}'" + ("" if self.partition is None else f" partition {self.partition}")
        return (
            f"a message of {self.size} bytes to {where} was refused: {self.why}; correct that and write "
            "again (as for size: the topic's max.message.bytes bounds what is sent together, so lower "
            "kafka.batch.size if each message fits it, else raise it; and kafka.max.request.size)"
        )
