"""What a task says of a batch that it has read to the end, where the source acks for the sink."""

from __future__ import annotations

from dataclasses import dataclass

from spark_cursor_source.core.cell import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """A task has read all its slices, and has given back what of them was not due."""

    cell: Cell  #: whose messages it read
    batch: str  #: id of the batch, one for each time that a batch is planned
    task: int  #: place among the tasks of the batch, from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTo:
    """Where a task reports, and as which task.

    >>> ReportTo(batch="a run#1", task=0, partition=3, partitions=8).worth(messages=10, size=1_000)
    False
    """

    batch: str
    task: int
    partition: int  #: of the redeliveries topic
    partitions: int  #: how many the redeliveries topic has

    def worth(self, *, messages: int, size: int) -> bool:
        """Whether so many messages of so many bytes together cost more to read again than a report does."""
        return messages >= WORTH_MESSAGES or size >= WORTH_BYTES


WORTH_MESSAGES = 2_000  #: the fewest that a task reports; the driver reads fewer in about 10 ms
WORTH_BYTES = 1 << 20  #: the same by size
