"""Dead letters that cannot be driven back."""

from __future__ import annotations

from spark_cursor_source.errors.kafka import KafkaFailure


class RedriveFenced(KafkaFailure):
    """Another redrive of the same dead letters was started later; this one ends."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"another redrive of '{self.topic}' was started later, and knows what this one has done; "
            "run one at a time"
        )


class NoDeadLetter(KafkaFailure):
    """A record of the topic to redrive does not say where it came from."""

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(topic, partition, offset, why)
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} at offset {self.offset} is no dead letter: {self.why}; "
            "name a topic that only a tracker of this library writes to"
        )
