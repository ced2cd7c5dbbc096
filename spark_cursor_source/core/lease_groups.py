"""Groups of outstanding messages with the same deadline, delivery count and other attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from spark_cursor_source.core.cursor import Available, Delayed, HeldLetters, Lease
from spark_cursor_source.core.offsets import EMPTY, OffsetSet

_Group = TypeVar("_Group", Lease, Delayed, Available, HeldLetters)


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
            # Most groups have none of the offsets; this saves a copy of their bitmaps.
            if found := held & offsets:
                self.remove(group, found)
                taken += len(found)
        return taken

    def offsets(self) -> Iterable[OffsetSet]:
        """Returns the offsets of each group."""
        return self._offsets.values()
