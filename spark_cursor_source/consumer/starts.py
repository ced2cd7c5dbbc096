"""Start markers of a consumer's deliveries, including those whose write is not confirmed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from spark_cursor_source.core.batch import Delivery
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.lease_groups import rounded_start
from spark_cursor_source.core.marker import Start
from spark_cursor_source.core.offsets import OffsetSet

#: Writes Start markers. Returns after the brokers have confirmed them, with their broker time in ms, or None
#: if the brokers do not report one.
WriteStarts = Callable[[Sequence[Start]], int | None]


def start_markers(
    deliveries: Sequence[Delivery], run_id_of: Callable[[Cell], str], *, lease_ms: int, alone: bool
) -> list[Start]:
    """Returns the Start markers of these deliveries, which are planned ``alone`` or not."""
    return [
        Start(
            cell=delivery.cell,
            offsets=delivery.offsets,
            lease_ms=lease_ms,
            delivery_count=delivery.delivery_count,
            run_id=run_id_of(delivery.cell),
            alone=alone,
        )
        for delivery in deliveries
    ]


class Starts:
    """Writes the Start markers of a plain client. Not thread-safe."""

    def __init__(self, write: WriteStarts, run_id_of: Callable[[Cell], str], *, lease_ms: int) -> None:
        self._write, self._run_id_of, self._lease_ms = write, run_id_of, lease_ms
        # deliveries whose Start markers are unconfirmed: they may be on the broker now or later
        self._unconfirmed: list[Delivery] = []
        self.now_ms = 0  #: broker time in ms of the last Start marker
        #: start of the last lease in broker ms; None if the brokers did not report a time
        self.began_ms: int | None = None

    def write(self, deliveries: Sequence[Delivery], *, alone: bool = False) -> list[Start]:
        """Writes and returns the Start markers of these deliveries, confirmed by the brokers."""
        starts = start_markers(deliveries, self._run_id_of, lease_ms=self._lease_ms, alone=alone)
        self._unconfirmed += deliveries
        at_ms = self._write(starts)
        for delivery in deliveries:
            self._confirm(delivery)
        self.now_ms = max(self.now_ms, at_ms or 0)
        # Rounded as the tracker rounds it.
        self.began_ms = None if at_ms is None else rounded_start(at_ms)
        return starts

    def _confirm(self, confirmed: Delivery) -> None:
        left = [
            replace(one, offsets=one.offsets - confirmed.offsets) if one.cell == confirmed.cell else one
            for one in self._unconfirmed
        ]
        self._unconfirmed = [one for one in left if one.offsets]

    def unconfirmed(self, cell: Cell) -> OffsetSet:
        """Returns the offsets of a cell whose Start markers may have been written without confirmation."""
        return OffsetSet.union(delivery.offsets for delivery in self._unconfirmed if delivery.cell == cell)

    def forget(self, cells: Collection[Cell]) -> list[Delivery]:
        """Removes and returns the unconfirmed deliveries of these cells."""
        forgotten = [delivery for delivery in self._unconfirmed if delivery.cell in cells]
        self._unconfirmed = [delivery for delivery in self._unconfirmed if delivery.cell not in cells]
        return forgotten
