"""Rules of the rescue before retention: which messages are copied, and which copies are freed.

A message of a queue partition is needed while a subscription has it outstanding or has not read it. Needed
messages that retention may delete soon are copied to the rescue topic. The copy is freed when no subscription
needs the message any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.offsets import EMPTY, MAX_RANGE, OffsetSet

_CHECKS = 4  #: checks within ``rescueBefore``, so that one that fails is repeated in time
_LEAST_CHECK_MS, _MOST_CHECK_MS = 250, 60_000


class RescuePlace(NamedTuple):
    """Queue partition of one topic. A topic that was deleted and created again has another id."""

    topic: str
    topic_id: str
    partition: int


class Need(NamedTuple):
    """Messages of a partition that one subscription needs."""

    outstanding: OffsetSet
    read_position: int  #: it needs all messages from here on
    topic_id: str | None = None  #: id of the topic of these offsets; None: unknown

    @classmethod
    def of(cls, cursor: CursorSnapshot) -> Need:
        """Returns the need of a cell."""
        return cls(cursor.outstanding, cursor.read_position, cursor.topic_id)


def needed_in(needs: Iterable[Need], start: int, stop: int) -> OffsetSet:
    """Returns the offsets in ``[start, stop)`` that at least one subscription needs.

    >>> needs = [Need(OffsetSet.of((2, 4)), 10), Need(OffsetSet.of((7, 8)), 12)]
    >>> needed_in(needs, 3, 11).ranges
    ((3, 4), (7, 8), (10, 11))
    >>> needed_in([], 0, 10).ranges
    ()
    """
    needs = list(needs)
    if not needs or start >= stop:
        return EMPTY
    unread = min(need.read_position for need in needs)
    outstanding = OffsetSet.union(need.outstanding for need in needs)
    first = max(unread, start, stop - MAX_RANGE)
    return outstanding.starting_at(start).below(stop) | OffsetSet.of((first, max(first, stop)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """Log of a queue partition at one check."""

    start: int  #: offset of the first record
    end: int  #: offset after the last record that can be read
    #: offset of the first record that is too young for retention by time to delete it in time; None: the
    #: topic has no retention by time
    young: int | None
    by_size: bool = False  #: the log is also shortened when it is too large


class DueMessages:
    """Offset below which retention may delete messages before they are rescued, from check to check.

    Retention by time deletes whole segments, the oldest first, and a segment only when its youngest record is
    too old. So nothing from the first young record on is deleted.

    How soon a limit of size deletes a message is not known. So each message that was in the log at the check
    before is due. The same holds for a log whose start has moved past the first young record, because
    something else than time shortens it.
    """

    def __init__(self) -> None:
        self._before: dict[RescuePlace, LogState] = {}
        self._shortened: set[RescuePlace] = set()

    def below(self, place: RescuePlace, log: LogState) -> int:
        """Returns the offset below which needed messages are due, and remembers this check."""
        before = self._before.get(place)
        self._before[place] = log
        due = log.start if log.young is None else min(log.young, log.end)
        if before is None:
            return log.end if log.by_size else due
        if log.start > max(before.start, before.young or 0):
            self._shortened.add(place)
        if log.by_size or place in self._shortened:
            due = max(due, min(before.end, log.end))
        return due

    def forget(self, places: Iterable[RescuePlace]) -> None:
        """Forgets partitions that nobody reads any more."""
        for place in places:
            self._before.pop(place, None)
            self._shortened.discard(place)

    def places(self) -> frozenset[RescuePlace]:
        """Returns the partitions with a check."""
        return frozenset(self._before)


class UnneededCopies:
    """Copies that no subscription needs. A copy is freed when it was not needed for a while, at each check.

    A restore ends messages with one marker and takes them back with the next, and a cursors topic that was
    created again is empty for a moment. A check in between must not free the copies.
    """

    def __init__(self, *, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._since: dict[RescuePlace, tuple[int, OffsetSet]] = {}

    def free(self, place: RescuePlace, copies: OffsetSet, needs: Iterable[Need], *, now_ms: int) -> OffsetSet:
        """Returns the copies to free now, and remembers this check. ``now_ms`` is of a monotonic clock."""
        last = copies.last
        needed = EMPTY if last is None else needed_in(needs, copies.first or 0, last + 1)
        unneeded = copies - needed
        since_ms, candidates = self._since.get(place, (now_ms, unneeded))
        candidates &= unneeded
        if now_ms - since_ms < self._grace_ms:
            if candidates:
                self._since[place] = since_ms, candidates
            else:
                self._since.pop(place, None)
            return EMPTY
        self._since.pop(place, None)
        if rest := unneeded - candidates:
            self._since[place] = now_ms, rest
        return candidates

    def wait_again(self) -> None:
        """Forgets the earlier checks, because the needs may have changed unnoticed since the last one."""
        self._since.clear()


def freed_after_ms(before_ms: int) -> int:
    """Returns the time after which a copy that is not needed is freed.

    >>> freed_after_ms(4_000), freed_after_ms(6 * 3_600_000)
    (4000, 60000)
    """
    return min(before_ms, _MOST_CHECK_MS)


def check_every_ms(before_ms: int) -> int:
    """Returns the interval of the checks for messages that retention deletes within ``before_ms``.

    >>> check_every_ms(4_000), check_every_ms(100), check_every_ms(6 * 3_600_000)
    (1000, 250, 60000)
    """
    return min(max(before_ms // _CHECKS, _LEAST_CHECK_MS), _MOST_CHECK_MS)


def young_from_ms(now_ms: int, retention_ms: int, before_ms: int) -> int:
    """Returns the timestamp from which on a record stays for at least ``before_ms`` after ``now_ms``.

    >>> young_from_ms(100_000, 60_000, 10_000)
    50000
    """
    return now_ms - retention_ms + before_ms
