"""What one consumer has under lease: messages that it handed out, or that wait in its buffer."""

from __future__ import annotations

from typing import NamedTuple

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import MAX_LEASE_MS, KeepAlive
from spark_cursor_source.core.offsets import EMPTY, OffsetSet

_GRAIN_MS = 60_000  # leases of one minute share a set


class _Group(NamedTuple):
    cell: Cell
    run_id: str
    since: int  # in grains


class ClientLeases:
    """The leases of one consumer, to be extended until their messages are settled, and at most 12 h.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> held = ClientLeases()
    >>> held.add(cell, OffsetSet.of((0, 9)), run_id="r", now_ms=0)
    >>> held.remove(cell, OffsetSet.of((1, 9)))
    >>> [marker.offsets.ranges for marker in held.keep_alives(now_ms=20_000, lease_ms=60_000)]
    [((0, 1),)]
    >>> held.keep_alives(now_ms=13 * 3_600_000, lease_ms=60_000), len(held)
    ([], 0)
    """

    def __init__(self) -> None:
        self._groups: dict[_Group, OffsetSet] = {}
        self.overdue = 0  #: messages that were let go after 12 h

    def add(self, cell: Cell, offsets: OffsetSet, *, run_id: str, now_ms: int) -> None:
        """These are leased from now on, by a Start of that run."""
        self.remove(cell, offsets)  # of one that came back while it was still held, the last lease counts
        group = _Group(cell, run_id, now_ms // _GRAIN_MS)
        self._groups[group] = self._groups.get(group, EMPTY) | offsets

    def remove(self, cell: Cell, offsets: OffsetSet) -> None:
        """They are acked or given back, or left to their lease: no KeepAlive speaks for them."""
        for group, held in list(self._groups.items()):
            if group.cell == cell and not held.isdisjoint(offsets):
                self._put(group, held - offsets)

    def keep_alives(self, *, now_ms: int, lease_ms: int) -> list[KeepAlive]:
        """What extends all that is held; what was held for 12 h is let go."""
        for group, held in list(self._groups.items()):
            if now_ms - group.since * _GRAIN_MS > MAX_LEASE_MS:
                self.overdue += len(held)
                del self._groups[group]
        return [
            KeepAlive(cell=group.cell, offsets=held, lease_ms=lease_ms, run_id=group.run_id)
            for group, held in self._groups.items()
        ]

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def _put(self, group: _Group, offsets: OffsetSet) -> None:
        if offsets:
            self._groups[group] = offsets
        else:
            del self._groups[group]
