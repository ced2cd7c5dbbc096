"""Messages that wait behind an earlier message of their key (option ordering=key)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spark_cursor_source.core.offsets import EMPTY, OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Blocked messages of a cell. ``behind`` and ``delivery_counts`` are in the order of ``offsets``.

    >>> blocked = Blocked(offsets=OffsetSet.of((5, 7)), behind=(2, 2), delivery_counts=(0, 1))
    >>> blocked.behind_of(6), blocked.behind_of(9)
    (2, None)
    >>> [(count, offsets.ranges) for count, offsets in blocked.by_count()]
    [(0, ((5, 6),)), (1, ((6, 7),))]
    """

    offsets: OffsetSet = EMPTY
    behind: tuple[int, ...] = ()  #: offset of the message that each one waits for
    delivery_counts: tuple[int, ...] = ()  #: number of deliveries so far; 0: never delivered

    def behind_of(self, offset: int) -> int | None:
        """Returns the offset that a message waits for; None: the message is not blocked."""
        return self.behind[self.offsets.count_between(0, offset)] if offset in self.offsets else None

    def waiting_for(self, offset: int) -> int:
        """Returns the number of messages that wait for the message at an offset."""
        return self.behind.count(offset)

    def blockers(self) -> OffsetSet:
        """Returns the offsets that messages wait for."""
        return OffsetSet.from_offsets(self.behind)

    def by_count(self) -> list[tuple[int, OffsetSet]]:
        """Returns the blocked offsets by delivery count, in its order."""
        found: dict[int, list[int]] = {}
        for offset, count in zip(self.offsets, self.delivery_counts, strict=True):
            found.setdefault(count, []).append(offset)
        return [(count, OffsetSet.from_offsets(some)) for count, some in sorted(found.items())]

    @property
    def is_consistent(self) -> bool:
        """True if each message waits for an earlier one and has a valid delivery count."""
        return (
            len(self.offsets) == len(self.behind) == len(self.delivery_counts)
            and all(0 <= behind < offset for offset, behind in zip(self.offsets, self.behind, strict=True))
            and min(self.delivery_counts, default=0) >= 0
        )


NONE_BLOCKED = Blocked()


class BlockedMessages:
    """Blocked messages of a cell, as its tracker changes them."""

    __slots__ = ("_blockers", "_waits", "offsets")

    def __init__(self, blocked: Blocked = NONE_BLOCKED) -> None:
        waits = zip(blocked.behind, blocked.delivery_counts, strict=True)
        self._waits = dict(zip(blocked.offsets, waits, strict=True))
        self._blockers: OffsetSet | None = None  # None: not computed since the last change
        self.offsets = blocked.offsets

    def __bool__(self) -> bool:
        return bool(self._waits)

    def snapshot(self) -> Blocked:
        """Returns the blocked messages as a value."""
        if not self._waits:
            return NONE_BLOCKED
        waits = [self._waits[offset] for offset in self.offsets]
        return Blocked(
            offsets=self.offsets,
            behind=tuple(behind for behind, _ in waits),
            delivery_counts=tuple(count for _, count in waits),
        )

    def add(self, offsets: OffsetSet, behind: Iterable[int], delivery_count: int) -> None:
        """Adds messages with this number of deliveries; ``behind`` is in the order of the offsets."""
        self._waits |= {one: (at, delivery_count) for one, at in zip(offsets, behind, strict=True)}
        self.offsets, self._blockers = self.offsets | offsets, None

    def take(self, offsets: OffsetSet) -> int:
        """Removes offsets and returns the number of removed offsets."""
        taken = self.offsets & offsets
        if taken:
            for offset in taken:
                del self._waits[offset]
            self.offsets, self._blockers = self.offsets - taken, None
        return len(taken)

    def some(self, offsets: OffsetSet) -> Iterator[tuple[int, OffsetSet]]:
        """Yields those of the offsets that are blocked, by number of deliveries."""
        yield from self._by_count(self.offsets & offsets)

    def free(self, outstanding: OffsetSet) -> list[tuple[int, OffsetSet]]:
        """Removes and returns the messages whose blocker is not outstanding, by number of deliveries."""
        if self._blockers is None:
            self._blockers = OffsetSet.from_offsets({behind for behind, _ in self._waits.values()})
        gone = self._blockers - outstanding
        if not gone:
            return []
        free = OffsetSet.from_offsets([one for one, (behind, _) in self._waits.items() if behind in gone])
        found = self._by_count(free)
        self.take(free)
        return found

    def _by_count(self, offsets: OffsetSet) -> list[tuple[int, OffsetSet]]:
        found: dict[int, list[int]] = {}
        for offset in offsets:
            found.setdefault(self._waits[offset][1], []).append(offset)
        return [(count, OffsetSet.from_offsets(some)) for count, some in sorted(found.items())]
