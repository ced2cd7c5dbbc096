"""Messages that get too old, and dead letters that are too many. Timelines as in ``test_tracker``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.cursor import MAX_ERRORS, OTHER_ERRORS, HeldLetters, Lease
from spark_cursor_source.core.marker import Requeue, RestoreState, SaveState
from spark_cursor_source.core.offsets import EMPTY, OFFSET_LIMIT
from spark_cursor_source.core.policy import ExpiredTo, RedeliveryPolicy
from spark_cursor_source.core.tracker import (
    EXPIRED,
    MAX_DELIVERIES,
    MAX_EXPIRED,
    REJECTED,
    CellTracker,
    DeadLetter,
)
from spark_cursor_source.core.ttl import ObservedEnd
from spark_cursor_source.wire import cursor as cursor_wire
from tests.core.timeline import CELL, A, B, Log, dead, delivered_times, offsets, redeliver

# ---- messages that are too old

TTL = RedeliveryPolicy(max_deliveries=3, message_ttl_ms=60_000)
TTL_KEPT = RedeliveryPolicy(max_deliveries=3, message_ttl_ms=60_000, expired_to=ExpiredTo.DEAD_LETTERS)


def test_messages_that_nobody_read_expire_and_are_counted() -> None:
    # 0 L(10)       30 L(15)     60 0 to 10 expire   90 10 to 15 expire
    log = Log(policy=TTL)
    log.log_end(10, at=0)
    assert log.advance(1) == []
    log.log_end(15, at=30)
    assert log.advance(60) == []
    assert (log.state.read_position, log.state.totals.expired) == (0, 0)
    assert log.state.next_event_ms == 60_000
    assert log.advance(60.001) == []
    assert (log.state.read_position, log.state.totals.expired) == (10, 10)
    assert log.state.next_event_ms == 90_000
    assert log.advance(91) == []
    assert (log.state.read_position, log.state.totals.expired, log.state.next_event_ms) == (15, 15, None)
    log.start(offsets((5, 20)), at=92)
    assert log.state.outstanding == offsets((15, 20)), "what has expired is not leased"


def test_messages_that_wait_expire_and_are_not_announced() -> None:
    # 0 S(0-4) L(4) R(0, now) R(1, in 100)     30 S again(2) R(2, now)   60 all of them expire but 3, leased
    log = Log(policy=TTL)
    log.start(offsets((0, 4)), at=0, lease=300)
    log.log_end(4, at=0)
    log.release(offsets(0), at=0)
    log.release(offsets(1), at=0, delay=100)
    assert log.advance(1) == [redeliver(offsets(0), 1)]
    log.release(offsets(2), at=61)
    assert log.advance(61) == []
    assert (log.state.outstanding, log.state.totals.expired) == (offsets(3), 3)
    log.hello(B, at=62)
    assert log.advance(62) == []


@pytest.mark.parametrize(
    "how", ["its lease is over", "it is released", "it is released in a log not read out"]
)
def test_what_is_leased_is_left_to_its_holder_and_expires_instead_of_coming_back(how: str) -> None:
    # 0 S----------100     60 too old   100 expired
    log = Log(policy=TTL)
    log.start(offsets(0, 1), at=0, lease=100)
    log.log_end(2, at=0)
    assert log.advance(70) == []
    assert log.state.outstanding == offsets(0, 1)
    log.end_of(offsets(1), at=80)
    if how == "its lease is over":
        assert log.advance(101) == []
    else:
        log.release(offsets(0), at=90)
        assert log.advance(90 if how == "it is released" else None) == []
    assert (log.state.outstanding, log.state.totals.expired, log.state.totals.acked) == (EMPTY, 1, 1)


def test_a_last_delivery_that_failed_is_a_dead_letter_and_not_expired() -> None:
    log = Log(policy=TTL)
    delivered_times(log, offsets(0), 3)
    log.log_end(1, at=0)
    assert log.advance(61) == [dead(offsets(0), 3, MAX_DELIVERIES)]
    assert log.state.totals.expired == 0


def test_what_has_expired_can_be_kept_as_dead_letters() -> None:
    # 0 S(0-1) R L(5)    60 both kinds expire
    log = Log(policy=TTL_KEPT)
    log.start(offsets(0, 1), at=0)
    log.end_of(offsets(1))
    log.release(offsets(0), at=0, delay=100)
    log.log_end(5, at=0)
    log.advance(0)
    assert log.advance(61) == [dead(offsets(0), 1, EXPIRED), dead(offsets((2, 5)), 0, EXPIRED)]
    totals = log.state.totals
    assert (totals.expired, totals.dead_lettered, totals.acked) == (4, 0, 1)


def test_what_expires_again_after_an_operator_brought_it_back_is_another_dead_letter() -> None:
    # 0 log end 2   61 expired   70 requeue 1: expired   80 restart, seek 0: expired   85 requeue unread 9
    log = Log(policy=TTL_KEPT)
    log.log_end(2, at=0)
    assert log.advance(61) == [dead(offsets((0, 2)), 0, EXPIRED)]
    log.append(Requeue(cell=CELL, offsets=offsets(1)), at=70)
    assert log.advance(71) == [dead(offsets(1), 0, EXPIRED, generation=70)]
    log.tracker = CellTracker.resume(log.state, cell=CELL, policy=TTL_KEPT)
    log.seek(0, at=80)
    log.append(Requeue(cell=CELL, offsets=offsets(9)), at=85)
    assert log.advance(95) == [dead(offsets((0, 2)), 0, EXPIRED, generation=80)]


def test_a_dead_letter_with_a_last_delivery_has_no_generation() -> None:
    log = Log()
    log.seek(0, at=1)
    log.hello(A, at=1)
    log.start(offsets(0), at=2)
    log.reject(offsets(0), at=3)
    (letter,) = log.advance(3)
    assert isinstance(letter, DeadLetter)
    assert (letter.last_delivery_ms, letter.generation_ms) == (2_000, None)


def test_a_long_backlog_becomes_dead_letters_in_portions() -> None:
    log = Log(policy=TTL_KEPT)
    log.log_end(MAX_EXPIRED + 5, at=0)
    assert log.advance(61) == [dead(offsets((0, MAX_EXPIRED)), 0, EXPIRED)]
    event_ms = log.state.next_event_ms
    assert event_ms is not None
    assert event_ms < 61_000, "the rest is due at once"
    assert log.advance(62) == [dead(offsets((MAX_EXPIRED, MAX_EXPIRED + 5)), 0, EXPIRED)]
    assert log.state.next_event_ms is None


def test_an_end_that_no_log_has_neither_stops_nor_slows_the_tracker() -> None:
    log = Log(policy=TTL_KEPT)
    log.log_end(OFFSET_LIMIT, at=0)
    for first in (0, MAX_EXPIRED):
        assert log.advance(61) == [dead(offsets((first, first + MAX_EXPIRED)), 0, EXPIRED)]
    log = Log(policy=TTL)
    log.log_end(OFFSET_LIMIT, at=0)
    for at in (61, 62, 63):  # each time, all offsets expire
        log.seek(0, at=at)
        assert log.advance(at) == []
    assert cursor_wire.decode(cursor_wire.encode(log.state)) == log.state
    assert log.state.totals.expired == 2**63 - 1


def in_portions(log: Log, at: float) -> list[int]:
    """The numbers of dead letters of the batches that are due at once."""
    portions = []
    while not portions or log.state.next_event_ms == 0:
        portions.append(sum(len(one.offsets) for one in log.advance(at) if isinstance(one, DeadLetter)))
    return portions


@pytest.mark.parametrize("how", ["seek", "restore", "restore what waited", "requeue"])
def test_a_long_backlog_that_an_operator_brings_back_expires_in_portions_again(how: str) -> None:
    log, end = Log(policy=TTL_KEPT), 2 * MAX_EXPIRED + 5
    if how == "restore what waited":
        log.start(offsets((0, end)), at=0)
        log.release(offsets((0, end)), at=0)
    log.append(SaveState(cell=CELL, name="a"), at=0)
    log.log_end(end, at=0)
    assert in_portions(log, 61) == [MAX_EXPIRED, MAX_EXPIRED, 5]
    if how == "seek":
        log.seek(0, at=62)
    elif how == "requeue":
        log.append(Requeue(cell=CELL, offsets=offsets((0, end))), at=62)
    else:
        log.append(RestoreState(cell=CELL, name="a"), at=62)
    assert in_portions(log, 63) == [MAX_EXPIRED, MAX_EXPIRED, 5]
    assert (log.state.read_position, log.state.outstanding, log.state.next_event_ms) == (end, EMPTY, None)


def test_a_queue_that_is_read_and_acked_keeps_no_ages() -> None:
    log = Log(policy=TTL)
    log.log_end(10, at=0)
    log.start(offsets((0, 10)), at=1)
    log.advance(1)
    assert log.state.ages.ends == (ObservedEnd(0, 10),)
    log.end_of(offsets((0, 10)), at=2)
    log.advance(2)
    assert (log.state.ages.ends, log.state.next_event_ms) == ((), None)


def test_a_seek_back_brings_no_message_back_that_is_too_old() -> None:
    log = Log(policy=TTL)
    log.log_end(10, at=0)
    log.advance(61)
    log.seek(3, at=62)
    log.advance(62)
    assert (log.state.read_position, log.state.totals.expired) == (10, 17)


@pytest.mark.parametrize("short", [TTL, TTL_KEPT])
def test_a_longer_ttl_holds_for_the_messages_that_were_leased_when_the_shorter_was_over(
    short: RedeliveryPolicy,
) -> None:
    # 0 L(10) S(0-10)   61 too old, but leased | TTL 1,000 s: 62 R   1,000 0 to 10 expire
    log = Log(policy=short)
    log.start(offsets((0, 10)), at=0, lease=300)
    log.log_end(10, at=0)
    log.advance(61)
    log.resume_with(replace(short, message_ttl_ms=1_000_000))
    log.release(offsets((0, 10)), at=62)
    assert log.advance(62) == [redeliver(offsets((0, 10)), 1)]
    log.log_end(10, at=63)
    log.advance(1_063)
    assert log.state.outstanding == offsets((0, 10))
    log.advance(1_063.001)
    assert (log.state.outstanding, log.state.totals.expired) == (EMPTY, 10)


def test_a_seek_back_under_a_longer_ttl_brings_back_what_is_not_too_old_for_it() -> None:
    log = Log(policy=TTL)
    log.log_end(10, at=0)
    log.advance(61)
    log.resume_with(replace(TTL, message_ttl_ms=1_000_000))
    log.seek(0, at=62)
    log.advance(62)
    assert (log.state.read_position, log.state.totals.expired) == (0, 10)


def test_without_a_ttl_the_end_of_the_log_is_nothing_to_a_tracker() -> None:
    log = Log()
    log.log_end(10, at=0)
    log.advance(10**6)
    assert (log.state.read_position, log.state.ages.ends, log.state.next_event_ms) == (0, (), None)


# ---- the breaker

GUARDED = RedeliveryPolicy(
    max_deliveries=2, breaker=BreakerPolicy(limit=2, window_ms=60_000, pause_ms=600_000)
)


def test_more_rejects_than_the_limit_open_the_breaker_and_the_rest_is_held() -> None:
    # 0 S  1 X of 0 to 5: 0 and 1 go, 2 to 5 are held |
    log = Log(policy=GUARDED)
    log.start(offsets((0, 6)), at=0)
    log.reject(offsets((0, 5)), at=1)
    assert log.advance(1) == [dead(offsets(0, 1), 1, REJECTED, "bad")]
    state = log.state
    assert state.held == ((HeldLetters(1, REJECTED, "bad"), offsets((2, 5))),)
    assert (state.breaker.opened_ms, state.breaker.closes_ms) == (1_000, 601_000)
    assert (state.outstanding, state.totals.dead_lettered) == (offsets((2, 6)), 2)
    assert state.delivery_counts() == {1: offsets((2, 6))}
    assert state.next_event_ms == 601_000, "the lease of 5 waits too"


def test_while_the_breaker_is_open_no_lease_runs_out_and_redeliveries_go_on() -> None:
    # 0 S(0-5) | 10 R(0)  20 S(0, 2)   700 C: leases run out
    log = Log(policy=GUARDED)
    log.start(offsets((0, 5)), at=0)
    log.hold("x", at=1)
    log.release(offsets(0), at=10)
    log.release(offsets(1), at=10, delay=20)
    assert log.advance(10) == [redeliver(offsets(0), 1)]
    assert log.advance(31) == [redeliver(offsets(1), 1)], "a delay is no lease"
    log.start(offsets(0), at=31, count=2)
    assert log.advance(500) == []
    assert log.state.leases == (
        (Lease(60_000, 1, A), offsets((2, 5))),
        (Lease(91_000, 2, A, 31_000), offsets(0)),
    )
    log.end_of(offsets(2), at=501)
    log.resume(at=502)
    assert log.advance(502) == [dead(offsets(0), 2, MAX_DELIVERIES, last=31), redeliver(offsets(3, 4), 1)]


def test_a_breaker_closes_by_itself_when_its_pause_is_over_and_what_it_held_goes_out() -> None:
    # 0 S X | held          601 closed: out
    log = Log(policy=GUARDED)
    log.start(offsets((0, 4)), at=0)
    log.reject(offsets((0, 4)), at=1)
    log.advance(1)
    assert log.advance(601) == []
    assert log.advance(601.001) == [dead(offsets(2, 3), 1, REJECTED, "bad")]
    state = log.state
    assert (state.held, state.breaker.is_open, state.totals.dead_lettered) == ((), False, 4)
    assert state.breaker.recent == (), "the rate counts anew"


def test_the_pause_of_a_breaker_begins_when_the_tracker_sees_that_it_is_open() -> None:
    # 0 S X |     tracker down     5000 read     5600 closed: out
    log = Log(policy=GUARDED)
    log.start(offsets((0, 4)), at=0)
    log.reject(offsets((0, 4)), at=1)
    assert log.advance(None) == [dead(offsets(0, 1), 1, REJECTED, "bad")]
    assert log.advance(5_000) == [], (
        "it has been open for no longer than a moment, as far as anybody could see"
    )
    assert log.state.breaker.closes_ms == 5_600_000
    assert log.advance(5_600.001) == [dead(offsets(2, 3), 1, REJECTED, "bad")]


def test_the_operator_closes_a_breaker_in_a_log_that_is_not_read_out() -> None:
    log = Log(policy=GUARDED)
    log.start(offsets((0, 4)), at=0)
    log.reject(offsets((0, 4)), at=1)
    log.resume(at=2)
    assert log.advance(None) == [
        dead(offsets(0, 1), 1, REJECTED, "bad"),
        dead(offsets(2, 3), 1, REJECTED, "bad"),
    ]


def test_what_is_held_ends_with_an_ack_and_is_not_taken_by_a_start() -> None:
    log = Log(policy=GUARDED)
    log.start(offsets((0, 8)), at=0)
    log.reject(offsets((0, 8)), at=1)
    log.start(offsets((2, 8)), at=2, count=2, run=B)
    assert log.state.held == ((HeldLetters(1, REJECTED, "bad"), offsets((2, 8))),)
    log.end_of(offsets(2), at=3)
    log.end_up_to(5, at=3)
    assert (log.state.outstanding, log.state.totals.acked) == (offsets((5, 8)), 3)
    log.hello(B, at=4)
    assert log.advance(4) == [dead(offsets(0, 1), 1, REJECTED, "bad")]
    log.seek(0, at=5)
    log.resume(at=6)
    assert log.advance(6) == []


def test_a_breaker_opens_for_a_trip_once() -> None:
    # 0 H(x) | 1 C  2 H(x): closed  3 H(y) |
    log = Log(policy=GUARDED)
    log.hold("x", at=0)
    log.resume(at=1)
    log.hold("x", at=2)
    assert not log.state.breaker.is_open
    log.hold("y", at=3)
    assert log.state.breaker.opened_ms == 3_000


def test_leases_that_run_out_for_the_last_time_count_as_rejects_do() -> None:
    log = Log(policy=GUARDED)
    for offset in range(3):
        log.start(offsets(offset), at=1 + offset, count=2)
    assert log.advance(100) == [
        dead(offsets(0), 2, MAX_DELIVERIES, last=1),
        dead(offsets(1), 2, MAX_DELIVERIES, last=2),
    ]
    assert log.state.held == ((HeldLetters(2, MAX_DELIVERIES, "", 3_000), offsets(2)),)


def test_while_the_breaker_is_open_nothing_is_too_old() -> None:
    policy = RedeliveryPolicy(message_ttl_ms=60_000, breaker=BreakerPolicy(limit=1, pause_ms=None))
    log = Log(policy=policy)
    log.log_end(10, at=0)
    log.hold("x", at=1)
    log.advance(1_000)
    assert (log.state.read_position, log.state.next_event_ms) == (0, None), "and no batch runs for it"
    log.resume(at=1_001)
    log.advance(1_001)
    assert (log.state.read_position, log.state.totals.expired) == (10, 10)


def test_expired_messages_do_not_trip_the_breaker() -> None:
    policy = RedeliveryPolicy(
        message_ttl_ms=60_000, expired_to=ExpiredTo.DEAD_LETTERS, breaker=BreakerPolicy(limit=1)
    )
    log = Log(policy=policy)
    log.log_end(10, at=0)
    assert log.advance(61) == [dead(offsets((0, 10)), 0, EXPIRED)]
    assert not log.state.breaker.is_open


def test_errors_without_number_are_not_all_kept() -> None:
    log = Log(policy=GUARDED)
    log.start(offsets((0, MAX_ERRORS + 10)), at=0)
    log.hold("x", at=0)
    for offset in range(MAX_ERRORS + 10):
        log.reject(offsets(offset), at=1, reason=f"order {offset}")
    held = dict(log.state.held)
    assert len(held) == MAX_ERRORS + 1
    assert held[HeldLetters(1, REJECTED, OTHER_ERRORS)] == offsets((MAX_ERRORS, MAX_ERRORS + 10))
    assert held[HeldLetters(1, REJECTED, "order 7")] == offsets(7)
