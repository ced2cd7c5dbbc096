"""The operator's markers: a pause, its end, and messages queued again; times as in test_tracker.py."""

from __future__ import annotations

from spark_cursor_source.core.cursor import Available, Lease
from spark_cursor_source.core.limits import NO_LIMITS, Limits
from spark_cursor_source.core.marker import EndPause, Pause, Requeue, Seek, SetLimits
from spark_cursor_source.core.offsets import EMPTY
from tests.core.timeline import CELL, A, B, Log, dead, offsets, redeliver


def test_a_pause_is_remembered_with_its_time_until_it_ends() -> None:
    log = Log()
    log.hello(A)
    log.append(Pause(cell=CELL), at=2)
    log.append(Pause(cell=CELL), at=3)
    assert log.state.paused_ms == 2_000, "since the first of them"
    log.append(Seek(cell=CELL, position=7), at=4)
    assert log.state.paused_ms == 2_000
    log.append(EndPause(cell=CELL), at=5)
    assert log.state.paused_ms is None


def test_the_last_limits_hold_over_a_seek_and_until_they_are_removed() -> None:
    log = Log()
    log.hello(A)
    log.append(SetLimits(cell=CELL, limits=Limits(rate=9.0, max_outstanding=3)), at=2)
    log.append(SetLimits(cell=CELL, limits=Limits(rate=2.5)), at=3)
    log.append(Seek(cell=CELL, position=7), at=4)
    assert log.state.limits == Limits(rate=2.5)
    log.append(SetLimits(cell=CELL, limits=NO_LIMITS), at=5)
    assert log.state.limits == NO_LIMITS


def test_leases_run_on_in_a_pause_and_are_announced_when_they_end() -> None:
    # 0 S----1 due, paused since 0.5
    log = Log()
    log.hello(A)
    log.start(offsets(0), at=0, lease=1)
    log.append(Pause(cell=CELL), at=0.5)
    assert log.advance(1.5) == [redeliver(offsets(0), count=1)]
    assert log.state.leases == ()


def test_a_dead_letter_that_is_queued_again_begins_anew() -> None:
    log = Log()
    log.hello(A)
    log.start(offsets((0, 4)), at=0)
    log.reject(offsets((1, 3)))
    assert log.advance(1) == [dead(offsets((1, 3)), reason="rejected", count=1, error="bad", last=0)]
    log.end_of(offsets(0, 3))
    log.append(Requeue(cell=CELL, offsets=offsets((1, 3))), at=2)
    assert log.advance(2) == [redeliver(offsets((1, 3)), count=0)]
    assert log.state.mark_delete == 0
    log.start(offsets((1, 3)), at=3)
    assert log.state.leases == ((Lease(63_000, 1, A, 3_000), offsets((1, 3))),)
    log.end_of(offsets((1, 3)))
    assert log.state.outstanding == EMPTY
    assert log.state.mark_delete == 3


def test_only_what_is_gone_is_queued_again() -> None:
    log = Log()
    log.hello(A)
    log.start(offsets((0, 3)), at=0)
    log.end_of(offsets(0))
    log.append(Requeue(cell=CELL, offsets=offsets((0, 9))), at=1)
    assert log.state.available == ((Available(0, died=False), offsets(0)),), "1 is leased, 3 is unseen"
    assert log.state.read_position == 3


def test_what_is_queued_again_is_announced_to_the_next_run_too() -> None:
    log = Log()
    log.hello(A)
    log.start(offsets(0), at=0)
    log.end_of(offsets(0))
    log.append(Requeue(cell=CELL, offsets=offsets(0)), at=1)
    assert log.advance(1) == [redeliver(offsets(0), count=0)]
    log.hello(A, at=2)
    assert log.advance(2) == [], "a run hears of it once"
    log.hello(B, at=3)
    assert log.advance(3) == [redeliver(offsets(0), count=0, run=B)]
