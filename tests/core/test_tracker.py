"""The life cycle of a message, one rule a test; times are seconds of the broker's clock.

Timelines: ``S`` Start, ``E`` End, ``K`` KeepAlive, ``R`` Release, ``X`` Reject, ``U`` ack up to, ``H`` Hello,
``L`` the end of the log, ``|`` the breaker opens, ``C`` it is told to close.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cursor_source.core.breaker import Breaker, BreakerPolicy
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, Lease
from spark_cursor_source.core.marker import (
    MAX_LEASE_MS,
    End,
    Hello,
    Seek,
)
from spark_cursor_source.core.offsets import EMPTY, OFFSET_LIMIT
from spark_cursor_source.core.policy import StepBackoff
from spark_cursor_source.core.tracker import (
    MAX_DELIVERIES,
    REJECTED,
    CellTracker,
    DeadLetter,
)
from tests.core.timeline import BEGINNING, CELL, A, B, Log, dead, delivered_times, offsets, redeliver

# ---- unseen


def test_a_start_leases_what_was_unseen() -> None:
    # 0 S----60
    log = Log()
    log.start(offsets((0, 10)), at=0)
    assert log.advance(1) == []
    assert log.state.leases == ((Lease(60_000, 1, A), offsets((0, 10))),)
    assert log.state.read_position == 10
    assert log.state.owner == A
    assert log.state.totals.delivered == 10


def test_a_start_that_knows_a_higher_count_is_believed() -> None:
    # 0 S(4)----60, and the tracker never saw the first three
    log = Log(max_deliveries=5)
    log.start(offsets(0), at=0, count=4)
    assert log.state.leases == ((Lease(60_000, 4, A), offsets(0)),)


@pytest.mark.parametrize("what", ["end", "release", "reject", "keep_alive"])
def test_an_unseen_message_stays_unseen_whatever_is_said_about_it(what: str) -> None:
    # 0 E, R, X or K of a message that was not started
    log = Log()
    {
        "end": lambda: log.end_of(offsets(5)),
        "release": lambda: log.release(offsets(5), at=0),
        "reject": lambda: log.reject(offsets(5)),
        "keep_alive": lambda: log.keep_alive(offsets(5), at=0, count=1),
    }[what]()
    assert log.advance(1_000) == []
    assert (log.state.outstanding, log.state.read_position) == (EMPTY, 0)
    totals = log.state.totals
    assert (totals.unknown_ends, totals.unknown_settlements) == ((1, 0) if what == "end" else (0, 1))


@pytest.mark.parametrize("what", ["release", "reject", "keep_alive"])
def test_what_is_settled_for_an_earlier_delivery_is_counted(what: str) -> None:
    # 0 S(1) of 0 to 3----60 due  61 S(2) of 0 and 1  62 R, X or K of 0 to 3, for delivery 1
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.advance(61)
    log.start(offsets((0, 2)), at=61, count=2)
    {
        "release": lambda: log.release(offsets((0, 3)), at=62),
        "reject": lambda: log.reject(offsets((0, 3)), at=62),
        "keep_alive": lambda: log.keep_alive(offsets((0, 3)), at=62, count=1),
    }[what]()
    assert log.state.totals.unknown_settlements == 3
    assert log.state.leased == offsets((0, 2))


def test_an_extension_of_what_is_acked_is_not_counted_for_they_may_change_places() -> None:
    # 0 S of 0 and 1----60   1 E of 0   2 K of both, by who holds them
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.end_of(offsets(0), at=1)
    log.keep_alive(offsets((0, 2)), at=2, count=1)
    assert log.state.totals.unknown_settlements == 0


def test_what_a_program_keeps_alive_by_itself_is_not_counted() -> None:
    # 0 S of 0 and 1----60   1 E of 0   2 K of the whole batch, by its run
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.end_of(offsets(0), at=1)
    log.keep_alive(offsets((0, 2)), at=2, run=A)
    assert log.state.totals.unknown_settlements == 0


def test_an_offset_that_holds_no_message_is_neither_delivered_nor_acked() -> None:
    # 0 S of 0 to 2   1 E of 1, where there is no message, twice   2 E of 0 and 2
    log = Log()
    log.start(offsets((0, 3)), at=0)
    for _ in range(2):
        log.append(End(cell=CELL, offsets=offsets(1), no_message=True), at=1)
    log.end_of(offsets(0, 2), at=2)
    totals = log.state.totals
    assert (totals.delivered, totals.acked, totals.gaps, totals.unknown_ends) == (2, 2, 1, 0)
    assert log.state.mark_delete == 2


def test_an_unseen_message_below_an_ack_up_to_is_gone() -> None:
    # 0 U(10)  1 S of 5 to 15: only 10 to 15 are new
    log = Log()
    log.end_up_to(10)
    log.start(offsets((5, 15)), at=1)
    assert log.state.outstanding == offsets((10, 15))


# ---- leased + End


def test_an_end_ends_what_is_leased_and_leaves_a_hole() -> None:
    # 0 S----60
    #    1 E of 3 to 5
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.end_of(offsets((3, 5)), at=1)
    assert log.state.outstanding == offsets((0, 3), (5, 10))
    assert (log.state.mark_delete, log.state.ack_holes) == (-1, offsets((3, 5)))
    assert log.advance(61) == [redeliver(offsets((0, 3), (5, 10)), 1)]


def test_the_mark_delete_position_follows_the_first_message_that_is_outstanding() -> None:
    # 0 S----60
    #    1 E of 0 to 4   2 E of 7   3 E of the rest
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.end_of(offsets((0, 4)), at=1)
    assert (log.state.mark_delete, log.state.ack_holes) == (3, EMPTY)
    log.end_of(offsets(7), at=2)
    assert (log.state.mark_delete, log.state.ack_holes) == (3, offsets(7))
    log.end_of(offsets((4, 10)), at=3)
    assert (log.state.mark_delete, log.state.ack_holes) == (9, EMPTY)
    assert log.state.totals.acked == 10
    assert log.state.totals.unknown_ends == 1, "7 was acked twice"


def test_a_second_end_is_counted_and_no_error() -> None:
    # 0 S  1 E  2 E
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.end_of(offsets((0, 3)), at=1)
    log.end_of(offsets((0, 3)), at=2)
    assert log.state.totals.acked == log.state.totals.unknown_ends == 3


def test_an_end_counts_whoever_holds_the_lease() -> None:
    # 0 S(A)----60 due
    #                 61 S(B)    62 E, by A
    log = Log()
    log.start(offsets(0), at=0)
    log.advance(61)
    log.start(offsets(0), at=61, count=2, run=B)
    log.end_of(offsets(0), at=62)
    assert log.state.outstanding == EMPTY


def test_an_end_in_the_same_batch_comes_before_the_end_of_the_lease() -> None:
    # 0 S----60       (the tracker is down)      1,000 reads E of 30, all of it in one batch
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.end_of(offsets(0), at=30)
    assert log.advance(1_000) == [redeliver(offsets(1), 1)]


# ---- leased + Start


def test_a_start_of_another_run_is_another_delivery() -> None:
    # 0 S(A)----60
    #      30 S(B)----90
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.start(offsets((0, 2)), at=30, count=1, run=B)
    assert log.state.leases == ((Lease(90_000, 2, B, 30_000), offsets((0, 2))),)
    assert log.state.totals.delivered == 4


def test_the_higher_count_of_a_start_is_believed_of_a_known_message_too() -> None:
    # 0 S(A, 1)----60
    #      30 S(B, 4)----90, and the tracker never saw 2 and 3
    log = Log(max_deliveries=9)
    log.start(offsets(0), at=0)
    log.start(offsets(0), at=30, count=4, run=B)
    assert log.state.leases == ((Lease(90_000, 4, B, 30_000), offsets(0)),)


def test_a_second_start_of_the_same_delivery_moves_the_deadline_and_nothing_else() -> None:
    # 0 S(A, 1)----60
    #      30 S(A, 1)----90
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.start(offsets((0, 2)), at=30)
    assert log.state.leases == ((Lease(90_000, 1, A), offsets((0, 2))),)
    assert log.state.totals.delivered == 2


def test_a_start_at_the_last_delivery_takes_nothing() -> None:
    # 0 S(3 of 3)----60 dead letter
    #      30 S(B)
    log = Log(max_deliveries=3)
    delivered_times(log, offsets(0), 3)
    log.start(offsets(0), at=30, count=3, run=B)
    assert log.state.leases == ((Lease(60_000, 3, A), offsets(0)),)
    assert log.advance(61) == [dead(offsets(0), 3, MAX_DELIVERIES)]


def test_a_start_of_some_of_a_group_parts_it() -> None:
    # 0 S of 0 to 10----60
    #      30 S(B) of 4 to 12----90
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.start(offsets((4, 12)), at=30, run=B)
    assert log.state.leases == (
        (Lease(60_000, 1, A), offsets((0, 4))),
        (Lease(90_000, 1, B, 30_000), offsets((10, 12))),
        (Lease(90_000, 2, B, 30_000), offsets((4, 10))),
    )


# ---- leased + KeepAlive


def test_a_planners_keep_alive_extends_all_leases_of_its_run_and_no_others() -> None:
    # 0 S(A) of 0, S(B) of 1----60
    #      30 K(A)----90
    log = Log()
    log.start(offsets(0), at=0, run=A)
    log.start(offsets(1), at=0, run=B)
    log.keep_alive(offsets((0, 2)), at=30, run=A)
    assert log.state.leases == ((Lease(60_000, 1, B), offsets(1)), (Lease(90_000, 1, A), offsets(0)))


def test_a_planners_keep_alive_never_brings_a_deadline_nearer() -> None:
    # 0 S----600
    #    1 K----61
    log = Log()
    log.start(offsets(0), at=0, lease=600)
    log.keep_alive(offsets(0), at=1, lease=60, run=A)
    assert log.state.leases[0][0].deadline_ms == 600_000


def test_a_holders_keep_alive_sets_the_deadline_either_way() -> None:
    # 0 S----60
    #    1 K(1)--11
    log = Log()
    log.start(offsets(0), at=0)
    log.keep_alive(offsets(0), at=1, lease=10, count=1)
    assert log.state.leases[0][0].deadline_ms == 11_000
    log.keep_alive(offsets(0), at=2, lease=100, count=1)
    assert log.state.leases[0][0].deadline_ms == 102_000


def test_a_holders_keep_alive_counts_for_its_delivery_only() -> None:
    # 0 S(1)  1 R  2 S(2)----62
    #                 3 K(1)
    log = Log()
    delivered_times(log, offsets(0), 2)
    log.keep_alive(offsets(0), at=3, lease=3_600, count=1)
    assert log.state.leases == ((Lease(60_000, 2, A), offsets(0)),)


def test_a_keep_alive_moves_no_message_that_is_available() -> None:
    # 0 S----60 due
    #                 61 K
    log = Log()
    log.start(offsets(0), at=0)
    log.advance(61)
    log.keep_alive(offsets(0), at=61, run=A)
    assert log.state.available == ((Available(1, False, lapsed=True), offsets(0)),)


def test_keep_alives_hold_a_lease_for_as_long_as_they_come() -> None:
    # 0 S----60
    #     20 K  40 K  60 K ... 600 K----660 due
    log = Log()
    log.start(offsets(0), at=0)
    for second in range(20, 601, 20):
        log.keep_alive(offsets(0), at=second, run=A)
        assert log.advance(second) == []
    assert log.advance(660) == []
    assert log.advance(660.001) == [redeliver(offsets(0), 1)]


# ---- leased + Reject


def test_a_reject_makes_a_dead_letter_with_its_reason() -> None:
    # 0 S----60
    #    1 X
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.reject(offsets(1), at=1, reason="no such customer")
    assert log.advance(None) == [dead(offsets(1), 1, REJECTED, "no such customer")]
    assert log.state.outstanding == offsets(0, 2)
    assert log.state.totals.dead_lettered == 1
    assert log.advance(None) == [], "it is said once"


def test_a_reject_of_an_old_delivery_is_ignored() -> None:
    # 0 S(1)  R  S(2)----60
    #              5 X(1)
    log = Log()
    delivered_times(log, offsets(0), 2)
    log.reject(offsets(0), at=5, count=1)
    assert log.advance(None) == []
    assert log.state.leased == offsets(0)


def test_rejects_come_out_in_the_order_of_the_leases_whatever_the_order_of_the_starts() -> None:
    # 0 S of 1----90   1 S of 0----61   2 X of both
    log = Log()
    log.start(offsets((0, 2)), at=0, lease=90)
    log.keep_alive(offsets(0), at=0, lease=61, count=1)
    log.reject(offsets(0, 1), at=2)
    assert log.advance(None) == [dead(offsets(0), 1, REJECTED, "bad"), dead(offsets(1), 1, REJECTED, "bad")]


# ---- what a dead letter knows


def test_a_dead_letter_knows_its_first_and_its_last_delivery() -> None:
    # 1 S of 0 and 1   2.1 S of 2   9 S(2) of 0 to 2 ..... 69 dead letters
    log = Log(max_deliveries=2)
    log.start(offsets(0, 1), at=1)
    log.start(offsets(2), at=2.1)
    log.release(offsets((0, 3)), at=3)
    log.advance(None)
    log.start(offsets((0, 3)), at=9, count=2)
    (letter,) = log.advance(70)
    assert isinstance(letter, DeadLetter)
    assert [letter.first_deliveries.at(offset) for offset in (0, 1, 2)] == [1_000, 1_000, 2_250]
    assert (letter.last_delivery_ms, letter.error) == (9_000, "")


def test_what_a_lost_state_delivered_is_not_known() -> None:
    log = Log(max_deliveries=2)
    log.start(offsets(1), at=2, count=2)
    log.reject(offsets(1), at=3, count=2)
    (letter,) = log.advance(None)
    assert isinstance(letter, DeadLetter)
    assert (letter.first_deliveries.at(1), letter.last_delivery_ms) == (None, 2_000)


def test_the_times_of_first_deliveries_are_forgotten_with_their_messages() -> None:
    log = Log()
    for number in range(5):
        log.start(offsets(number), at=10 + number)
    assert len(log.state.first_deliveries.steps) == 5
    log.end_of(offsets((0, 3)))
    log.advance(None)
    assert log.state.first_deliveries.steps == ((3, 13_000), (4, 14_000))
    log.seek(1)
    assert log.state.first_deliveries.steps == ()


# ---- leased + time


@pytest.mark.parametrize(("now", "due"), [(60, False), (60.001, True)])
def test_a_deadline_has_passed_when_now_is_after_it(now: float, due: bool) -> None:
    # 0 S----60 (due after it)
    log = Log()
    log.start(offsets(0), at=0)
    assert log.advance(now) == ([redeliver(offsets(0), 1)] if due else [])


def test_leases_that_end_at_about_the_same_time_share_a_deadline_that_is_never_early() -> None:
    # 0.001 S----60.001 -> 60.2
    log = Log()
    log.start(offsets(0), at=0.001)
    log.start(offsets(1), at=0.199)
    log.start(offsets(2), at=0.2)
    assert log.state.leases == ((Lease(60_200, 1, A, 250), offsets((0, 3))),)


def test_a_lease_that_is_over_waits_for_the_backoff_of_its_delivery() -> None:
    # 0 S(1)----60--70 due
    log = Log(backoff=StepBackoff(delays_ms=(10_000,)))
    log.start(offsets(0), at=0)
    assert log.advance(61) == []
    assert log.state.delayed == ((Delayed(70_000, 1, False, lapsed=True), offsets(0)),)
    assert log.advance(71) == [redeliver(offsets(0), 1)]


def test_messages_that_were_leased_apart_wait_differently_long_where_there_is_a_jitter() -> None:
    # 0 S(1)----60--60..160 due, each group at its time
    log = Log(backoff=StepBackoff(delays_ms=(100_000,)), jitter=1.0)
    groups = [offsets((n, n + 10)) for n in range(0, 50, 10)]
    for group in groups:
        log.start(group, at=0)
        log.release(group, at=0, delay=None)
    due = {delay.due_ms: waiting for delay, waiting in log.state.delayed}
    assert sorted(due.values(), key=lambda waiting: waiting.first or 0) == groups
    assert all(0 <= at <= 100_200 for at in due)
    assert log.advance(101) == [redeliver(offsets((0, 50)), 1)]


def test_a_backoff_counts_from_the_deadline_however_late_the_tracker_looks() -> None:
    # 0 S(1)----60--70 due      500 the first batch
    log = Log(backoff=StepBackoff(delays_ms=(10_000,)))
    log.start(offsets(0), at=0)
    assert log.advance(500) == [redeliver(offsets(0), 1)]


def test_the_last_lease_makes_a_dead_letter() -> None:
    # 0 S(2 of 2)----60 dead letter
    log = Log(max_deliveries=2, backoff=StepBackoff(delays_ms=(10_000,)))
    delivered_times(log, offsets(0), 1)
    log.start(offsets(0), at=0, count=2, run=B)
    assert log.advance(61) == [dead(offsets(0), 2, MAX_DELIVERIES)]
    assert log.advance(1_000) == []


def test_without_a_limit_a_message_comes_back_for_ever() -> None:
    # 0 S(1000)----60 due
    log = Log(max_deliveries=None)
    log.start(offsets(0), at=0, count=1_000)
    assert log.advance(61) == [redeliver(offsets(0), 1_000)]


def test_leases_do_not_run_out_while_the_log_has_more_markers_to_read() -> None:
    # 0 S----60      (settled without a time)       1,000 E
    log = Log()
    log.start(offsets(0), at=0)
    assert log.advance(None) == []
    log.end_of(offsets(0), at=1_000)
    assert log.advance(2_000) == []


def test_a_lease_longer_than_twelve_hours_is_cut() -> None:
    # 0 S(24 h)----12 h
    log = Log()
    log.start(offsets(0), at=0, lease=24 * 3_600)
    assert log.state.leases[0][0].deadline_ms == MAX_LEASE_MS
    log.keep_alive(offsets(0), at=1, lease=24 * 3_600, run=A)
    assert log.state.leases[0][0].deadline_ms == MAX_LEASE_MS + 1_000


def test_a_delay_longer_than_twelve_hours_is_cut() -> None:
    # 0 S  0 R(24 h)----12 h
    log = Log()
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=0, delay=24 * 3_600)
    assert log.state.delayed[0][0].due_ms == MAX_LEASE_MS


# ---- gone


def test_no_start_revives_what_is_acked() -> None:
    # 0 S  1 E  2 S(B), which the planner replays
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.end_of(offsets(1), at=1)
    log.start(offsets((0, 3)), at=2, run=B)
    assert log.state.outstanding == offsets(0, 2)
    assert log.state.ack_holes == offsets(1)


def test_no_start_revives_a_dead_letter() -> None:
    # 0 S  1 X  2 S(B)
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.reject(offsets(1), at=1)
    log.start(offsets((0, 3)), at=2, run=B)
    assert log.state.outstanding == offsets(0, 2)


@pytest.mark.parametrize("what", ["release", "reject", "keep_alive", "end"])
def test_what_is_gone_stays_gone(what: str) -> None:
    # 0 S  1 E  2 R, X, K or E
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.end_of(offsets(0), at=1)
    {
        "release": lambda: log.release(offsets(0), at=2),
        "reject": lambda: log.reject(offsets(0), at=2),
        "keep_alive": lambda: log.keep_alive(offsets(0), at=2),
        "end": lambda: log.end_of(offsets(0), at=2),
    }[what]()
    assert log.advance(3) == []
    assert log.state.outstanding == offsets(1)


# ---- ack up to


def test_an_ack_up_to_ends_every_offset_below_its_position() -> None:
    # 0 S of 0 to 10   1 U(6): leased, delayed and available alike
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.release(offsets(2), at=0)
    log.release(offsets(4), at=0, delay=30)
    log.end_up_to(6, at=1)
    assert log.advance(2) == []
    assert (log.state.outstanding, log.state.mark_delete) == (offsets((6, 10)), 5)
    assert log.state.totals.acked == 6


def test_an_ack_up_to_an_old_position_ends_nothing_more() -> None:
    # 0 S of 0 to 10  1 U(6)  2 U(3)
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.end_up_to(6, at=1)
    log.end_up_to(3, at=2)
    assert (log.state.outstanding, log.state.read_position) == (offsets((6, 10)), 10)
    assert log.state.totals.acked == 6


def test_an_ack_up_to_the_end_of_every_log_costs_no_memory() -> None:
    # 0 S of 0 to 10  1 U(2**63 - 1)
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.end_up_to(OFFSET_LIMIT, at=1)
    assert log.state.outstanding == EMPTY
    assert log.state.read_position == OFFSET_LIMIT


# ---- a lowered limit


def test_what_is_available_above_a_lowered_limit_is_a_dead_letter_and_never_announced() -> None:
    # 0 S(1) R S(2) R available(2)   limit lowered to 2   10 H(B)
    log = Log(max_deliveries=5)
    delivered_times(log, offsets(0), 2)
    log.release(offsets(0), at=0, count=2)
    assert log.advance(0) == [redeliver(offsets(0), 2)]
    log.restart(max_deliveries=2)
    log.hello(B, at=10)
    assert log.advance(None) == [], "nobody may deliver it, and its End may be in the rest of the log"
    assert log.state.outstanding == offsets(0)
    assert log.state.next_event_ms == 0, "it is due as soon as the log is read out"
    assert log.advance(11) == [dead(offsets(0), 2, MAX_DELIVERIES)]
    assert log.state.next_event_ms is None


def test_only_what_is_available_without_a_delivery_left_is_due_at_once() -> None:
    waiting = Available(2, died=True)
    cursor = replace(BEGINNING, read_position=1, available=((waiting, offsets(0)),), max_deliveries=2)
    suspects = ((waiting._replace(grouped=True), offsets(0)),)
    opened = Breaker().opened("trip", 1, BreakerPolicy(limit=1))
    assert cursor.next_event_ms == 0
    assert replace(cursor, max_deliveries=1).next_event_ms == 0
    assert replace(cursor, available=suspects).next_event_ms is None, "each has one more delivery, alone"
    assert replace(cursor, available=suspects, max_deliveries=1).next_event_ms == 0
    assert replace(cursor, breaker=opened).next_event_ms == 0, "the pause begins when it is seen"
    assert replace(cursor, breaker=opened.seen(5, BreakerPolicy(limit=1, pause_ms=9))).next_event_ms == 14
    for most in (3, None):
        assert replace(cursor, max_deliveries=most).next_event_ms is None


def test_what_is_leased_above_a_lowered_limit_keeps_its_lease() -> None:
    # 0 S(2)----60 dead letter    limit lowered to 1
    log = Log(max_deliveries=5)
    delivered_times(log, offsets((0, 2)), 2)
    log.restart(max_deliveries=1)
    assert log.advance(60) == []
    log.end_of(offsets(0), at=60)
    assert log.advance(61) == [dead(offsets(1), 2, MAX_DELIVERIES)]


def test_a_raised_limit_is_in_force_at_once() -> None:
    # 0 S(3 of 3)----60 due, of 4
    log = Log(max_deliveries=3)
    delivered_times(log, offsets(0), 3)
    log.restart(max_deliveries=4)
    assert log.advance(61) == [redeliver(offsets(0), 3)]


# ---- recovery


def test_markers_that_are_in_the_state_are_skipped() -> None:
    # the cursor says: the next marker is 2; markers 0 and 1 come again
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.end_of(offsets(1), at=1)
    again = CellTracker.resume(log.state, cell=CELL, policy=log.policy)
    again.apply(Seek(cell=CELL, position=0), at_ms=0, marker_offset=0)
    again.apply(Hello(cell=CELL, run_id=B, position=0), at_ms=0, marker_offset=1)
    assert again.snapshot() == log.state
    log.tracker = again
    log.end_of(offsets(0), at=2)
    assert (log.state.next_marker, log.state.outstanding) == (3, offsets(2))


def test_a_marker_offset_may_leave_a_gap() -> None:
    # marker 7 is the first of this cell
    log = Log()
    log.end = 7
    log.hello(A)
    assert log.state.next_marker == 8


def test_a_snapshot_is_a_read() -> None:
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.release(offsets(1), at=1)
    assert log.state == log.state
    assert log.advance(None) == [redeliver(offsets(1), 1)]


def test_a_new_cell_is_empty_and_begins_where_the_first_hello_says() -> None:
    log = Log(max_deliveries=5)
    log.delete()
    log.hello(A, at=1, position=4)
    state = log.state
    assert state == CursorSnapshot(
        cell=CELL, read_position=4, next_marker=2, max_deliveries=5, owner=A, owner_seen_ms=1_000
    )
    assert (state.mark_delete, state.ack_holes, state.next_event_ms) == (3, EMPTY, None)


def test_a_snapshot_says_when_something_happens_next() -> None:
    # 0 S of 0----60, S of 1----90, R(30) of 2
    log = Log()
    log.start(offsets(0, 2), at=0)
    log.start(offsets(1), at=0, lease=90)
    assert log.state.next_event_ms == 60_000
    log.release(offsets(2), at=0, delay=30)
    assert log.state.next_event_ms == 30_000
    log.end_of(offsets((0, 3)))
    assert log.state.next_event_ms is None
