"""Facts about all cells of a tracker that its driver needs at each look, updated from changed cursors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.event_times import EventTimes


class TrackedCells:
    """Cells of a tracker, with few bytes for an idle one.

    An update costs the changed cells, and a question costs the cells in its answer. ``read`` returns the
    present cursor of a cell.
    """

    def __init__(self, read: Callable[[Cell], CursorSnapshot | None]) -> None:
        self._read = read
        self._partition_of: dict[Cell, int] = {}
        self._of_subscription: dict[str, set[Cell]] = {}
        self._events: dict[int, EventTimes[Cell]] = {}
        self._with_breaker: dict[str, set[Cell]] = {}
        self._next_marker: dict[int, int] = {}
        self.log_ids: set[str] = set()  #: ids of the markers topics that cursors name

    def __len__(self) -> int:
        return len(self._partition_of)

    def update(self, changed: Mapping[Cell, CursorSnapshot | None]) -> None:
        """Takes in changed cursors. None: the cell was deleted."""
        for cell, cursor in changed.items():
            self._forget(cell)
            if cursor is not None:
                self._add(cell, cursor)

    def due(self, now_ms: Mapping[int, int]) -> frozenset[int]:
        """Returns the markers partitions with an event before their broker time in ``now_ms``."""
        earliest = {number: times.earliest for number, times in self._events.items() if number in now_ms}
        return frozenset(
            number for number, at_ms in earliest.items() if at_ms is not None and at_ms < now_ms[number]
        )

    def waiting(self) -> dict[int, Cell]:
        """Returns the markers partitions with an event, each with one of its cells."""
        return {number: next(iter(times)) for number, times in self._events.items() if times}

    def next_marker(self, partition: int) -> int:
        """Returns the highest position in a markers partition that a cursor has ever named."""
        return self._next_marker.get(partition, 0)

    def partition(self, cell: Cell) -> int | None:
        """Returns the markers partition of a cell. None: the cell does not exist."""
        return self._partition_of.get(cell)

    def of(self, partitions: Collection[int]) -> Iterator[tuple[Cell, int, int | None]]:
        """Yields each cell of these markers partitions, with its partition and the time of its next event."""
        for cell, number in self._partition_of.items():
            if number in partitions:
                times = self._events.get(number)
                yield cell, number, None if times is None else times.get(cell)

    def cursors(self, subscription: str) -> Iterator[CursorSnapshot]:
        """Yields the cursors of a subscription in order."""
        for cell in sorted(self._of_subscription.get(subscription, ())):
            if (cursor := self._read(cell)) is not None:
                yield cursor

    def cursor(self, cell: Cell) -> CursorSnapshot | None:
        """Returns the present cursor of a cell. None: the cell does not exist."""
        return self._read(cell)

    def with_breaker(self) -> list[str]:
        """Returns the subscriptions of which a breaker is open or counts dead letters, in order."""
        return sorted(self._with_breaker)

    def has_open_breaker(self) -> bool:
        """Tells whether a breaker is open."""
        cells = (cell for cells in self._with_breaker.values() for cell in cells)
        return any((cursor := self._read(cell)) is not None and cursor.breaker.is_open for cell in cells)

    def _add(self, cell: Cell, cursor: CursorSnapshot) -> None:
        number = cursor.markers_partition
        self._partition_of[cell] = number
        self._of_subscription.setdefault(cell.subscription, set()).add(cell)
        self._next_marker[number] = max(self._next_marker.get(number, 0), cursor.next_marker)
        if (at_ms := cursor.next_event_ms) is not None:
            self._events.setdefault(number, EventTimes()).set(cell, at_ms)
        if cursor.breaker.is_open or cursor.breaker.recent:
            self._with_breaker.setdefault(cell.subscription, set()).add(cell)
        if cursor.log is not None and cursor.log.topic_id:
            self.log_ids.add(cursor.log.topic_id)

    def _forget(self, cell: Cell) -> None:
        number = self._partition_of.pop(cell, None)
        if number is None:
            return
        if number in self._events:
            self._events[number].set(cell, None)
        for index in (self._of_subscription, self._with_breaker):
            cells = index.get(cell.subscription, set())
            cells.discard(cell)
            if not cells:
                index.pop(cell.subscription, None)
