"""Runs that come, go and overlap, and what an operator does to them. Timelines as in ``test_tracker``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cursor_source.core.cursor import Available
from spark_cursor_source.core.marker import End, KeepAlive, Marker, Reject, Release, Start, of_topics
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.core.poison import MAX_ANNOUNCED
from spark_cursor_source.core.policy import StepBackoff
from spark_cursor_source.core.tracker import (
    MAX_DELIVERIES,
    REJECTED,
    DeadLetter,
)
from tests.core.timeline import BEGINNING, CELL, A, B, Log, available_log, dead, offsets, redeliver

# ---- Hello


def test_hello_announces_everything_available_once_to_its_run() -> None:
    # 0 S(A)----60 due, announced to A
    #                 70 H(B), announced to B
    log = available_log()
    log.start(offsets(5), at=62)
    log.hello(B, at=70)
    assert log.advance(70) == [redeliver(offsets(0), 1, run=B, alone=True)]
    assert log.advance(71) == []
    assert log.state.owner == B
    assert log.state.totals.redelivered == 2


def test_a_second_hello_of_the_same_run_announces_again() -> None:
    # 0 S----60 due   70 H(A)   80 H(A): it waits long in vain
    log = available_log()
    log.hello(A, at=70)
    assert log.advance(70) == [redeliver(offsets(0), 1)]
    log.hello(A, at=80)
    assert log.advance(80) == [redeliver(offsets(0), 1)]


def test_what_is_released_next_to_a_hello_is_announced_once() -> None:
    # 0 S  1 R  2 H(B)  and the other way round, in one batch each
    log = Log()
    log.start(offsets((0, 2)), at=0)
    log.release(offsets(0), at=1)
    log.hello(B, at=2)
    log.release(offsets(1), at=3)
    assert log.advance(None) == [
        redeliver(offsets(0), 1, run=B),
        redeliver(offsets(1), 1, run=B, alone=True),
    ]


def test_what_is_leased_is_announced_to_the_run_of_the_day_when_it_is_due() -> None:
    # 0 S(A)----60 due
    #      30 H(B)
    log = Log()
    log.start(offsets(0), at=0)
    log.hello(B, at=30)
    assert log.advance(30) == []
    assert log.advance(61) == [redeliver(offsets(0), 1, run=B, alone=True)]


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


LATE: list[tuple[Marker, str, int]] = [
    (Start(cell=CELL, offsets=offsets((0, 9)), lease_ms=60_000, delivery_count=1, run_id=B), "overlapped", 9),
    (End(cell=CELL, offsets=offsets((0, 3))), "unknown_ends", 3),
    (KeepAlive(cell=CELL, offsets=offsets(0), lease_ms=999_000, delivery_count=1), "unknown_settlements", 1),
    (Release(cell=CELL, offsets=offsets(0, 1), delivery_count=1), "unknown_settlements", 2),
    (Reject(cell=CELL, offsets=offsets(0), delivery_count=1), "unknown_settlements", 1),
]


@pytest.mark.parametrize(("late", "counted", "messages"), LATE, ids=lambda one: type(one).__name__)
def test_a_late_marker_of_a_deleted_topic_changes_nothing_in_the_cell_of_the_new_one(
    late: Marker, counted: str, messages: int
) -> None:
    # 0 Delete, H(A) of topic "new"     1 S(0-2)     2 a marker of topic "old"     3 the same of topic "new"
    log = Log()
    log.delete()
    log.hello(A, topic_id="new")
    log.start(offsets((0, 3)), at=1)
    before = log.state
    log.append(*of_topics([late], {CELL.topic: "old"}), 2)
    after = log.state
    assert getattr(after.totals, counted) == messages
    assert replace(after, totals=before.totals, next_marker=before.next_marker) == before
    log.append(*of_topics([late], {CELL.topic: "new"}), 3)
    assert replace(log.state, totals=before.totals, next_marker=before.next_marker) != before


def test_a_marker_without_a_topic_id_counts_and_so_does_one_in_a_cell_without_an_id() -> None:
    for of_cell, of_marker in ((None, "any"), ("new", None)):
        log = Log()
        log.hello(A, topic_id=of_cell)
        log.start(offsets((0, 3)), at=1)
        log.append(End(cell=CELL, offsets=offsets((0, 3)), topic_id=of_marker), 2)
        assert log.state.totals.acked == 3


def test_a_long_announcement_is_cut_into_records() -> None:
    # 0 S of many----60 due
    log = Log()
    log.start(offsets((0, MAX_ANNOUNCED + 1)), at=0)
    assert log.advance(61) == [
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
    log.advance(61)
    assert log.state.available == ((Available(1, True), offsets(0)),)


def test_a_lease_that_ran_out_before_the_next_run_began_marks_a_death_as_well() -> None:
    # 0 S(A)----60 due, to A, who takes nothing any more
    #                 70 H(B)
    log = Log(max_deliveries=2)
    log.start(offsets((0, 2)), at=0)
    assert log.advance(61) == [redeliver(offsets((0, 2)), 1)]
    assert log.state.available == ((Available(1, False, lapsed=True), offsets((0, 2))),)
    log.hello(B, at=70)
    assert log.advance(71) == [redeliver(offsets(n), 1, run=B, alone=True) for n in range(2)]
    assert log.state.available == ((Available(1, True), offsets((0, 2))),)


def test_a_lease_that_ran_out_and_waits_for_its_backoff_marks_a_death_as_well() -> None:
    # 0 S(A)----60 over----90 due
    #                70 H(B)
    log = Log(backoff=StepBackoff(delays_ms=(30_000,)))
    log.start(offsets(0), at=0)
    log.advance(61)
    log.hello(B, at=70)
    log.advance(91)
    assert log.state.available == ((Available(1, True), offsets(0)),)


def test_a_run_that_says_hello_again_is_alive() -> None:
    # 0 S(A)----60 due
    #                 61 H(A)
    log = Log()
    log.start(offsets(0), at=0)
    log.advance(61)
    log.hello(A, at=61)
    log.advance(62)
    assert log.state.available == ((Available(1, False, lapsed=True), offsets(0)),)


def test_what_was_released_before_its_run_died_is_not_suspect() -> None:
    # 0 S(A)  1 R
    #              2 H(B)
    log = Log()
    log.start(offsets(0), at=0)
    log.release(offsets(0), at=1)
    log.hello(B, at=2)
    log.advance(3)
    assert log.state.available == ((Available(1, False), offsets(0)),)


def test_after_a_death_the_last_delivery_is_planned_alone() -> None:
    # 0 S(A, 1 of 2)----60 due, each alone
    #      30 H(B)
    log = Log(max_deliveries=2)
    log.start(offsets((0, 3)), at=0)
    log.hello(B, at=30)
    assert log.advance(61) == [redeliver(offsets(n), 1, run=B, alone=True) for n in range(3)]


def test_the_death_of_a_group_of_suspects_is_not_the_last_of_its_members() -> None:
    # 0 S(A, 1 of 2)  30 H(B)  61 due, in groups of 3 -- 62 S(B, 2 of 2)  80 H(C)  123 due, each alone
    # 124 S(C, 3) of one of them  130 H(D)  185 it is a dead letter
    log = Log(max_deliveries=2)
    log.start(offsets((0, 9)), at=0)
    log.hello(B, at=30)
    groups = [offsets((n, n + 3)) for n in (0, 3, 6)]
    assert log.advance(61) == [redeliver(group, 1, run=B, alone=True) for group in groups]
    log.start(groups[0], at=62, count=2, run=B, alone=True)
    log.hello("run-c", at=80)
    log.advance(80)
    assert log.advance(123) == [redeliver(offsets(n), 2, run="run-c", alone=True) for n in range(3)]
    log.start(offsets(1), at=124, count=3, run="run-c", alone=True)
    log.hello("run-d", at=130)
    log.advance(130)
    assert [one for one in log.advance(185) if isinstance(one, DeadLetter)] == [
        dead(offsets(1), 3, MAX_DELIVERIES, last=124)
    ]


def test_a_group_whose_death_nobody_has_told_yet_is_not_at_its_last_delivery_either() -> None:
    # 0 S(A, 2 of 2), a group  61 its lease runs out while A is the owner  70 H(B)
    log = Log(max_deliveries=2)
    log.start(offsets((0, 2)), at=0, count=2, alone=True)
    assert not any(isinstance(one, DeadLetter) for one in log.advance(61))
    log.hello(B, at=70)
    assert log.advance(70) == [redeliver(offsets(n), 2, run=B, alone=True) for n in range(2)]


def test_what_one_of_a_group_gives_back_at_its_last_delivery_is_a_dead_letter() -> None:
    log = Log(max_deliveries=2)
    log.start(offsets((0, 2)), at=0, count=2, alone=True)
    log.release(offsets(0), at=1, count=2)
    assert log.advance(2) == [dead(offsets(0), 2, MAX_DELIVERIES)]


def test_without_a_death_the_last_delivery_keeps_its_company() -> None:
    # 0 S(A, 1 of 2)----60 due, together
    log = Log(max_deliveries=2)
    log.start(offsets((0, 3)), at=0)
    assert log.advance(61) == [redeliver(offsets((0, 3)), 1)]


# ---- Seek


def test_a_seek_back_makes_messages_unseen_again() -> None:
    # 0 S of 0 to 10  1 E of 0 to 5  2 Seek(3)  3 S of 3 to 6
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.end_of(offsets((0, 5)), at=1)
    log.release(offsets(7), at=1)
    log.seek(3, at=2)
    assert log.advance(1_000) == [], "what was outstanding is forgotten"
    assert (log.state.outstanding, log.state.read_position) == (EMPTY, 3)
    log.hello(B, at=3)
    log.start(offsets((3, 6)), at=4, run=B)
    assert log.state.outstanding == offsets((3, 6))


def test_a_seek_ahead_makes_messages_gone() -> None:
    # 0 S of 0 to 10  1 Seek(50)  2 S of 40 to 60
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.seek(50, at=1)
    log.hello(B, at=2)
    log.start(offsets((40, 60)), at=3, run=B)
    assert (log.state.outstanding, log.state.mark_delete) == (offsets((50, 60)), 49)
    assert log.state.totals.acked == 0, "nobody acknowledged what a seek forgets"


def test_what_a_run_that_does_not_know_of_the_seek_delivers_changes_nothing_but_a_total() -> None:
    # 0 H(A) S of 0 to 10   1 Seek(3)   2 S(A) of 10 to 14, U(A) to 20   3 H(B) S(B) of 3 to 6   4 S(A), U(A)
    log = Log()
    log.hello(A)
    log.start(offsets((0, 10)), at=0)
    log.seek(3, at=1)
    log.start(offsets((10, 14)), at=2)
    log.end_up_to(20, at=2, run=A)
    assert (log.state.owner, log.state.outstanding, log.state.read_position) == (None, EMPTY, 3)
    log.hello(B, at=3, position=10)
    log.start(offsets((3, 6)), at=3, run=B)
    log.start(offsets((14, 16)), at=4)
    log.end_up_to(20, at=4, run=A)
    assert (log.state.outstanding, log.state.read_position) == (offsets((3, 6)), 6)
    assert log.state.totals.overlapped == 4 + 2 + 3, (
        "the messages of its Starts, and those it would have ended"
    )
    log.end_up_to(6, at=5, run=B)
    log.end_up_to(8, at=5)
    assert (log.state.outstanding, log.state.read_position) == (EMPTY, 8)


def test_a_hello_never_moves_the_read_position_that_a_seek_has_set() -> None:
    # 0 Seek(0) of a cell that nobody has read   1 H(position 7)
    log = Log()
    log.seek(0)
    log.hello(A, at=1, position=7)
    assert (log.state.owner, log.state.read_position) == (A, 0)


def test_acks_of_a_batch_from_before_a_seek_end_nothing_that_is_to_come_again() -> None:
    # 0 H(A) S of 0 to 10   1 Seek(0)   2 E of 4   3 H(B) S(B) of 0 to 10
    log = Log()
    log.hello(A)
    log.start(offsets((0, 10)), at=0)
    log.seek(0, at=1)
    log.end_of(offsets(4), at=2)
    log.hello(B, at=3)
    log.start(offsets((0, 10)), at=3, run=B)
    assert log.state.outstanding == offsets((0, 10))
    assert log.state.totals.unknown_ends == 1


def test_a_seek_makes_a_cell_that_waits_for_its_first_run() -> None:
    # 0 no cell   1 Seek(5)   2 S(A)   3 H(A) S(A) of 5 to 7
    log = Log()
    log.delete()
    log.seek(5, at=1)
    log.start(offsets((0, 9)), at=2)
    assert (log.state.owner, log.state.outstanding, log.state.read_position) == (None, EMPTY, 5)
    log.hello(A, at=3)
    log.start(offsets((5, 7)), at=3)
    assert (log.state.outstanding, log.state.mark_delete) == (offsets((5, 7)), 4)


# ---- two runs at once


def test_what_a_run_delivers_that_is_not_the_owner_is_counted() -> None:
    # 0 H(A) S(A) of 0 to 4   1 H(B)   2 S(A) of 2 to 6   3 S(B) of 6 to 9
    log = Log()
    log.hello(A)
    log.start(offsets((0, 4)), at=0)
    assert log.state.totals.overlapped == 0
    log.hello(B, at=1)
    log.start(offsets((2, 6)), at=2)
    assert (log.state.totals.overlapped, log.state.read_position) == (4, 6)
    log.start(offsets((6, 9)), at=3, run=B)
    assert log.state.totals.overlapped == 4


def test_when_the_owner_was_last_heard_of_is_known_in_the_time_of_the_broker() -> None:
    # 0 H(A)   1 S(A)   2 K(A)   3 K of a sink   4 U(A)   5 E(B)   6 H(B)   7 Seek
    log = Log()
    log.hello(A)
    log.start(offsets((0, 4)), at=1)
    log.keep_alive(offsets((0, 4)), at=2, run=A)
    log.keep_alive(offsets((0, 4)), at=3, count=1)
    assert log.state.owner_seen_ms == 2_000
    log.end_up_to(2, at=4, run=A)
    log.end_of(offsets(2), at=5, run=B)
    assert log.state.owner_seen_ms == 4_000
    log.hello(B, at=6)
    assert log.state.owner_seen_ms == 6_000
    log.seek(0, at=7)
    assert log.state.owner_seen_ms == 0


# ---- Delete


def test_nothing_is_left_of_a_cell_that_is_deleted() -> None:
    # 0 S of 0 to 10  1 X of 3  2 R of 4  3 D
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.reject(offsets(3), at=1)
    log.release(offsets(4), at=2)
    log.delete(at=3)
    assert log.advance(100) == [dead(offsets(3), 1, REJECTED, "bad")], "what was decided before stays"
    assert log.tracker.snapshot() is None
    assert log.advance(200) == []


def test_a_deleted_cell_comes_to_life_by_a_hello_or_a_seek_and_by_nothing_else() -> None:
    # 0 S of 0 to 10  1 D  2 all that a run may still say which does not know of it  3 H(B)
    log = Log()
    log.start(offsets((0, 10)), at=0)
    log.delete(at=1)
    log.start(offsets((10, 20)), at=2)
    log.keep_alive(offsets((0, 10)), at=2, run=A)
    log.end_of(offsets((0, 10)), at=2)
    log.end_up_to(10, at=2, run=A)
    log.end_up_to(10, at=2)
    log.release(offsets(4), at=2)
    log.reject(offsets(4), at=2)
    log.hold("t", at=2)
    log.resume(at=2)
    log.log_end(30, at=2)
    log.delete(at=2)
    assert log.advance(100) == []
    assert log.tracker.snapshot() is None
    log.hello(B, at=3, position=10)
    assert log.state == replace(
        BEGINNING, read_position=10, next_marker=log.end, owner=B, owner_seen_ms=3_000, max_deliveries=3
    )
