"""The ack of a whole batch ends what its run has leased, and nothing that the sink gave back or left."""

from __future__ import annotations

from tests.core.timeline import A, B, Log, dead, offsets, redeliver


def test_what_was_released_rejected_or_left_is_not_ended_with_its_batch() -> None:
    # S(0-5) -- 1 released, 2 released for later, 3 rejected, 4 left -- E of the batch ends 0 and 5
    log = Log()
    log.start(offsets((0, 6)), at=0)
    log.release(offsets(1), at=1)
    log.release(offsets(2), at=1, delay=30)
    log.reject(offsets(3), at=1)
    log.leave(offsets(4), at=1)
    log.end_leased(offsets((0, 6)), at=2)
    assert log.advance(3) == [dead(offsets(3), 1, "rejected", "bad"), redeliver(offsets(1), 1)]
    assert log.state.outstanding == offsets(1, 2, 4)
    assert (log.state.totals.acked, log.state.totals.unknown_ends) == (2, 0)


def test_a_left_message_is_leased_until_its_time_and_comes_back() -> None:
    # S----60 left -- E of the batch -- lease over at 60: announced -- S(0, 2) E of its batch: gone
    log = Log()
    log.start(offsets(0), at=0)
    log.leave(offsets(0), at=1)
    log.end_leased(offsets(0), at=2)
    assert log.advance(60) == []
    assert log.advance(61) == [redeliver(offsets(0), 1)]
    log.start(offsets(0), at=62, count=2)
    log.end_leased(offsets(0), at=63, count=2)
    assert not log.state.outstanding


def test_a_left_message_is_acked_released_and_extended_like_any_other() -> None:
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.leave(offsets((0, 3)), at=1)
    log.end_of(offsets(0), at=2)
    log.release(offsets(1), at=2)
    log.keep_alive(offsets(2), at=30, count=1)
    log.end_leased(offsets((0, 3)), at=31)
    assert log.advance(61) == [redeliver(offsets(1), 1)]
    assert log.state.outstanding == offsets(1, 2)


def test_a_lease_that_expired_before_the_end_of_its_batch_comes_back() -> None:
    # The sink may have released the message when its lease was over, which changed nothing.
    log = Log()
    log.start(offsets(0, 1), at=0)
    assert log.advance(61) == [redeliver(offsets(0, 1), 1)]
    log.release(offsets(0), at=62)
    log.end_leased(offsets(0, 1), at=63)
    assert log.state.outstanding == offsets(0, 1)


def test_what_another_run_has_leased_since_stays_with_it() -> None:
    # A: S(0-1) --------------------------- E of the batch     B: S(0, 2)
    log = Log()
    log.start(offsets(0, 1), at=0, run=A)
    log.start(offsets(0), at=10, run=B, count=2)
    log.end_leased(offsets(0, 1), at=20, run=A)
    assert log.state.outstanding == offsets(0)
    log.end_leased(offsets(0), at=21, run=B, count=2)
    assert not log.state.outstanding


def test_a_batch_whose_rows_had_another_delivery_count_than_their_lease_is_not_ended() -> None:
    # B delivers (0, 2) as A does at the same time; the lease has count 3, so that B's release is of no lease.
    log = Log(max_deliveries=5)
    log.start(offsets(0), at=0, run=A)
    log.advance(61)
    log.start(offsets(0), at=62, run=A, count=2)
    log.start(offsets(0), at=63, run=B, count=2)
    log.release(offsets(0), at=64, count=2)
    log.end_leased(offsets(0), at=65, run=B, count=2)
    assert log.state.outstanding == offsets(0)


def test_messages_that_are_not_due_are_not_ended_with_their_batch() -> None:
    log = Log()
    log.start(offsets(0, 1), at=0)
    log.not_due(offsets(0), at=1, due=100)
    log.end_leased(offsets(0, 1), at=2)
    assert log.state.outstanding == offsets(0)


def test_a_leave_of_an_old_delivery_or_of_no_lease_changes_nothing_and_is_counted() -> None:
    log = Log()
    log.start(offsets(0), at=0)
    log.leave(offsets(0, 7), at=1, count=2)
    log.end_leased(offsets(0), at=2)
    assert not log.state.outstanding
    assert log.state.totals.unknown_settlements == 2


def test_what_a_planner_leaves_of_a_dead_run_is_left_of_that_run_only() -> None:
    # A: S(0), and it dies | B: S(1) | a third run leaves 0 and 1 to A: it does not know who has leased 1
    log = Log()
    log.start(offsets(0), at=0, run=A)
    log.start(offsets(1), at=1, run=B)
    log.leave(offsets((0, 9)), at=2, run=A)
    log.end_leased(offsets((0, 9)), at=3, run=A)
    log.end_leased(offsets((0, 9)), at=3, run=B)
    assert log.state.outstanding == offsets(0)
    assert log.state.totals.unknown_settlements == 0


def test_the_same_start_again_keeps_what_was_left_and_a_later_delivery_does_not() -> None:
    log = Log()
    log.start(offsets(0), at=0)
    log.leave(offsets(0), at=1)
    log.start(offsets(0), at=2)
    log.end_leased(offsets(0), at=3)
    assert log.state.outstanding == offsets(0)
    log.start(offsets(0), at=4, run=B, count=2)
    log.end_leased(offsets(0), at=5, run=B, count=2)
    assert not log.state.outstanding
