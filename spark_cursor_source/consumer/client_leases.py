"""Leases of one consumer: messages handed out to the application or waiting in its buffer."""

from __future__ import annotations

from typing import NamedTuple

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import MAX_LEASE_MS, KeepAlive
from spark_cursor_source.core.offsets import EMPTY, OffsetSet

_GRAIN_MS = 60_000  # leases that start in the same minute share one offset set


class _Group(NamedTuple):
    cell: Cell
    run_id: str
    since: int  # start of the leases, in units of _GRAIN_MS


class ClientLeases:
    """Leases of one consumer, extended until their messages are settled, for at most 12 h.

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
        self.overdue = 0  #: messages whose extension stopped after 12 h

    def add(self, cell: Cell, offsets: OffsetSet, *, run_id: str, now_ms: int) -> None:
        """Adds messages leased by a Start marker of run ``run_id`` at ``now_ms``."""
        self.remove(cell, offsets)  # a message redelivered while it is still held counts with its last lease
        group = _Group(cell, run_id, now_ms // _GRAIN_MS)
        self._groups[group] = self._groups.get(group, EMPTY) | offsets

    def remove(self, cell: Cell, offsets: OffsetSet) -> None:
        """Removes messages that are acked or released, or whose leases may expire."""
        for group, held in list(self._groups.items()):
            if group.cell == cell and not held.isdisjoint(offsets):
                self._put(group, held - offsets)

    def keep_alives(self, *, now_ms: int, lease_ms: int) -> list[KeepAlive]:
        """Returns the markers that extend all held leases. Drops leases held for more than 12 h."""
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
