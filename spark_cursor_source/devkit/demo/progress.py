"""Snapshot of the running demo; :mod:`spark_cursor_source.devkit.demo.render` displays it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_cursor_source.core.cursor import CursorSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """State of one partition of the queue topic, from its cursor."""

    partition: int
    produced: int
    delivered: int = 0
    acked: int = 0
    leased: int = 0
    waiting: int = 0
    redelivered: int = 0  #: number of deliveries beyond the first of each message
    dead_lettered: int = 0
    mark_delete: int = -1
    holes: int = 0
    done: bool = False  #: True if all produced messages are acked or dead-lettered

    @classmethod
    def of(cls, partition: int, produced: int, cursor: CursorSnapshot | None) -> Row:
        """Returns the row of a partition with ``produced`` messages, empty without a cursor."""
        if cursor is None:
            return cls(partition=partition, produced=produced)
        totals = cursor.totals
        return cls(
            partition=partition,
            produced=produced,
            delivered=totals.delivered,
            acked=totals.acked,
            leased=len(cursor.leased),
            waiting=len(cursor.waiting),
            # The queue has no gaps, so each offset below the read position has one first delivery.
            redelivered=max(totals.delivered - cursor.read_position, 0),
            dead_lettered=totals.dead_lettered,
            mark_delete=cursor.mark_delete,
            holes=cursor.ack_holes.count_ranges(),
            done=cursor.mark_delete + 1 >= produced,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All partitions at one time."""

    elapsed_s: float
    consumer: str  #: state of the consumer in one or two words
    tracker: str
    rows: tuple[Row, ...]

    @property
    def done(self) -> bool:
        """True if all messages of all partitions are finished."""
        return bool(self.rows) and all(row.done for row in self.rows)

    def total(self, column: str) -> int:
        """Returns the sum of a column."""
        return sum(int(getattr(row, column)) for row in self.rows)


def rows_of(produced: Mapping[int, int], cursors: Mapping[int, CursorSnapshot]) -> tuple[Row, ...]:
    """Returns a row for each partition of the queue topic."""
    return tuple(Row.of(number, end, cursors.get(number)) for number, end in sorted(produced.items()))
