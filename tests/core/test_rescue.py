"""Rules of the rescue before retention: nothing that is needed is deleted without a copy."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.rescue import (
    DueMessages,
    LogState,
    Need,
    RescuePlace,
    UnneededCopies,
    check_every_ms,
    needed_in,
    young_from_ms,
)

PLACE = RescuePlace("orders", "id", 0)
RETENTION_MS, BEFORE_MS = 60, 20
CHECK_MS = 5


def needing(position: int, *ranges: tuple[int, int]) -> Need:
    return Need(OffsetSet.of(*ranges), position)


offset_sets = st.frozensets(st.integers(0, 60), max_size=20)


@given(
    st.lists(st.tuples(offset_sets, st.integers(0, 60)), max_size=4), st.integers(0, 60), st.integers(0, 60)
)
def test_a_message_is_needed_while_one_subscription_has_it_outstanding_or_unread(
    cells: list[tuple[frozenset[int], int]], start: int, stop: int
) -> None:
    needs = [Need(OffsetSet.from_offsets(outstanding), position) for outstanding, position in cells]
    slow = {
        offset
        for offset in range(start, stop)
        if any(offset in outstanding or offset >= position for outstanding, position in cells)
    }
    assert set(needed_in(needs, start, stop)) == slow


@dataclass
class Log:
    """A queue partition as Kafka keeps it: segments, of which retention deletes whole ones from the front."""

    segments: list[list[int]] = field(default_factory=lambda: [[]])  # timestamps of the records
    start: int = 0

    @property
    def times(self) -> list[int]:
        return [at for segment in self.segments for at in segment]

    @property
    def end(self) -> int:
        return self.start + len(self.times)

    def delete(self, now: int) -> None:
        while len(self.segments) > 1 or self.segments[0]:
            if max(self.segments[0], default=0) >= now - RETENTION_MS:
                return
            self.start += len(self.segments.pop(0))
            self.segments = self.segments or [[]]

    def first_at(self, from_ms: int) -> int:
        """The answer of a broker that is asked for the first record at or after a time."""
        return next((self.start + n for n, at in enumerate(self.times) if at >= from_ms), self.end)


#: a step: records appended with timestamps this much off the clock, whether a segment is closed, the offset
#: below which the subscription has read, and how much of what it read it acks
steps = st.lists(
    st.tuples(
        st.lists(st.integers(-30, 30), max_size=3), st.booleans(), st.integers(0, 5), st.integers(0, 3)
    ),
    max_size=60,
)


@given(steps)
def test_retention_by_time_takes_nothing_that_is_needed_and_has_no_copy(
    plan: list[tuple[list[int], bool, int, int]],
) -> None:
    # each step is a check, then the time of a check passes; clocks of producers are off by up to 30
    log, due = Log(), DueMessages()
    copies: set[int] = set()
    outstanding: set[int] = set()
    position = 0
    for step, (records, closes, reads, acks) in enumerate(plan):
        now = 1_000 + step * CHECK_MS
        log.segments[-1] += [now + off for off in records]
        if closes and log.segments[-1]:
            log.segments.append([])
        read = range(position, min(position + reads, log.end))
        outstanding |= set(read)
        position = max(position, read.stop)
        for offset in sorted(outstanding)[:acks]:
            outstanding.discard(offset)
        need = Need(OffsetSet.from_offsets(outstanding), position)
        young = log.first_at(young_from_ms(now, RETENTION_MS, BEFORE_MS))
        state = LogState(start=log.start, end=log.end, young=young)
        copies |= set(needed_in([need], log.start, due.below(PLACE, state)))
        was = log.start
        log.delete(now + CHECK_MS)
        assert set(needed_in([need], was, log.start)) <= copies


def test_a_log_with_a_limit_of_size_is_due_up_to_its_end_at_the_check_before() -> None:
    due = DueMessages()
    assert due.below(PLACE, LogState(start=0, end=10, young=None, by_size=True)) == 10
    assert due.below(PLACE, LogState(start=0, end=50, young=None, by_size=True)) == 10
    assert due.below(PLACE, LogState(start=0, end=60, young=None, by_size=True)) == 50


def test_a_log_that_something_else_shortens_is_due_like_one_with_a_limit_of_size() -> None:
    due = DueMessages()
    assert due.below(PLACE, LogState(start=0, end=10, young=3)) == 3
    assert due.below(PLACE, LogState(start=5, end=20, young=7)) == 10  # offsets 3 and 4 were young
    assert due.below(PLACE, LogState(start=5, end=30, young=7)) == 20
    due.forget([PLACE])
    assert due.below(PLACE, LogState(start=5, end=40, young=7)) == 7


def test_a_log_without_retention_has_nothing_due() -> None:
    due = DueMessages()
    assert due.below(PLACE, LogState(start=4, end=10, young=None)) == 4


def test_a_copy_is_freed_when_it_was_not_needed_for_a_while() -> None:
    # 0 needed   10 not needed   15 not   20 freed
    unneeded, copies = UnneededCopies(grace_ms=10), OffsetSet.of((0, 4))
    assert unneeded.free(PLACE, copies, [needing(2)], now_ms=0) == EMPTY
    assert unneeded.free(PLACE, copies, [needing(4)], now_ms=10).ranges == ((0, 2),)
    assert unneeded.free(PLACE, copies, [needing(4)], now_ms=15) == EMPTY
    assert unneeded.free(PLACE, copies, [needing(4)], now_ms=20).ranges == ((2, 4),)


def test_a_copy_that_is_needed_again_in_between_is_kept() -> None:
    unneeded, copies = UnneededCopies(grace_ms=10), OffsetSet.of((0, 4))
    assert unneeded.free(PLACE, copies, [needing(4)], now_ms=0) == EMPTY
    assert unneeded.free(PLACE, copies, [needing(4, (1, 2))], now_ms=5) == EMPTY
    assert unneeded.free(PLACE, copies, [needing(4)], now_ms=10).ranges == ((0, 1), (2, 4))


def test_a_copy_waits_again_where_the_needs_may_be_old() -> None:
    # 0 not needed   [the tracker stood still]   20 not needed   30 freed
    unneeded, copies = UnneededCopies(grace_ms=10), OffsetSet.of((0, 4))
    assert unneeded.free(PLACE, copies, [needing(4)], now_ms=0) == EMPTY
    unneeded.wait_again()
    assert unneeded.free(PLACE, copies, [needing(4)], now_ms=20) == EMPTY
    assert unneeded.free(PLACE, copies, [needing(4)], now_ms=30) == copies


def test_without_a_subscription_all_copies_are_freed() -> None:
    unneeded, copies = UnneededCopies(grace_ms=0), OffsetSet.of((0, 4))
    assert unneeded.free(PLACE, copies, [], now_ms=0) == copies


def test_checks_are_often_enough_to_fail_once() -> None:
    for before_ms in (1_000, 60_000, 86_400_000):
        assert 2 * check_every_ms(before_ms) <= before_ms
