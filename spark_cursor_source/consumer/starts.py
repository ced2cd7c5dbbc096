"""The Starts of a consumer's deliveries, and those of which it is not known whether they are written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from spark_cursor_source.core.batch import Delivery
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker import DEADLINE_GRAIN_MS

#: writes Starts; they are on the brokers when it returns, at this time of theirs, or None if it is not said
WriteStarts = Callable[[Sequence[Start]], int | None]


class Starts:
    """Writes Starts; one thread's."""

    def __init__(self, write: WriteStarts, run_id_of: Callable[[Cell], str], *, lease_ms: int) -> None:
        self._write, self._run_id_of, self._lease_ms = write, run_id_of, lease_ms
        self._unconfirmed: list[Delivery] = []  # their Starts may be written, or be so later
        self.now_ms = 0  #: broker time, by the last Start
        self.began_ms: int | None = None  #: when that lease began; None where the broker did not say

    def write(self, deliveries: Sequence[Delivery], *, alone: bool = False) -> list[Start]:
        """The Starts of these deliveries; they are on the brokers when this returns."""
        starts = [
            Start(
                cell=delivery.cell,
                offsets=delivery.offsets,
                lease_ms=self._lease_ms,
                delivery_count=delivery.delivery_count,
                run_id=self._run_id_of(delivery.cell),
                alone=alone,
            )
            for delivery in deliveries
        ]
        self._unconfirmed += deliveries
        at_ms = self._write(starts)
        self._unconfirmed = []
        self.now_ms = max(self.now_ms, at_ms or 0)
        # As the tracker counts it: on the next quarter of a second.
        self.began_ms = None if at_ms is None else -(-at_ms // DEADLINE_GRAIN_MS) * DEADLINE_GRAIN_MS
        return starts

    def unconfirmed(self, cell: Cell) -> OffsetSet:
        """What may have been started of a cell, though nobody said so."""
        return OffsetSet.union(one.offsets for one in self._unconfirmed if one.cell == cell)

    def forget(self, cells: Collection[Cell]) -> list[Delivery]:
        """What may have been started of these cells, which is not of interest here any more."""
        forgotten = [one for one in self._unconfirmed if one.cell in cells]
        self._unconfirmed = [one for one in self._unconfirmed if one.cell not in cells]
        return forgotten
