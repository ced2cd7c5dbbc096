"""One look at the demo while it runs, as values; :mod:`spark_cursor_source.devkit.demo.render` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_cursor_source.core.cursor import CursorSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Where one partition of the queue stands; what its cursor says."""

    partition: int
    produced: int
    delivered: int = 0
    acked: int = 0
    leased: int = 0
    waiting: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    mark_delete: int = -1
    holes: int = 0
    done: bool = False  #: everything that was produced is acked or dead-lettered

    @classmethod
    def of(cls, partition: int, produced: int, cursor: CursorSnapshot | None) -> Row:
        """The row of a partition with ``produced`` messages; without a cursor nothing has happened yet."""
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
            redelivered=totals.redelivered,
            dead_lettered=totals.dead_lettered,
            mark_delete=cursor.mark_delete,
            holes=cursor.ack_holes.count_ranges(),
            done=cursor.mark_delete + 1 >= produced,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All partitions at one moment."""

    elapsed_s: float
    consumer: str  #: what it does, in a word or two
    tracker: str
    rows: tuple[Row, ...]

    @property
    def done(self) -> bool:
        """Whether nothing is left to happen."""
        return bool(self.rows) and all(row.done for row in self.rows)

    def total(self, column: str) -> int:
        """The sum of a column."""
        return sum(int(getattr(row, column)) for row in self.rows)


def rows_of(produced: Mapping[int, int], cursors: Mapping[int, CursorSnapshot]) -> tuple[Row, ...]:
    """A row for each partition of the queue."""
    return tuple(Row.of(number, end, cursors.get(number)) for number, end in sorted(produced.items()))
