"""Rows that cannot be enqueued."""

from __future__ import annotations

from spark_cursor_source.errors.sink import SinkError


class OverwriteRefused(SinkError):
    """A write with a mode that would replace what is there."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} are added and never replaced: write with mode('append')"


class NoMessageColumn(SinkError):
    """Rows to be enqueued do not say what to send, or where to."""

    def __init__(self, column: str, has: tuple[str, ...], next_move: str) -> None:
        super().__init__(column, has, next_move)
        self.column, self.has, self.next_move = column, has, next_move

    def __str__(self) -> str:
        return (
            f"enqueue needs a column '{self.column}'; the DataFrame has {', '.join(self.has)}: "
            f"{self.next_move}"
        )


class UnfitMessageColumn(SinkError):
    """A column of rows to be enqueued has a type, or a value, that no message can have."""

    def __init__(self, column: str, why: str, wanted: str) -> None:
        super().__init__(column, why, wanted)
        self.column, self.why, self.wanted = column, why, wanted

    def __str__(self) -> str:
        return f"enqueue: column '{self.column}' {self.why}; give {self.wanted}"


class NoSuchPartition(SinkError):
    """A row is to be enqueued in a partition that its topic does not have."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(topic, partition, partitions)
        self.topic, self.partition, self.partitions = topic, partition, partitions

    def __str__(self) -> str:
        return (
            f"enqueue: topic '{self.topic}' has no partition {self.partition}, only 0 to "
            f"{self.partitions - 1}; correct the column partition, or leave it null to go by the key"
        )
