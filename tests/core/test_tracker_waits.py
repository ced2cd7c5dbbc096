"""Messages that are given back, and wait: one rule a test. Timelines as in ``test_tracker``."""

from __future__ import annotations

import pytest

from spark_cursor_source.core.cursor import Available, Delayed, Lease
from spark_cursor_source.core.marker import (
    MAX_LEASE_MS,
)
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.core.policy import StepBackoff
from spark_cursor_source.core.tracker import (
    MAX_DELIVERIES,
)
from tests.core.timeline import A, B, Log, available_log, dead, delivered_times, offsets, redeliver

# ---- leased + Release


def test_a_release_now_makes_a_message_available_at_once() -> None:
    # 0 S----60
    #   10 R, announced although the log goes on
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.release(offsets(0), at=10)
    assert log.advance(None) == [redeliver(offsets(0), 1)]
    assert (log.state.leased, log.state.waiting) == (offsets(1), offsets(0))


def test_a_release_with_a_delay_waits_for_it() -> None:
    # 0 S----60
    #   10 R(30)----40 due
    log = Log()
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=10, delay=30)
    assert log.state.delayed == ((Delayed(40_000, 1, False), offsets(0)),)
    assert log.advance(40) == []
    assert log.advance(40.001) == [redeliver(offsets(0), 1)]


def test_a_release_without_a_delay_waits_for_the_backoff_of_its_delivery() -> None:
    # 0 S(1)  0 R--1    S(2)  2 R----12
    log = Log(backoff=StepBackoff(delays_ms=(1_000, 10_000)))
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=0, delay=None)
    assert log.advance(2) == [redeliver(offsets(0), 1)]
    log.start(offsets(0), at=2, count=2)
    log.release(offsets(0), at=2, count=2, delay=None)
    assert log.advance(12) == []
    assert log.advance(13) == [redeliver(offsets(0), 2)]


def test_a_release_now_waits_for_no_backoff() -> None:
    # 0 S----60
    #   10 R(0), although the backoff is 30
    log = Log(backoff=StepBackoff(delays_ms=(30_000,)))
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=10, delay=0)
    assert log.advance(10) == [redeliver(offsets(0), 1)]


@pytest.mark.parametrize("said", ["boom", ""])
def test_a_release_of_the_last_delivery_makes_a_dead_letter(said: str) -> None:
    # 0 S(3 of 3)  5 R dead letter
    log = Log(max_deliveries=3)
    delivered_times(log, offsets(0), 3)
    log.release(offsets(0), at=5, count=3, delay=600, reason=said)
    assert log.advance(None) == [dead(offsets(0), 3, MAX_DELIVERIES, said)]
    assert log.state.outstanding == EMPTY
    assert log.state.totals.dead_lettered == 1


def test_a_release_of_an_old_delivery_leaves_the_present_lease_alone() -> None:
    # 0 S(A, 1)----60 due
    #                 61 S(B, 2)----121
    #                      70 R(1), late, by A
    log = Log()
    log.start(offsets(0), at=0)
    log.advance(61)
    log.start(offsets(0), at=61, count=2, run=B)
    log.release(offsets(0), at=70, count=1)
    assert log.advance(70) == []
    assert log.state.leases == ((Lease(121_000, 2, B, 61_000), offsets(0)),)


def test_a_release_of_what_is_available_changes_nothing() -> None:
    # 0 S----60 due
    #                 61 R(1), with a delay that would hold it up
    log = Log()
    log.start(offsets(0), at=0)
    log.advance(61)
    log.release(offsets(0), at=61, delay=600)
    assert log.advance(62) == []
    assert log.state.available == ((Available(1, False, lapsed=True), offsets(0)),)


# ---- leased + Release of what is not due


def test_what_is_not_due_counts_as_never_delivered_and_comes_back_when_it_is() -> None:
    # 0 S of 0 to 2
    #    1 R of 1, due at 5 .... 5 available
    log = Log(max_deliveries=1)
    log.start(offsets((0, 3)), at=0)
    log.not_due(offsets(1), at=1, due=5)
    assert log.state.delayed == ((Delayed(5_000, 0, False), offsets(1)),)
    assert log.state.totals.delivered == 2
    assert log.advance(5) == []
    assert log.advance(5.001) == [redeliver(offsets(1), 0)]
    log.start(offsets(1), at=6)
    assert log.state.delivery_counts() == {1: offsets((0, 3))}


def test_what_is_due_by_now_is_available_at_once() -> None:
    # 0 S of what is due at 5     9 R
    log = Log()
    log.start(offsets(0), at=0)
    log.not_due(offsets(0), at=9, due=5)
    assert log.advance(None) == [redeliver(offsets(0), 0)]


def test_what_is_due_in_years_comes_back_after_twelve_hours() -> None:
    log = Log()
    log.start(offsets(0), at=0)
    log.not_due(offsets(0), at=1, due=10**9)
    assert log.state.next_event_ms == 1_000 + MAX_LEASE_MS


def test_a_late_release_of_what_was_not_due_leaves_its_next_delivery_alone() -> None:
    # 0 S(1) R due at 5   5.5 S(1)
    #                         6 R due at 5
    log = Log()
    log.start(offsets(0), at=0)
    log.not_due(offsets(0), at=0, due=5)
    log.advance(5.2)
    log.start(offsets(0), at=5.2)
    log.not_due(offsets(0), at=6, due=5)
    assert log.advance(6) == []
    assert log.state.leased == offsets(0)


def test_the_death_of_a_run_before_its_release_is_no_delivery_either() -> None:
    # 0 S(A, 1)  run A dies
    #    10 H(B) S(B, 2)  R due at 90 .... 90 available, never delivered
    log = Log(max_deliveries=2)
    log.start(offsets((0, 10)), at=0)
    log.hello(B, at=10)
    log.start(offsets((0, 10)), at=10, count=2, run=B)
    log.not_due(offsets((0, 10)), at=11, due=90, count=2)
    assert log.advance(91) == [redeliver(offsets((0, 10)), 0, run=B)]


def test_what_was_never_delivered_is_announced_once_to_a_run() -> None:
    # 0 S R due at 0   1 H(A)   2 H(B)
    log = Log()
    log.hello(A)
    log.start(offsets(0, 1), at=0)
    log.not_due(offsets(0), at=0.5, due=0)
    log.release(offsets(1), at=0.5)
    assert log.advance(None) == [redeliver(offsets(0), 0), redeliver(offsets(1), 1)]
    log.hello(A, at=1)
    assert log.advance(None) == [redeliver(offsets(1), 1)]
    log.hello(B, at=2)
    assert log.advance(None) == [redeliver(offsets(0), 0, run=B), redeliver(offsets(1), 1, run=B)]


def test_the_end_of_a_whole_batch_leaves_what_was_never_delivered() -> None:
    # 0 S of 0 to 4   1 R of 1 due at 50, R of 2 at once   2 E of 0 to 2 by the run   3 U by the run
    log = Log()
    log.start(offsets((0, 5)), at=0)
    log.not_due(offsets(1), at=1, due=50)
    log.release(offsets(2), at=1)
    log.end_of(offsets((0, 3)), at=2, run=A)
    assert log.state.outstanding == offsets(1, 3, 4)
    assert (log.state.totals.acked, log.state.totals.unknown_ends) == (2, 0)
    log.end_up_to(5, at=3, run=A)
    assert log.state.outstanding == offsets(1)
    log.end_of(offsets(1), at=4)
    assert log.state.outstanding == EMPTY, "somebody who names it may end it"


# ---- delayed


def delayed_log() -> Log:
    """Offset 0, delivered once and delayed from 0 to 30."""
    log = Log()
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=0, delay=30)
    return log


def test_an_end_ends_what_is_delayed() -> None:
    # 0 S R(30)  5 E
    log = delayed_log()
    log.end_of(offsets(0), at=5)
    assert log.advance(100) == []
    assert log.state.totals.acked == 1


def test_an_ack_up_to_ends_what_is_delayed() -> None:
    # 0 S R(30)  5 U(1)
    log = delayed_log()
    log.end_up_to(1, at=5)
    assert log.advance(100) == []
    assert log.state.totals.acked == 1


def test_a_start_takes_what_is_delayed() -> None:
    # 0 S R(30)  5 S(B)----65
    log = delayed_log()
    log.start(offsets(0), at=5, run=B)
    assert log.state.leases == ((Lease(65_000, 2, B, 5_000), offsets(0)),)
    assert log.state.delayed == ()


def test_a_start_at_the_last_delivery_leaves_what_is_delayed() -> None:
    # 0 S(2 of 5) R(30)  limit lowered to 2  5 S(B)   31 dead letter
    log = Log(max_deliveries=5)
    delivered_times(log, offsets(0), 2)
    log.release(offsets(0), at=0, count=2, delay=30)
    log.restart(max_deliveries=2)
    log.start(offsets(0), at=5, count=3, run=B)
    assert log.state.delayed == ((Delayed(30_000, 2, False), offsets(0)),)
    assert log.advance(31) == [dead(offsets(0), 2, MAX_DELIVERIES)]


# ---- available


def test_what_is_available_is_announced_once() -> None:
    # 0 S----60 due, announced at 61 and not again
    log = available_log()
    assert [log.advance(second) for second in (61, 62, 10_000)] == [[], [], []]
    assert log.state.totals.redelivered == 1


def test_what_is_available_stays_so_until_a_start_takes_it() -> None:
    # 0 S----60 due                                             one year later: still there
    log = available_log()
    assert log.advance(31_536_000) == []
    assert log.state.available == ((Available(1, False, lapsed=True), offsets(0)),)
    log.start(offsets(0), at=31_536_000, count=2)
    assert log.state.leases == ((Lease(31_536_060_000, 2, A, 31_536_000_000), offsets(0)),)


def test_an_end_ends_what_is_available() -> None:
    # 0 S----60 due
    #                 61 E, late, and good
    log = available_log()
    log.end_of(offsets(0), at=61)
    log.hello(B, at=62)
    assert log.advance(100) == []
    assert (log.state.outstanding, log.state.totals.acked) == (EMPTY, 1)


def test_an_end_in_the_batch_of_the_announcement_takes_it_back() -> None:
    # 0 S  1 R  2 E, all in one batch
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.release(offsets((0, 2)), at=1)
    log.end_of(offsets(0), at=2)
    assert log.advance(None) == [redeliver(offsets(1), 1)]


def test_a_start_in_the_batch_of_the_announcement_takes_it_back() -> None:
    # 0 S  1 R  2 S(2), all in one batch
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.release(offsets((0, 2)), at=1)
    log.start(offsets(0), at=2, count=2)
    assert log.advance(None) == [redeliver(offsets(1), 1)]
