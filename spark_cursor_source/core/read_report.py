"""Report of a task that has read its part of a batch, if the source acks for the sink."""

from __future__ import annotations

from dataclasses import dataclass

from spark_cursor_source.core.cell import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """Report that a task has read all its slices, and has released the messages that were not due."""

    cell: Cell  #: cell of the messages that the task read
    batch: str  #: id of the batch; a batch that is planned again has another id
    task: int  #: number of the task in the batch, from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTo:
    """Destination of a task's report, and number of the task.

    >>> ReportTo(batch="a run#1", task=0, partition=3, partitions=8).worth(messages=10, size=1_000)
    False
    """

    batch: str
    task: int
    partition: int  #: partition of the redeliveries topic for the report
    partitions: int  #: number of partitions of the redeliveries topic

    def worth(self, *, messages: int, size: int) -> bool:
        """True if a report costs less than reading these messages, of ``size`` bytes in total, again."""
        return messages >= WORTH_MESSAGES or size >= WORTH_BYTES


WORTH_MESSAGES = 2_000  #: fewest messages that a task reports; the driver reads fewer in about 10 ms
WORTH_BYTES = 1 << 20  #: smallest size in bytes that a task reports
