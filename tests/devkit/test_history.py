"""The demo's second opinion on what happened: reasons of deliveries, read off the markers."""

from __future__ import annotations

from spark_cursor_source.consumer.planner import HANDED_BACK
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Hello, KeepAlive, Marker, Reject, Release, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.devkit.demo.history import MarkerHistory, Reason

CELL = Cell(subscription="s", topic="t", partition=3)
ONE = OffsetSet.of((7, 8))
LEASE_MS = 30_000


def start(count: int, run: str = "first") -> Start:
    return Start(cell=CELL, offsets=ONE, lease_ms=LEASE_MS, delivery_count=count, run_id=run)


def released(*, delay_ms: int | None, reason: str = "", count: int = 1) -> Release:
    return Release(cell=CELL, offsets=ONE, delivery_count=count, delay_ms=delay_ms, reason=reason)


def history(*markers: tuple[int, Marker]) -> MarkerHistory:
    found = MarkerHistory()
    for at_ms, marker in markers:
        found.add(marker, at_ms=at_ms)
    return found


def reasons(*markers: tuple[int, Marker]) -> dict[Reason, int]:
    return dict(history(*markers).again)


def test_a_message_that_is_acked_was_delivered_once() -> None:
    found = history((0, start(1)), (5, End(cell=CELL, offsets=ONE)))
    assert (found.deliveries, found.again.total(), found.acked, found.in_flight) == (1, 0, {(3, 7)}, 0)


# 0 S------------------30 lease over   31 S
def test_a_lease_that_ran_out_is_the_reason_of_the_next_delivery() -> None:
    assert reasons((0, start(1)), (30_001, start(2))) == {Reason.LEASE_OVER: 1}


# 0 S------------------30   (20 K----------------50)   31 S: under a lease that still ran
def test_a_delivery_under_a_lease_that_was_kept_alive_is_unexplained() -> None:
    kept = KeepAlive(cell=CELL, offsets=ONE, lease_ms=LEASE_MS, run_id="first")
    assert reasons((0, start(1)), (20_000, kept), (31_000, start(2))) == {Reason.UNEXPLAINED: 1}


def test_a_keep_alive_of_another_run_keeps_nothing() -> None:
    kept = KeepAlive(cell=CELL, offsets=ONE, lease_ms=LEASE_MS, run_id="another")
    assert reasons((0, start(1)), (20_000, kept), (31_000, start(2))) == {Reason.LEASE_OVER: 1}


# 0 S---kill   10 H S of the next run, before 30
def test_a_delivery_by_the_next_run_under_the_lease_of_a_dead_one_is_a_replay() -> None:
    hello = Hello(cell=CELL, run_id="second", position=0)
    found = history((0, start(1)), (10_000, hello), (10_010, start(2, "second")))
    assert dict(found.again) == {Reason.REPLAYED: 1}
    assert list(found.runs) == ["first", "second"]


def test_what_a_planner_hands_back_is_a_replay_too() -> None:
    back = released(delay_ms=0, reason=HANDED_BACK)
    assert reasons((0, start(1)), (5, back), (9, start(2, "second"))) == {Reason.REPLAYED: 1}


def test_a_release_without_a_delay_is_an_exceptions_and_one_with_a_delay_the_handlers() -> None:
    failed = released(delay_ms=None, reason="ValueError: no")
    given_back = released(delay_ms=0)
    assert reasons((0, start(1)), (5, failed), (9, start(2))) == {Reason.FAILED: 1}
    assert reasons((0, start(1)), (5, given_back), (9, start(2))) == {Reason.RELEASED: 1}


# 0 S1   31 S2   32 R of delivery 1: too late, it names nobody's lease
def test_a_release_of_an_earlier_delivery_explains_nothing() -> None:
    late = released(delay_ms=0, count=1)
    found = history((0, start(1)), (31_000, start(2)), (32_000, late), (33_000, start(3)))
    assert dict(found.again) == {Reason.LEASE_OVER: 1, Reason.UNEXPLAINED: 1}


def test_a_delivery_after_an_ack_is_unexplained_however_late() -> None:
    acked = End(cell=CELL, offsets=ONE)
    assert reasons((0, start(1)), (5, acked), (99_000, start(2, "second"))) == {Reason.UNEXPLAINED: 1}


def test_a_rejected_message_is_in_nobodys_hands() -> None:
    rejected = Reject(cell=CELL, offsets=ONE, delivery_count=1, reason="no")
    assert history((0, start(1))).in_flight == 1
    assert history((0, start(1)), (5, rejected)).in_flight == 0
