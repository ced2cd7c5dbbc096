"""Leases that are extended while their messages are handled, by queries and plain clients."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import MAX_LEASE_MS, KeepAlive
from spark_cursor_source.core.offsets import EMPTY, OffsetSet

log = logging.getLogger(__name__)
_GRAIN_MS = 60_000  # leases that start in the same minute share one offset set

#: the holder that the markers of a lease name: the run id, with V1 markers the queue id
HolderT = TypeVar("HolderT", bound=str | bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased(Generic[HolderT]):
    """Leased messages of one cell and one holder."""

    cell: Cell
    holder: HolderT
    offsets: OffsetSet


class _Group(NamedTuple, Generic[HolderT]):
    cell: Cell
    holder: HolderT
    since: int  # start of the leases, in units of _GRAIN_MS


class Leases(Generic[HolderT]):
    """Leases of a batch or of a client. They are extended every third of a lease, for at most 12 h.

    The caller passes in a time in ms that never runs backwards.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> leases = Leases(lease_ms=60_000)
    >>> leases.add(Leased(cell=cell, holder="run", offsets=OffsetSet.of((0, 9))), now_ms=0)
    >>> leases.remove(cell, OffsetSet.of((1, 9)))
    >>> [[leased.offsets.ranges for leased in leases.due(at_ms)] for at_ms in (19_999, 20_000, 20_001)]
    [[], [((0, 1),)], []]
    >>> leases.due(13 * 3_600_000), len(leases)
    ([], 0)
    """

    def __init__(self, *, lease_ms: int) -> None:
        self._every_ms = lease_ms // 3
        self._groups: dict[_Group[HolderT], OffsetSet] = {}
        self._next_ms = 0  # time of the next extension

    def add(self, leased: Leased[HolderT], *, now_ms: int) -> None:
        """Adds messages leased at ``now_ms``."""
        if not self._groups:
            self._next_ms = now_ms + self._every_ms
        group = _Group(leased.cell, leased.holder, now_ms // _GRAIN_MS)
        self._groups[group] = self._groups.get(group, EMPTY) | leased.offsets

    def remove(self, cell: Cell, offsets: OffsetSet) -> None:
        """Removes messages that are acked or released, or whose leases may expire."""
        for group, held in list(self._groups.items()):
            if group.cell == cell and not held.isdisjoint(offsets):
                self._put(group, held - offsets)

    def clear(self) -> None:
        """Removes all messages."""
        self._groups.clear()

    def due(self, now_ms: int) -> list[Leased[HolderT]]:
        """Returns the leases to extend now. The result is empty before the next third of a lease.

        Leases held for more than 12 h are removed.
        """
        if now_ms < self._next_ms:
            return []
        self._next_ms = now_ms + self._every_ms
        self._remove_overdue(now_ms)
        return [
            Leased(cell=group.cell, holder=group.holder, offsets=held) for group, held in self._groups.items()
        ]

    def wait_s(self, now_ms: int) -> float:
        """Returns the seconds until :meth:`due` may have leases, at most a third of a lease."""
        if not self._groups:
            return self._every_ms / 1000
        return max(self._next_ms - now_ms, 0) / 1000

    def __len__(self) -> int:
        """Returns the number of leased messages."""
        return sum(map(len, self._groups.values()))

    def _remove_overdue(self, now_ms: int) -> None:
        overdue = [group for group in self._groups if now_ms - group.since * _GRAIN_MS > MAX_LEASE_MS]
        if overdue:
            log.warning(
                "The longest lease is over and is not extended further. event=lease_limit_reached "
                "hours=12 messages=%d",
                sum(len(self._groups.pop(group)) for group in overdue),
            )

    def _put(self, group: _Group[HolderT], offsets: OffsetSet) -> None:
        if offsets:
            self._groups[group] = offsets
        else:
            del self._groups[group]


def keep_alives(leases: Iterable[Leased[str]], *, lease_ms: int) -> list[KeepAlive]:
    """Returns the markers that extend these leases by ``lease_ms`` from now."""
    return [
        KeepAlive(cell=leased.cell, offsets=leased.offsets, lease_ms=lease_ms, run_id=leased.holder)
        for leased in leases
    ]
