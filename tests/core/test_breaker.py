"""The rate of dead letters; a list of all of them is the judge."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.breaker import NO_BREAKER, Breaker, BreakerPolicy
from spark_cursor_source.core.breaker_sync import trips
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import CloseBreaker, OpenBreaker
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.errors import InvalidOption

POLICY = BreakerPolicy(limit=10, window_ms=60_000, pause_ms=600_000)


def letters(count: int) -> OffsetSet:
    return OffsetSet.of((0, count))


def test_the_limit_may_go_out_and_the_first_letter_above_it_opens() -> None:
    breaker, out = Breaker().admit(letters(10), 1_000, POLICY, place="t,0")
    assert (out, breaker.is_open) == (letters(10), False)
    breaker, out = breaker.admit(letters(1), 60_000, POLICY, place="t,0")
    assert (out, breaker.opened_ms, breaker.seen(70_000, POLICY).closes_ms) == (EMPTY, 60_000, 670_000)
    assert breaker.admit(letters(1), 10**9, POLICY, place="t,0") == (breaker, EMPTY), "open is open"


def test_of_too_many_at_once_the_first_go_out() -> None:
    breaker, out = Breaker().admit(OffsetSet.of((5, 100)), 0, POLICY, place="t,0")
    assert (out, breaker.is_open) == (OffsetSet.of((5, 15)), True)


def test_a_breaker_that_closes_counts_from_nothing_and_knows_its_trip() -> None:
    breaker, _ = Breaker().admit(letters(11), 1_000, POLICY, place="t,0")
    closed = breaker.closed()
    assert (closed.is_open, closed.trip) == (False, "1000@t,0")
    assert closed.admit(letters(10), 1_001, POLICY, place="t,0")[1] == letters(10)


def test_without_a_limit_everything_goes_out_uncounted() -> None:
    assert Breaker().admit(letters(10**6), 0, NO_BREAKER, place="t,0") == (Breaker(), letters(10**6))


def test_a_breaker_without_a_pause_waits_for_the_operator() -> None:
    policy = BreakerPolicy(limit=1, pause_ms=None)
    opened = Breaker().opened("x", 5, policy).seen(10, policy)
    assert (opened.opened_ms, opened.closes_ms) == (5, None)


def test_another_trip_of_an_open_breaker_begins_its_pause_again() -> None:
    opened = Breaker().opened("x", 5, POLICY).seen(6, POLICY).opened("y", 1_000, POLICY).seen(1_500, POLICY)
    assert (opened.trip, opened.opened_ms, opened.closes_ms) == ("y", 5, 601_500)
    assert opened.seen(9_000, POLICY) == opened, "once seen, its pause runs"


def test_a_breaker_that_allows_nothing_is_refused() -> None:
    with pytest.raises(InvalidOption, match="Write it like 100/1m"):
        BreakerPolicy(limit=0)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 6)), max_size=200),
    st.sampled_from([1_000, 60_000]),
)
def test_no_window_has_more_than_the_limit_and_it_opens_for_no_less(
    steps: list[tuple[int, int]], window_ms: int
) -> None:
    policy, breaker, now_ms = BreakerPolicy(limit=10, window_ms=window_ms), Breaker(), 0
    went: list[tuple[int, int]] = []
    for pause_ms, count in steps:
        now_ms += pause_ms
        breaker, out = breaker.admit(letters(count), now_ms, policy, place="t,0")
        went.append((now_ms, len(out)))
        assert sum(n for at_ms, n in went if at_ms > now_ms - window_ms) <= 10
        assert len(breaker.recent) <= 40
        if breaker.is_open:
            # What was counted a part of the window too long is all that it may be too careful by.
            since_ms = now_ms - window_ms - window_ms // 32 - 1
            assert sum(n for at_ms, n in went if at_ms > since_ms) + count - len(out) > 10
            breaker, went = breaker.closed(), []


# ---- the cells of a subscription

CELLS = [Cell(subscription="s", topic="t", partition=n) for n in range(3)]


def cursors(*breakers: Breaker) -> list[CursorSnapshot]:
    """One in each markers partition."""
    return [
        CursorSnapshot(
            cell=cell, read_position=0, next_marker=0, breaker=breaker, markers_partition=cell.partition
        )
        for cell, breaker in zip(CELLS, breakers, strict=False)
    ]


def counted(at_ms: int, count: int) -> Breaker:
    return Breaker().admit(letters(count), at_ms, POLICY, place="t,0")[0]


NOW = {0: 100_000, 1: 100_000, 2: 100_000}


def test_where_one_is_open_the_others_open_for_its_trip() -> None:
    opened = Breaker().opened("5@x", 5, POLICY)
    assert trips(cursors(opened, Breaker(), Breaker()), POLICY, {}) == [
        OpenBreaker(cell=CELLS[1], trip="5@x"),
        OpenBreaker(cell=CELLS[2], trip="5@x"),
    ]


def test_a_cell_that_has_closed_again_is_not_opened_for_the_same_trip() -> None:
    opened = Breaker().opened("5@x", 5, POLICY)
    assert trips(cursors(opened, opened.closed()), POLICY, {}) == []


def test_of_several_trips_all_follow_the_latest() -> None:
    first, second = Breaker().opened("5@x", 5, POLICY), Breaker().opened("6@y", 6, POLICY)
    assert trips(cursors(first, second), POLICY, {}) == [OpenBreaker(cell=CELLS[0], trip="6@y")]


def test_dead_letters_of_all_cells_together_trip_the_breaker_of_each() -> None:
    found = cursors(counted(90_000, 6), counted(95_000, 5), Breaker())
    (first, *others) = trips(found, POLICY, NOW)
    assert isinstance(first, OpenBreaker)
    assert first.trip.endswith("@11 in 3 partitions")
    assert others == [OpenBreaker(cell=cell, trip=first.trip) for cell in CELLS[1:]]


@pytest.mark.parametrize(
    ("found", "now_ms"),
    [
        ([counted(90_000, 5), counted(95_000, 5)], NOW),
        ([counted(10_000, 6), counted(95_000, 5)], NOW),
        ([counted(90_000, 6), counted(95_000, 5)], {1: 100_000}),
        ([Breaker(), Breaker()], NOW),
    ],
    ids=["no more than the limit", "not in one window", "a clock that is not known", "none"],
)
def test_dead_letters_that_are_not_too_many_trip_nothing(
    found: list[Breaker], now_ms: dict[int, int]
) -> None:
    assert trips(cursors(*found), POLICY, now_ms) == []


def test_what_is_open_and_has_no_limit_any_more_is_closed() -> None:
    opened = Breaker().opened("5@x", 5, POLICY)
    assert trips(cursors(opened, Breaker()), NO_BREAKER, NOW) == [CloseBreaker(cell=CELLS[0])]
