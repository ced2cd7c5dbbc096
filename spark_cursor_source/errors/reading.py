"""Records that could not be read."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class ReadError(CursorqError):
    """Records of a topic-partition could not be read."""


class ReadStalled(ReadError):
    """No record, and no end of the partition, came for the whole stall timeout."""

    def __init__(
        self, topic: str, partition: int, position: int, stop: int, waited_ms: int, last: str
    ) -> None:
        super().__init__(topic, partition, position, stop, waited_ms, last)
        self.topic, self.partition, self.position, self.stop = topic, partition, position, stop
        self.waited_ms, self.last = waited_ms, last

    def __str__(self) -> str:
        return (
            f"no progress in {self.waited_ms} ms at offset {self.position} of {self.topic}-{self.partition}, "
            f"which was to be read up to {self.stop}; the last that was heard: {self.last}; "
            "see that the partition has a leader that can be reached, then start again"
        )


class TopicGone(ReadError):
    """The topic, or this partition of it, does not exist any more."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic, self.partition = topic, partition

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} does not exist any more; "
            "if it was deleted on purpose, take the topic out of the options and start with a new checkpoint"
        )


class RecordsGone(ReadError):
    """Offsets that were to be read are outside what the partition has: retention, truncation, a new topic."""

    def __init__(
        self, topic: str, partition: int, wanted: tuple[int, int], available: tuple[int, int]
    ) -> None:
        super().__init__(topic, partition, wanted, available)
        self.topic, self.partition, self.wanted, self.available = topic, partition, wanted, available

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} has offsets {self.available[0]} to {self.available[1]}, and "
            f"{self.wanted[0]} to {self.wanted[1]} were to be read: retention removed them, or the topic was "
            "created again; lengthen retention.ms, or set failOnDataLoss=false to go on without them"
        )


class ReadRefused(ReadError):
    """The broker, or the client, refuses to read on, and waiting would not help."""

    def __init__(self, topic: str, partition: int, position: int, why: str) -> None:
        super().__init__(topic, partition, position, why)
        self.topic, self.partition, self.position, self.why = topic, partition, position, why

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} cannot be read at offset {self.position}: {self.why}; "
            "correct that (the kafka.* options, the topic's ACLs) and start again"
        )
