"""The life cycle of a message, one rule a test; times are seconds of the broker's clock.

Timelines: ``S`` Start, ``E`` End, ``K`` KeepAlive, ``R`` Release, ``X`` Reject, ``U`` ack up to, ``H`` Hello,
``L`` the end of the log, ``|`` the breaker opens, ``C`` it is told to close.
"""

from __future__ import annotations

import pytest

from spark_cursor_source.core.ages import EndSeen
from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Delay, Held, Lease, Wait
from spark_cursor_source.core.isolation import MAX_ANNOUNCED
from spark_cursor_source.core.marker import (
    MAX_LEASE_MS,
    End,
    EndUpTo,
    Hello,
    Hold,
    KeepAlive,
    LogEnd,
    Marker,
    Reject,
    Release,
    Resume,
    Seek,
    Start,
)
from spark_cursor_source.core.offsets import EMPTY, OFFSET_LIMIT, OffsetSet
from spark_cursor_source.core.policy import Backoff, ExpiredTo, RedeliveryPolicy, StepBackoff
from spark_cursor_source.core.tracker import (
    EXPIRED,
    MAX_DELIVERIES,
    MAX_ERRORS,
    MAX_EXPIRED,
    OTHER_ERRORS,
    REJECTED,
    CellTracker,
    DeadLetter,
    Decision,
    Redeliver,
)

CELL = Cell(subscription="billing", topic="orders", partition=3)
A, B = "run-a", "run-b"
NO_DELAY = StepBackoff(delays_ms=())


def offsets(*spans: int | tuple[int, int]) -> OffsetSet:
    """Single offsets and half-open ranges as one set."""
    return OffsetSet.of(*(span if isinstance(span, tuple) else (span, span + 1) for span in spans))


class Log:
    """A tracker, and the markers of its cell as they are appended second by second."""

    def __init__(
        self,
        *,
        max_deliveries: int | None = 3,
        backoff: Backoff = NO_DELAY,
        jitter: float = 0.0,
        policy: RedeliveryPolicy | None = None,
    ) -> None:
        self.policy = policy or RedeliveryPolicy(
            max_deliveries=max_deliveries, backoff=backoff, jitter=jitter
        )
        self.tracker = CellTracker.resume(None, cell=CELL, policy=self.policy)
        self.end = 0  # of the markers topic

    def append(self, marker: Marker, at: float) -> None:
        self.tracker.apply(marker, at_ms=round(at * 1000), marker_offset=self.end)
        self.end += 1

    def start(self, held: OffsetSet, *, at: float, lease: float = 60, count: int = 1, run: str = A) -> None:
        marker = Start(
            cell=CELL, offsets=held, lease_ms=round(lease * 1000), delivery_count=count, run_id=run
        )
        self.append(marker, at)

    def end_of(self, held: OffsetSet, *, at: float = 0, run: str | None = None) -> None:
        self.append(End(cell=CELL, offsets=held, run_id=run), at)

    def end_up_to(self, position: int, *, at: float = 0, run: str | None = None) -> None:
        self.append(EndUpTo(cell=CELL, position=position, run_id=run), at)

    def keep_alive(
        self,
        held: OffsetSet,
        *,
        at: float,
        lease: float = 60,
        count: int | None = None,
        run: str | None = None,
    ) -> None:
        marker = KeepAlive(
            cell=CELL, offsets=held, lease_ms=round(lease * 1000), delivery_count=count, run_id=run
        )
        self.append(marker, at)

    def release(
        self, held: OffsetSet, *, at: float, count: int = 1, delay: float | None = 0, reason: str = ""
    ) -> None:
        marker = Release(
            cell=CELL,
            offsets=held,
            delivery_count=count,
            delay_ms=None if delay is None else round(delay * 1000),
            reason=reason,
        )
        self.append(marker, at)

    def not_due(self, held: OffsetSet, *, at: float, due: float, count: int = 1) -> None:
        """The Release of messages that were not delivered."""
        self.append(Release(cell=CELL, offsets=held, delivery_count=count, due_ms=round(due * 1000)), at)

    def reject(self, held: OffsetSet, *, at: float = 0, count: int = 1, reason: str = "bad") -> None:
        self.append(Reject(cell=CELL, offsets=held, delivery_count=count, reason=reason), at)

    def hello(self, run: str, *, at: float = 0, position: int = 0, topic_id: str | None = None) -> None:
        self.append(Hello(cell=CELL, run_id=run, position=position, topic_id=topic_id), at)

    def log_end(self, position: int, *, at: float) -> None:
        self.append(LogEnd(cell=CELL, position=position), at)

    def hold(self, trip: str, *, at: float) -> None:
        self.append(Hold(cell=CELL, trip=trip), at)

    def resume(self, *, at: float) -> None:
        self.append(Resume(cell=CELL), at)

    def settle(self, now: float | None) -> list[Decision]:
        return self.tracker.settle(None if now is None else round(now * 1000))

    def seek(self, position: int, *, at: float = 0) -> None:
        self.append(Seek(cell=CELL, position=position), at)

    @property
    def state(self) -> CursorSnapshot:
        return self.tracker.snapshot()

    def restart(self, *, max_deliveries: int | None) -> None:
        self.policy = RedeliveryPolicy(max_deliveries=max_deliveries, backoff=self.policy.backoff)
        self.tracker = CellTracker.resume(self.state, cell=CELL, policy=self.policy)


def redeliver(held: OffsetSet, count: int, *, run: str = A, alone: bool = False) -> Redeliver:
    return Redeliver(cell=CELL, offsets=held, delivery_count=count, run_id=run, alone=alone)


def dead(held: OffsetSet, count: int, reason: str, error: str = "", last: float = 0) -> DeadLetter:
    return DeadLetter(
        cell=CELL,
        offsets=held,
        delivery_count=count,
        reason=reason,
        error=error,
        last_delivery_ms=round(last * 1000) or None,
    )


def delivered_times(log: Log, held: OffsetSet, times: int) -> None:
    """Deliver the offsets ``times`` times, the last one at 0 with a lease of 60 s; all of it in run A."""
    for count in range(1, times + 1):
        log.start(held, at=0, count=count)
        if count < times:
            log.release(held, at=0, count=count)
    log.settle(0)


# ---- unseen


def test_a_start_leases_what_was_unseen() -> None:
    # 0 S----60
    log = Log()
    log.start(offsets((0, 10)), at=0)
    assert log.settle(1) == []
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
        "keep_alive": lambda: log.keep_alive(offsets(5), at=0),
    }[what]()
    assert log.settle(1_000) == []
    assert (log.state.outstanding, log.state.read_position) == (EMPTY, 0)
    assert log.state.totals.unknown_ends == (1 if what == "end" else 0)


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
    assert log.settle(61) == [redeliver(offsets((0, 3), (5, 10)), 1)]


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
    log.settle(61)
    log.start(offsets(0), at=61, count=2, run=B)
    log.end_of(offsets(0), at=62)
    assert log.state.outstanding == EMPTY


def test_an_end_in_the_same_batch_comes_before_the_end_of_the_lease() -> None:
    # 0 S----60       (the tracker is down)      1,000 reads E of 30, all of it in one batch
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.end_of(offsets(0), at=30)
    assert log.settle(1_000) == [redeliver(offsets(1), 1)]


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
    assert log.settle(61) == [dead(offsets(0), 3, MAX_DELIVERIES)]


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
    log.settle(61)
    log.keep_alive(offsets(0), at=61, run=A)
    assert log.state.available == ((Wait(1, False, lapsed=True), offsets(0)),)


def test_keep_alives_hold_a_lease_for_as_long_as_they_come() -> None:
    # 0 S----60
    #     20 K  40 K  60 K ... 600 K----660 due
    log = Log()
    log.start(offsets(0), at=0)
    for second in range(20, 601, 20):
        log.keep_alive(offsets(0), at=second, run=A)
        assert log.settle(second) == []
    assert log.settle(660) == []
    assert log.settle(660.001) == [redeliver(offsets(0), 1)]


# ---- leased + Release


def test_a_release_now_makes_a_message_available_at_once() -> None:
    # 0 S----60
    #   10 R, announced although the log goes on
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.release(offsets(0), at=10)
    assert log.settle(None) == [redeliver(offsets(0), 1)]
    assert (log.state.leased, log.state.waiting) == (offsets(1), offsets(0))


def test_a_release_with_a_delay_waits_for_it() -> None:
    # 0 S----60
    #   10 R(30)----40 due
    log = Log()
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=10, delay=30)
    assert log.state.delayed == ((Delay(40_000, 1, False), offsets(0)),)
    assert log.settle(40) == []
    assert log.settle(40.001) == [redeliver(offsets(0), 1)]


def test_a_release_without_a_delay_waits_for_the_backoff_of_its_delivery() -> None:
    # 0 S(1)  0 R--1    S(2)  2 R----12
    log = Log(backoff=StepBackoff(delays_ms=(1_000, 10_000)))
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=0, delay=None)
    assert log.settle(2) == [redeliver(offsets(0), 1)]
    log.start(offsets(0), at=2, count=2)
    log.release(offsets(0), at=2, count=2, delay=None)
    assert log.settle(12) == []
    assert log.settle(13) == [redeliver(offsets(0), 2)]


def test_a_release_now_waits_for_no_backoff() -> None:
    # 0 S----60
    #   10 R(0), although the backoff is 30
    log = Log(backoff=StepBackoff(delays_ms=(30_000,)))
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=10, delay=0)
    assert log.settle(10) == [redeliver(offsets(0), 1)]


@pytest.mark.parametrize("said", ["boom", ""])
def test_a_release_of_the_last_delivery_makes_a_dead_letter(said: str) -> None:
    # 0 S(3 of 3)  5 R dead letter
    log = Log(max_deliveries=3)
    delivered_times(log, offsets(0), 3)
    log.release(offsets(0), at=5, count=3, delay=600, reason=said)
    assert log.settle(None) == [dead(offsets(0), 3, MAX_DELIVERIES, said)]
    assert log.state.outstanding == EMPTY
    assert log.state.totals.dead_lettered == 1


def test_a_release_of_an_old_delivery_leaves_the_present_lease_alone() -> None:
    # 0 S(A, 1)----60 due
    #                 61 S(B, 2)----121
    #                      70 R(1), late, by A
    log = Log()
    log.start(offsets(0), at=0)
    log.settle(61)
    log.start(offsets(0), at=61, count=2, run=B)
    log.release(offsets(0), at=70, count=1)
    assert log.settle(70) == []
    assert log.state.leases == ((Lease(121_000, 2, B, 61_000), offsets(0)),)


def test_a_release_of_what_is_available_changes_nothing() -> None:
    # 0 S----60 due
    #                 61 R(1), with a delay that would hold it up
    log = Log()
    log.start(offsets(0), at=0)
    log.settle(61)
    log.release(offsets(0), at=61, delay=600)
    assert log.settle(62) == []
    assert log.state.available == ((Wait(1, False, lapsed=True), offsets(0)),)


# ---- leased + Reject


def test_a_reject_makes_a_dead_letter_with_its_reason() -> None:
    # 0 S----60
    #    1 X
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.reject(offsets(1), at=1, reason="no such customer")
    assert log.settle(None) == [dead(offsets(1), 1, REJECTED, "no such customer")]
    assert log.state.outstanding == offsets(0, 2)
    assert log.state.totals.dead_lettered == 1
    assert log.settle(None) == [], "it is said once"


def test_a_reject_of_an_old_delivery_is_ignored() -> None:
    # 0 S(1)  R  S(2)----60
    #              5 X(1)
    log = Log()
    delivered_times(log, offsets(0), 2)
    log.reject(offsets(0), at=5, count=1)
    assert log.settle(None) == []
    assert log.state.leased == offsets(0)


def test_rejects_come_out_in_the_order_of_the_leases_whatever_the_order_of_the_starts() -> None:
    # 0 S of 1----90   1 S of 0----61   2 X of both
    log = Log()
    log.start(offsets((0, 2)), at=0, lease=90)
    log.keep_alive(offsets(0), at=0, lease=61, count=1)
    log.reject(offsets(0, 1), at=2)
    assert log.settle(None) == [dead(offsets(0), 1, REJECTED, "bad"), dead(offsets(1), 1, REJECTED, "bad")]


# ---- leased + Release of what is not due


def test_what_is_not_due_counts_as_never_delivered_and_comes_back_when_it_is() -> None:
    # 0 S of 0 to 2
    #    1 R of 1, due at 5 .... 5 available
    log = Log(max_deliveries=1)
    log.start(offsets((0, 3)), at=0)
    log.not_due(offsets(1), at=1, due=5)
    assert log.state.delayed == ((Delay(5_000, 0, False), offsets(1)),)
    assert log.state.totals.delivered == 2
    assert log.settle(5) == []
    assert log.settle(5.001) == [redeliver(offsets(1), 0)]
    log.start(offsets(1), at=6)
    assert log.state.delivery_counts() == {1: offsets((0, 3))}


def test_what_is_due_by_now_is_available_at_once() -> None:
    # 0 S of what is due at 5     9 R
    log = Log()
    log.start(offsets(0), at=0)
    log.not_due(offsets(0), at=9, due=5)
    assert log.settle(None) == [redeliver(offsets(0), 0)]


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
    log.settle(5.2)
    log.start(offsets(0), at=5.2)
    log.not_due(offsets(0), at=6, due=5)
    assert log.settle(6) == []
    assert log.state.leased == offsets(0)


def test_the_death_of_a_run_before_its_release_is_no_delivery_either() -> None:
    # 0 S(A, 1)  run A dies
    #    10 H(B) S(B, 2)  R due at 90 .... 90 available, never delivered
    log = Log(max_deliveries=2)
    log.start(offsets((0, 10)), at=0)
    log.hello(B, at=10)
    log.start(offsets((0, 10)), at=10, count=2, run=B)
    log.not_due(offsets((0, 10)), at=11, due=90, count=2)
    assert log.settle(91) == [redeliver(offsets((0, 10)), 0, run=B)]


def test_what_was_never_delivered_is_announced_once_to_a_run() -> None:
    # 0 S R due at 0   1 H(A)   2 H(B)
    log = Log()
    log.hello(A)
    log.start(offsets(0, 1), at=0)
    log.not_due(offsets(0), at=0.5, due=0)
    log.release(offsets(1), at=0.5)
    assert log.settle(None) == [redeliver(offsets(0), 0), redeliver(offsets(1), 1)]
    log.hello(A, at=1)
    assert log.settle(None) == [redeliver(offsets(1), 1)]
    log.hello(B, at=2)
    assert log.settle(None) == [redeliver(offsets(0), 0, run=B), redeliver(offsets(1), 1, run=B)]


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


# ---- what a dead letter knows


def test_a_dead_letter_knows_its_first_and_its_last_delivery() -> None:
    # 1 S of 0 and 1   2.1 S of 2   9 S(2) of 0 to 2 ..... 69 dead letters
    log = Log(max_deliveries=2)
    log.start(offsets(0, 1), at=1)
    log.start(offsets(2), at=2.1)
    log.release(offsets((0, 3)), at=3)
    log.settle(None)
    log.start(offsets((0, 3)), at=9, count=2)
    (letter,) = log.settle(70)
    assert isinstance(letter, DeadLetter)
    assert [letter.first_deliveries.at(offset) for offset in (0, 1, 2)] == [1_000, 1_000, 2_250]
    assert (letter.last_delivery_ms, letter.error) == (9_000, "")


def test_what_a_lost_state_delivered_is_not_known() -> None:
    log = Log(max_deliveries=2)
    log.start(offsets(1), at=2, count=2)
    log.reject(offsets(1), at=3, count=2)
    (letter,) = log.settle(None)
    assert isinstance(letter, DeadLetter)
    assert (letter.first_deliveries.at(1), letter.last_delivery_ms) == (None, 2_000)


def test_the_times_of_first_deliveries_are_forgotten_with_their_messages() -> None:
    log = Log()
    for number in range(5):
        log.start(offsets(number), at=10 + number)
    assert len(log.state.first_deliveries.steps) == 5
    log.end_of(offsets((0, 3)))
    log.settle(None)
    assert log.state.first_deliveries.steps == ((3, 13_000), (4, 14_000))
    log.seek(1)
    assert log.state.first_deliveries.steps == ()


# ---- leased + time


@pytest.mark.parametrize(("now", "due"), [(60, False), (60.001, True)])
def test_a_deadline_has_passed_when_now_is_after_it(now: float, due: bool) -> None:
    # 0 S----60 (due after it)
    log = Log()
    log.start(offsets(0), at=0)
    assert log.settle(now) == ([redeliver(offsets(0), 1)] if due else [])


def test_a_deadline_is_on_the_next_quarter_of_a_second_and_never_early() -> None:
    # 0.001 S----60.001 -> 60.250
    log = Log()
    log.start(offsets(0), at=0.001)
    log.start(offsets(1), at=0.249)
    log.start(offsets(2), at=0.25)
    assert log.state.leases == ((Lease(60_250, 1, A, 250), offsets((0, 3))),)


def test_a_lease_that_is_over_waits_for_the_backoff_of_its_delivery() -> None:
    # 0 S(1)----60--70 due
    log = Log(backoff=StepBackoff(delays_ms=(10_000,)))
    log.start(offsets(0), at=0)
    assert log.settle(61) == []
    assert log.state.delayed == ((Delay(70_000, 1, False, lapsed=True), offsets(0)),)
    assert log.settle(71) == [redeliver(offsets(0), 1)]


def test_messages_that_were_leased_apart_wait_differently_long_where_there_is_a_jitter() -> None:
    # 0 S(1)----60--60..160 due, each group at its time
    log = Log(backoff=StepBackoff(delays_ms=(100_000,)), jitter=1.0)
    groups = [offsets((n, n + 10)) for n in range(0, 50, 10)]
    for group in groups:
        log.start(group, at=0)
        log.release(group, at=0, delay=None)
    due = {delay.due_ms: waiting for delay, waiting in log.state.delayed}
    assert sorted(due.values(), key=lambda waiting: waiting.first or 0) == groups
    assert all(0 <= at <= 100_250 for at in due)
    assert log.settle(101) == [redeliver(offsets((0, 50)), 1)]


def test_a_backoff_counts_from_the_deadline_however_late_the_tracker_looks() -> None:
    # 0 S(1)----60--70 due      500 the first batch
    log = Log(backoff=StepBackoff(delays_ms=(10_000,)))
    log.start(offsets(0), at=0)
    assert log.settle(500) == [redeliver(offsets(0), 1)]


def test_the_last_lease_makes_a_dead_letter() -> None:
    # 0 S(2 of 2)----60 dead letter
    log = Log(max_deliveries=2, backoff=StepBackoff(delays_ms=(10_000,)))
    delivered_times(log, offsets(0), 1)
    log.start(offsets(0), at=0, count=2, run=B)
    assert log.settle(61) == [dead(offsets(0), 2, MAX_DELIVERIES)]
    assert log.settle(1_000) == []


def test_without_a_limit_a_message_comes_back_for_ever() -> None:
    # 0 S(1000)----60 due
    log = Log(max_deliveries=None)
    log.start(offsets(0), at=0, count=1_000)
    assert log.settle(61) == [redeliver(offsets(0), 1_000)]


def test_leases_do_not_run_out_while_the_log_has_more_markers_to_read() -> None:
    # 0 S----60      (settled without a time)       1,000 E
    log = Log()
    log.start(offsets(0), at=0)
    assert log.settle(None) == []
    log.end_of(offsets(0), at=1_000)
    assert log.settle(2_000) == []


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
    assert log.settle(100) == []
    assert log.state.totals.acked == 1


def test_an_ack_up_to_ends_what_is_delayed() -> None:
    # 0 S R(30)  5 U(1)
    log = delayed_log()
    log.end_up_to(1, at=5)
    assert log.settle(100) == []
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
    assert log.state.delayed == ((Delay(30_000, 2, False), offsets(0)),)
    assert log.settle(31) == [dead(offsets(0), 2, MAX_DELIVERIES)]


# ---- available


def available_log(**options: int | None) -> Log:
    """Offset 0, delivered once, available and announced to run A at 61."""
    log = Log(**options)  # type: ignore[arg-type]
    log.start(offsets(0), at=0)
    assert log.settle(61) == [redeliver(offsets(0), 1)]
    return log


def test_what_is_available_is_announced_once() -> None:
    # 0 S----60 due, announced at 61 and not again
    log = available_log()
    assert [log.settle(second) for second in (61, 62, 10_000)] == [[], [], []]
    assert log.state.totals.redelivered == 1


def test_what_is_available_stays_so_until_a_start_takes_it() -> None:
    # 0 S----60 due                                             one year later: still there
    log = available_log()
    assert log.settle(31_536_000) == []
    assert log.state.available == ((Wait(1, False, lapsed=True), offsets(0)),)
    log.start(offsets(0), at=31_536_000, count=2)
    assert log.state.leases == ((Lease(31_536_060_000, 2, A, 31_536_000_000), offsets(0)),)


def test_an_end_ends_what_is_available() -> None:
    # 0 S----60 due
    #                 61 E, late, and good
    log = available_log()
    log.end_of(offsets(0), at=61)
    log.hello(B, at=62)
    assert log.settle(100) == []
    assert (log.state.outstanding, log.state.totals.acked) == (EMPTY, 1)


def test_an_end_in_the_batch_of_the_announcement_takes_it_back() -> None:
    # 0 S  1 R  2 E, all in one batch
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.release(offsets((0, 2)), at=1)
    log.end_of(offsets(0), at=2)
    assert log.settle(None) == [redeliver(offsets(1), 1)]


def test_a_start_in_the_batch_of_the_announcement_takes_it_back() -> None:
    # 0 S  1 R  2 S(2), all in one batch
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.release(offsets((0, 2)), at=1)
    log.start(offsets(0), at=2, count=2)
    assert log.settle(None) == [redeliver(offsets(1), 1)]


# ---- Hello


def test_hello_announces_everything_available_once_to_its_run() -> None:
    # 0 S(A)----60 due, announced to A
    #                 70 H(B), announced to B
    log = available_log()
    log.start(offsets(5), at=62)
    log.hello(B, at=70)
    assert log.settle(70) == [redeliver(offsets(0), 1, run=B)]
    assert log.settle(71) == []
    assert log.state.owner == B
    assert log.state.totals.redelivered == 2


def test_a_second_hello_of_the_same_run_announces_again() -> None:
    # 0 S----60 due   70 H(A)   80 H(A): it waits long in vain
    log = available_log()
    log.hello(A, at=70)
    assert log.settle(70) == [redeliver(offsets(0), 1)]
    log.hello(A, at=80)
    assert log.settle(80) == [redeliver(offsets(0), 1)]


def test_what_is_released_next_to_a_hello_is_announced_once() -> None:
    # 0 S  1 R  2 H(B)  and the other way round, in one batch each
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.release(offsets(0), at=1)
    log.hello(B, at=2)
    log.release(offsets(1), at=3)
    assert log.settle(None) == [redeliver(offsets(0), 1, run=B), redeliver(offsets(1), 1, run=B)]


def test_what_is_leased_is_announced_to_the_run_of_the_day_when_it_is_due() -> None:
    # 0 S(A)----60 due
    #      30 H(B)
    log = Log()
    log.start(offsets(0), at=0)
    log.hello(B, at=30)
    assert log.settle(30) == []
    assert log.settle(61) == [redeliver(offsets(0), 1, run=B)]


def test_hello_says_where_a_new_cell_begins() -> None:
    # 0 H(latest is 100)  1 S of 90 to 110
    log = Log()
    log.hello(A, position=100)
    assert (log.state.read_position, log.state.mark_delete) == (100, 99)
    log.start(offsets((90, 110)), at=1)
    assert log.state.outstanding == offsets((100, 110))


def test_hello_moves_no_cell_that_has_begun() -> None:
    # 0 H(A, 100)  1 H(B, 200)
    log = Log()
    log.hello(A, position=100)
    log.hello(B, at=1, position=200)
    assert (log.state.read_position, log.state.owner) == (100, B)


def test_hello_moves_no_cell_that_began_at_the_beginning() -> None:
    # 0 H(A, 0), which dies before its first Start  1 H(B, 200)
    log = Log()
    log.hello(A, position=0)
    log.hello(B, at=1, position=200)
    assert log.state.read_position == 0


def test_a_cell_keeps_the_first_id_of_its_topic_that_it_is_told() -> None:
    # 0 H(A) of an old version     1 H(B), topic "first"     2 H(A), topic "second", made anew
    log = Log()
    log.hello(A)
    assert log.state.topic_id is None
    log.hello(B, at=1, topic_id="first")
    log.restart(max_deliveries=None)
    log.hello(A, at=2, topic_id="second")
    assert log.state.topic_id == "first"


def test_a_long_announcement_is_cut_into_records() -> None:
    # 0 S of many----60 due
    log = Log()
    log.start(offsets((0, MAX_ANNOUNCED + 1)), at=0)
    assert log.settle(61) == [
        redeliver(offsets((0, MAX_ANNOUNCED)), 1),
        redeliver(offsets(MAX_ANNOUNCED), 1),
    ]


# ---- which run died


def test_a_lease_that_outlives_its_run_marks_a_death() -> None:
    # 0 S(A)----60 due
    #      30 H(B)
    log = Log()
    log.start(offsets(0), at=0)
    log.hello(B, at=30)
    log.settle(61)
    assert log.state.available == ((Wait(1, True), offsets(0)),)


def test_a_lease_that_ran_out_before_the_next_run_began_marks_a_death_as_well() -> None:
    # 0 S(A)----60 due, to A, who takes nothing any more
    #                 70 H(B)
    log = Log(max_deliveries=2)
    log.start(offsets((0, 2)), at=0)
    assert log.settle(61) == [redeliver(offsets((0, 2)), 1)]
    assert log.state.available == ((Wait(1, False, lapsed=True), offsets((0, 2))),)
    log.hello(B, at=70)
    assert log.settle(71) == [redeliver(offsets(n), 1, run=B, alone=True) for n in range(2)]
    assert log.state.available == ((Wait(1, True), offsets((0, 2))),)


def test_a_lease_that_ran_out_and_waits_for_its_backoff_marks_a_death_as_well() -> None:
    # 0 S(A)----60 over----90 due
    #                70 H(B)
    log = Log(backoff=StepBackoff(delays_ms=(30_000,)))
    log.start(offsets(0), at=0)
    log.settle(61)
    log.hello(B, at=70)
    log.settle(91)
    assert log.state.available == ((Wait(1, True), offsets(0)),)


def test_a_run_that_says_hello_again_is_alive() -> None:
    # 0 S(A)----60 due
    #                 61 H(A)
    log = Log()
    log.start(offsets(0), at=0)
    log.settle(61)
    log.hello(A, at=61)
    log.settle(62)
    assert log.state.available == ((Wait(1, False, lapsed=True), offsets(0)),)


def test_what_was_released_before_its_run_died_is_not_suspect() -> None:
    # 0 S(A)  1 R
    #              2 H(B)
    log = Log()
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=1)
    log.hello(B, at=2)
    log.settle(3)
    assert log.state.available == ((Wait(1, False), offsets(0)),)


def test_after_a_death_the_last_delivery_is_planned_alone() -> None:
    # 0 S(A, 1 of 2)----60 due, each alone
    #      30 H(B)
    log = Log(max_deliveries=2)
    log.start(offsets((0, 3)), at=0)
    log.hello(B, at=30)
    assert log.settle(61) == [redeliver(offsets(n), 1, run=B, alone=True) for n in range(3)]


def test_without_a_death_the_last_delivery_keeps_its_company() -> None:
    # 0 S(A, 1 of 2)----60 due, together
    log = Log(max_deliveries=2)
    log.start(offsets((0, 3)), at=0)
    assert log.settle(61) == [redeliver(offsets((0, 3)), 1)]


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
    assert log.settle(3) == []
    assert log.state.outstanding == offsets(1)


# ---- ack up to


def test_an_ack_up_to_ends_every_offset_below_its_position() -> None:
    # 0 S of 0 to 10   1 U(6): leased, delayed and available alike
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.release(offsets(2), at=0)
    log.release(offsets(4), at=0, delay=30)
    log.end_up_to(6, at=1)
    assert log.settle(2) == []
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


# ---- Seek


def test_a_seek_back_makes_messages_unseen_again() -> None:
    # 0 S of 0 to 10  1 E of 0 to 5  2 Seek(3)  3 S of 3 to 6
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.end_of(offsets((0, 5)), at=1)
    log.release(offsets(7), at=1)
    log.seek(3, at=2)
    assert log.settle(1_000) == [], "what was outstanding is forgotten"
    assert (log.state.outstanding, log.state.read_position) == (EMPTY, 3)
    log.start(offsets((3, 6)), at=3)
    assert log.state.outstanding == offsets((3, 6))


def test_a_seek_ahead_makes_messages_gone() -> None:
    # 0 S of 0 to 10  1 Seek(50)  2 S of 40 to 60
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.seek(50, at=1)
    log.start(offsets((40, 60)), at=2)
    assert (log.state.outstanding, log.state.mark_delete) == (offsets((50, 60)), 49)
    assert log.state.totals.acked == 0, "nobody acknowledged what a seek forgets"


# ---- a lowered limit


def test_what_is_available_above_a_lowered_limit_is_a_dead_letter_and_never_announced() -> None:
    # 0 S(1) R S(2) R available(2)   limit lowered to 2   10 H(B)
    log = Log(max_deliveries=5)
    delivered_times(log, offsets(0), 2)
    log.release(offsets(0), at=0, count=2)
    assert log.settle(0) == [redeliver(offsets(0), 2)]
    log.restart(max_deliveries=2)
    log.hello(B, at=10)
    assert log.settle(None) == [], "nobody may deliver it, and its End may be in the rest of the log"
    assert log.state.outstanding == offsets(0)
    assert log.settle(11) == [dead(offsets(0), 2, MAX_DELIVERIES)]


def test_what_is_leased_above_a_lowered_limit_keeps_its_lease() -> None:
    # 0 S(2)----60 dead letter    limit lowered to 1
    log = Log(max_deliveries=5)
    delivered_times(log, offsets((0, 2)), 2)
    log.restart(max_deliveries=1)
    assert log.settle(60) == []
    log.end_of(offsets(0), at=60)
    assert log.settle(61) == [dead(offsets(1), 2, MAX_DELIVERIES)]


def test_a_raised_limit_is_in_force_at_once() -> None:
    # 0 S(3 of 3)----60 due, of 4
    log = Log(max_deliveries=3)
    delivered_times(log, offsets(0), 3)
    log.restart(max_deliveries=4)
    assert log.settle(61) == [redeliver(offsets(0), 3)]


# ---- messages that are too old

TTL = RedeliveryPolicy(max_deliveries=3, message_ttl_ms=60_000)
TTL_KEPT = RedeliveryPolicy(max_deliveries=3, message_ttl_ms=60_000, expired_to=ExpiredTo.DEAD_LETTERS)


def test_messages_that_nobody_read_expire_and_are_counted() -> None:
    # 0 L(10)       30 L(15)     60 0 to 10 expire   90 10 to 15 expire
    log = Log(policy=TTL)
    log.log_end(10, at=0)
    assert log.settle(1) == []
    log.log_end(15, at=30)
    assert log.settle(60) == []
    assert (log.state.read_position, log.state.totals.expired) == (0, 0)
    assert log.state.next_event_ms == 60_000
    assert log.settle(60.001) == []
    assert (log.state.read_position, log.state.totals.expired) == (10, 10)
    assert log.state.next_event_ms == 90_000
    assert log.settle(91) == []
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
    assert log.settle(1) == [redeliver(offsets(0), 1)]
    log.release(offsets(2), at=61)
    assert log.settle(61) == []
    assert (log.state.outstanding, log.state.totals.expired) == (offsets(3), 3)
    log.hello(B, at=62)
    assert log.settle(62) == []


@pytest.mark.parametrize(
    "how", ["its lease is over", "it is released", "it is released in a log not read out"]
)
def test_what_is_leased_is_left_to_its_holder_and_expires_instead_of_coming_back(how: str) -> None:
    # 0 S----------100     60 too old   100 expired
    log = Log(policy=TTL)
    log.start(offsets(0, 1), at=0, lease=100)
    log.log_end(2, at=0)
    assert log.settle(70) == []
    assert log.state.outstanding == offsets(0, 1)
    log.end_of(offsets(1), at=80)
    if how == "its lease is over":
        assert log.settle(101) == []
    else:
        log.release(offsets(0), at=90)
        assert log.settle(90 if how == "it is released" else None) == []
    assert (log.state.outstanding, log.state.totals.expired, log.state.totals.acked) == (EMPTY, 1, 1)


def test_a_last_delivery_that_failed_is_a_dead_letter_and_not_expired() -> None:
    log = Log(policy=TTL)
    delivered_times(log, offsets(0), 3)
    log.log_end(1, at=0)
    assert log.settle(61) == [dead(offsets(0), 3, MAX_DELIVERIES)]
    assert log.state.totals.expired == 0


def test_what_has_expired_can_be_kept_as_dead_letters() -> None:
    # 0 S(0-1) R L(5)    60 both kinds expire
    log = Log(policy=TTL_KEPT)
    log.start(offsets(0, 1), at=0)
    log.end_of(offsets(1))
    log.release(offsets(0), at=0, delay=100)
    log.log_end(5, at=0)
    log.settle(0)
    assert log.settle(61) == [dead(offsets(0), 1, EXPIRED), dead(offsets((2, 5)), 0, EXPIRED)]
    totals = log.state.totals
    assert (totals.expired, totals.dead_lettered, totals.acked) == (4, 0, 1)


def test_a_long_backlog_becomes_dead_letters_in_portions() -> None:
    log = Log(policy=TTL_KEPT)
    log.log_end(MAX_EXPIRED + 5, at=0)
    assert log.settle(61) == [dead(offsets((0, MAX_EXPIRED)), 0, EXPIRED)]
    event_ms = log.state.next_event_ms
    assert event_ms is not None
    assert event_ms < 61_000, "the rest is due at once"
    assert log.settle(62) == [dead(offsets((MAX_EXPIRED, MAX_EXPIRED + 5)), 0, EXPIRED)]
    assert log.state.next_event_ms is None


def test_a_queue_that_is_read_and_acked_keeps_no_ages() -> None:
    log = Log(policy=TTL)
    log.log_end(10, at=0)
    log.start(offsets((0, 10)), at=1)
    log.settle(1)
    assert log.state.ages.ends == (EndSeen(0, 10),)
    log.end_of(offsets((0, 10)), at=2)
    log.settle(2)
    assert (log.state.ages.ends, log.state.next_event_ms) == ((), None)


def test_a_seek_back_brings_no_message_back_that_is_too_old() -> None:
    log = Log(policy=TTL)
    log.log_end(10, at=0)
    log.settle(61)
    log.seek(3, at=62)
    log.settle(62)
    assert (log.state.read_position, log.state.totals.expired) == (10, 17)


def test_without_a_ttl_the_end_of_the_log_is_nothing_to_a_tracker() -> None:
    log = Log()
    log.log_end(10, at=0)
    log.settle(10**6)
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
    assert log.settle(1) == [dead(offsets(0, 1), 1, REJECTED, "bad")]
    state = log.state
    assert state.held == ((Held(1, REJECTED, "bad"), offsets((2, 5))),)
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
    assert log.settle(10) == [redeliver(offsets(0), 1)]
    assert log.settle(31) == [redeliver(offsets(1), 1)], "a delay is no lease"
    log.start(offsets(0), at=31, count=2)
    assert log.settle(500) == []
    assert log.state.leases == (
        (Lease(60_000, 1, A), offsets((2, 5))),
        (Lease(91_000, 2, A, 31_000), offsets(0)),
    )
    log.end_of(offsets(2), at=501)
    log.resume(at=502)
    assert log.settle(502) == [dead(offsets(0), 2, MAX_DELIVERIES, last=31), redeliver(offsets(3, 4), 1)]


def test_a_breaker_closes_by_itself_when_its_pause_is_over_and_what_it_held_goes_out() -> None:
    # 0 S X | held          601 closed: out
    log = Log(policy=GUARDED)
    log.start(offsets((0, 4)), at=0)
    log.reject(offsets((0, 4)), at=1)
    log.settle(1)
    assert log.settle(601) == []
    assert log.settle(601.001) == [dead(offsets(2, 3), 1, REJECTED, "bad")]
    state = log.state
    assert (state.held, state.breaker.is_open, state.totals.dead_lettered) == ((), False, 4)
    assert state.breaker.recent == (), "the rate counts anew"


def test_the_operator_closes_a_breaker_in_a_log_that_is_not_read_out() -> None:
    log = Log(policy=GUARDED)
    log.start(offsets((0, 4)), at=0)
    log.reject(offsets((0, 4)), at=1)
    log.resume(at=2)
    assert log.settle(None) == [
        dead(offsets(0, 1), 1, REJECTED, "bad"),
        dead(offsets(2, 3), 1, REJECTED, "bad"),
    ]


def test_what_is_held_ends_with_an_ack_and_is_not_taken_by_a_start() -> None:
    log = Log(policy=GUARDED)
    log.start(offsets((0, 8)), at=0)
    log.reject(offsets((0, 8)), at=1)
    log.start(offsets((2, 8)), at=2, count=2, run=B)
    assert log.state.held == ((Held(1, REJECTED, "bad"), offsets((2, 8))),)
    log.end_of(offsets(2), at=3)
    log.end_up_to(5, at=3)
    assert (log.state.outstanding, log.state.totals.acked) == (offsets((5, 8)), 3)
    log.hello(B, at=4)
    assert log.settle(4) == [dead(offsets(0, 1), 1, REJECTED, "bad")]
    log.seek(0, at=5)
    log.resume(at=6)
    assert log.settle(6) == []


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
    assert log.settle(100) == [
        dead(offsets(0), 2, MAX_DELIVERIES, last=1),
        dead(offsets(1), 2, MAX_DELIVERIES, last=2),
    ]
    assert log.state.held == ((Held(2, MAX_DELIVERIES, "", 3_000), offsets(2)),)


def test_while_the_breaker_is_open_nothing_is_too_old() -> None:
    policy = RedeliveryPolicy(message_ttl_ms=60_000, breaker=BreakerPolicy(limit=1, pause_ms=None))
    log = Log(policy=policy)
    log.log_end(10, at=0)
    log.hold("x", at=1)
    log.settle(1_000)
    assert (log.state.read_position, log.state.next_event_ms) == (0, None), "and no batch runs for it"
    log.resume(at=1_001)
    log.settle(1_001)
    assert (log.state.read_position, log.state.totals.expired) == (10, 10)


def test_expired_messages_do_not_trip_the_breaker() -> None:
    policy = RedeliveryPolicy(
        message_ttl_ms=60_000, expired_to=ExpiredTo.DEAD_LETTERS, breaker=BreakerPolicy(limit=1)
    )
    log = Log(policy=policy)
    log.log_end(10, at=0)
    assert log.settle(61) == [dead(offsets((0, 10)), 0, EXPIRED)]
    assert not log.state.breaker.is_open


def test_errors_without_number_are_not_all_kept() -> None:
    log = Log(policy=GUARDED)
    log.start(offsets((0, MAX_ERRORS + 10)), at=0)
    log.hold("x", at=0)
    for offset in range(MAX_ERRORS + 10):
        log.reject(offsets(offset), at=1, reason=f"order {offset}")
    held = dict(log.state.held)
    assert len(held) == MAX_ERRORS + 1
    assert held[Held(1, REJECTED, OTHER_ERRORS)] == offsets((MAX_ERRORS, MAX_ERRORS + 10))
    assert held[Held(1, REJECTED, "order 7")] == offsets(7)


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
    again.apply(End(cell=CELL, offsets=offsets(0)), at_ms=0, marker_offset=2)
    assert (again.snapshot().next_marker, again.snapshot().outstanding) == (3, offsets(2))


def test_a_marker_offset_may_leave_a_gap() -> None:
    # marker 7 is the first of this cell
    tracker = CellTracker.resume(None, cell=CELL, policy=RedeliveryPolicy())
    tracker.apply(Hello(cell=CELL, run_id=A, position=0), at_ms=0, marker_offset=7)
    assert tracker.snapshot().next_marker == 8


def test_a_snapshot_is_a_read() -> None:
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.release(offsets(1), at=1)
    assert log.state == log.state
    assert log.settle(None) == [redeliver(offsets(1), 1)]


def test_a_new_cell_is_empty_and_begins_at_the_beginning() -> None:
    state = CellTracker.resume(None, cell=CELL, policy=RedeliveryPolicy()).snapshot()
    assert state == CursorSnapshot(cell=CELL, read_position=0, next_marker=0, max_deliveries=5)
    assert (state.mark_delete, state.ack_holes, state.next_event_ms) == (-1, EMPTY, None)


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
