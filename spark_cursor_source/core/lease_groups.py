"""Groups of outstanding messages with the same deadline, delivery count and other attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from spark_cursor_source.core.cursor import Available, Delayed, HeldLetters, Lease
from spark_cursor_source.core.offsets import EMPTY, OffsetSet

_Group = TypeVar("_Group", Lease, Delayed, Available, HeldLetters)

START_GRAIN_MS = 250  #: start times are multiples of this, so that leases share groups
_DEADLINE_GRAINS_MS = (1, 5, 25, 50, 100)  # each divides the next one
_MOST_GRAIN_MS = 200
MANY_GROUPS = 1_000  #: with more groups, leases with far deadlines share them
_COARSE_MS = 250  # least grain of a far deadline
_PART = 64  # a far deadline moves by at most this part of the time that is left
_GROUPS = 256  # of leases of one length, up to 50 s


def rounded_start(at_ms: int) -> int:
    """Returns the start of a lease, rounded up so that leases share groups."""
    return _rounded_up(at_ms, START_GRAIN_MS)


def rounded_deadline(at_ms: int, after_ms: int) -> int:
    """Returns ``at_ms + after_ms``, rounded up so that leases share groups.

    The result is later by less than a 50th of ``after_ms``, and by less than 200 ms. Leases of one length
    below 50 s have at most 257 groups.

    >>> [rounded_deadline(1, after_ms) - after_ms - 1 for after_ms in (0, 100, 1_000, 10_000, 60_000)]
    [0, 0, 4, 49, 199]
    """
    grain_ms = next((one for one in _DEADLINE_GRAINS_MS if after_ms < one * _GROUPS), _MOST_GRAIN_MS)
    return _rounded_up(at_ms + after_ms, grain_ms)


def _rounded_up(moment_ms: int, grain_ms: int) -> int:
    return -(-moment_ms // grain_ms) * grain_ms


class LeaseGroups(Generic[_Group]):
    """Offsets of each group of one kind; empty groups are removed.

    >>> groups = LeaseGroups([(Available(1, died=False), OffsetSet.of((0, 5)))])
    >>> groups.add(Available(2, died=False), OffsetSet.of((7, 9)))
    >>> groups.take(OffsetSet.of((3, 20)))
    4
    >>> [(wait.delivery_count, offsets.ranges) for wait, offsets in groups.in_order()]
    [(1, ((0, 3),))]
    """

    __slots__ = ("_offsets",)

    def __init__(self, groups: Iterable[tuple[_Group, OffsetSet]] = ()) -> None:
        self._offsets: dict[_Group, OffsetSet] = dict(groups)

    def __contains__(self, group: _Group) -> bool:
        return group in self._offsets

    def __iter__(self) -> Iterator[tuple[_Group, OffsetSet]]:
        return iter(list(self._offsets.items()))

    def __len__(self) -> int:
        return len(self._offsets)

    def in_order(self) -> tuple[tuple[_Group, OffsetSet], ...]:
        """Returns the groups and their offsets, sorted by group."""
        return tuple(sorted(self._offsets.items(), key=lambda item: item[0]))

    def add(self, group: _Group, offsets: OffsetSet) -> None:
        """Adds offsets to a group."""
        self._offsets[group] = self._offsets.get(group, EMPTY) | offsets

    def remove(self, group: _Group, offsets: OffsetSet) -> None:
        """Removes offsets from a group that contains them."""
        rest = self._offsets[group] - offsets
        if rest:
            self._offsets[group] = rest
        else:
            del self._offsets[group]

    def take(self, offsets: OffsetSet) -> int:
        """Removes offsets from all groups and returns the number of removed offsets."""
        taken = 0
        for group, held in self:
            if held.isdisjoint(offsets):  # as most groups are; this makes no bitmap
                continue
            found = held & offsets
            self.remove(group, found)
            taken += len(found)
        return taken

    def offsets(self) -> Iterable[OffsetSet]:
        """Returns the offsets of each group."""
        return self._offsets.values()


def coarser(leases: LeaseGroups[Lease], now_ms: int) -> LeaseGroups[Lease]:
    """Returns the same leases in fewer groups, by a coarser grain for deadlines that are far away.

    A deadline moves to a later time, by at most a 64th of the time that is left. A merged group has the
    earliest start of its leases: with a later one, a message that was not due could seem delivered. Twelve
    hours of batches, four a second, end in fewer than 1,000 groups.

    >>> batches = [(Lease(3_600_000 + 250 * n, 1, "run"), OffsetSet.of((n, n + 1))) for n in range(4_000)]
    >>> merged = coarser(LeaseGroups(batches), 0)
    >>> len(merged), [lease.deadline_ms for lease, _ in merged.in_order()][:2]
    (24, [3616000, 3648000])
    """
    merged: dict[Lease, list[OffsetSet]] = {}
    started: dict[Lease, int] = {}
    for lease, offsets in leases:
        grain_ms, next_ms = 1, _COARSE_MS
        while next_ms * _PART <= lease.deadline_ms - now_ms:
            grain_ms, next_ms = next_ms, next_ms * 2
        key = lease._replace(deadline_ms=-(-lease.deadline_ms // grain_ms) * grain_ms, started_ms=0)
        merged.setdefault(key, []).append(offsets)
        started[key] = min(started.get(key, lease.started_ms), lease.started_ms)
    return LeaseGroups(
        (key._replace(started_ms=started[key]), OffsetSet.union(parts)) for key, parts in merged.items()
    )
