"""How old messages are at least, from ends of their log; a list of all that was ever seen is the judge."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.ttl import MessageAges, ObservedEnd, look_every_ms

TTL_MS = 60_000
NONE_KEPT = MessageAges(ttl_ms=TTL_MS)


def ages(*ends: tuple[int, int]) -> MessageAges:
    known = NONE_KEPT
    for at_ms, position in ends:
        known = known.seen(at_ms, position)
    return known


def test_what_is_below_an_end_is_too_old_when_the_ttl_is_over_and_not_before() -> None:
    # 0 end 10   30 end 25   60 ... 90 ...
    known = ages((0, 10), (30_000, 25))
    assert known.expire(TTL_MS).expired_below == 0
    assert known.expire(TTL_MS + 1).expired_below == 10
    assert known.expire(TTL_MS + 1).ends == (ObservedEnd(30_000, 25),)
    assert known.expire(95_000).expired_below == 25
    assert known.expire(95_000).next_ms is None


def test_an_end_that_has_not_moved_says_nothing_new() -> None:
    known = ages((0, 10))
    assert known.seen(30_000, 10) is known
    assert known.seen(30_000, 9) is known
    old = known.expire(TTL_MS + 1)
    assert old.seen(TTL_MS + 2, 10) is old


def test_without_a_ttl_nothing_is_kept() -> None:
    assert MessageAges().seen(0, 10) == MessageAges() == ages((0, 10)).of_ttl(None)
    assert (MessageAges().expire(10**15), MessageAges().next_ms) == (MessageAges(), None)


def test_another_ttl_holds_for_what_was_seen_before() -> None:
    known = ages((0, 10)).of_ttl(1_000)
    assert (known.next_ms, known.expire(1_001).expired_below) == (1_000, 10)


def test_a_longer_ttl_holds_for_what_was_too_old_before() -> None:
    # 0 end 10   30 end 25   61 the first ten are too old, and the TTL is doubled
    longer = ages((0, 10), (30_000, 25)).expire(TTL_MS + 1).of_ttl(2 * TTL_MS)
    assert longer.expire(TTL_MS + 1).expired_below == 0
    assert longer.expire(30_000 + 2 * TTL_MS).expired_below == 0
    assert longer.expire(30_001 + 2 * TTL_MS).expired_below == 25
    assert ages((0, 10)).expire(TTL_MS + 1).of_ttl(TTL_MS).expired_below == 10, "the same TTL"


def test_the_end_of_a_log_whose_messages_were_all_too_old_tells_anew_under_a_longer_ttl() -> None:
    longer = ages((0, 10)).expire(TTL_MS + 1).of_ttl(2 * TTL_MS).seen(TTL_MS + 1, 10)
    assert longer.next_ms == 3 * TTL_MS + 1


def test_what_tells_only_of_messages_that_are_gone_is_forgotten() -> None:
    known = ages((0, 10), (30_000, 25))
    assert known.without(9) is known
    assert known.without(10).ends == (ObservedEnd(30_000, 25),)
    assert known.without(25).ends == ()


def test_a_clock_that_goes_back_makes_no_message_older() -> None:
    known = ages((50_000, 10), (20_000, 25))
    assert known.expire(110_000).expired_below == 0
    assert known.expire(110_001).expired_below == 25


@pytest.mark.parametrize(("ttl_ms", "every_ms"), [(1_000, 1_000), (20_000, 1_000), (3_600_000, 180_000)])
def test_a_log_is_looked_at_a_twentieth_of_the_ttl_apart_and_a_second_at_least(
    ttl_ms: int, every_ms: int
) -> None:
    assert look_every_ms(ttl_ms) == every_ms


looks = st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 5)), max_size=150)


@settings(max_examples=200, deadline=None)
@given(looks, st.integers(0, 3 * TTL_MS), st.booleans())
def test_expiry_is_never_early_and_at_most_a_twentieth_late_and_little_is_kept(
    steps: list[tuple[int, int]], after_ms: int, often: bool
) -> None:
    known, all_ends, now_ms, position = NONE_KEPT, [(0, 0)], 0, 0
    for pause_ms, more in steps:
        now_ms += pause_ms
        position += more
        known = known.seen(now_ms, position)
        all_ends.append((now_ms, position))
        if often:
            known = known.expire(now_ms)
        assert len(known.ends) <= 64
    now_ms += after_ms
    expired = known.expire(now_ms).expired_below
    assert expired <= max([0, *(end for at_ms, end in all_ends if at_ms + TTL_MS < now_ms)])
    assert expired >= max([0, *(end for at_ms, end in all_ends if at_ms + TTL_MS * 21 // 20 < now_ms)])
