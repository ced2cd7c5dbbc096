"""Dead letters that could not be written: held with the reason, and tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.cursor import MAX_ERRORS, OTHER_ERRORS, HeldLetters
from spark_cursor_source.core.delivery_times import FirstDeliveries
from spark_cursor_source.core.marker import Marker, RestoreState, SaveState, Seek
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import REJECTED
from spark_cursor_source.wire import cursor as wire
from tests.core.timeline import CELL, A, B, Log, dead, offsets, redeliver

HELD = HeldLetters(1, REJECTED, "bad", 0, "no leader", 0, 1)  # the time of the marker is not known yet


def rejected_log(count: int = 3, **options: object) -> Log:
    """So many offsets, leased and rejected at 1, whose dead letters were decided."""
    log = Log(**options)  # type: ignore[arg-type]
    log.start(offsets((0, count)), at=0)
    log.reject(offsets((0, count)), at=1)
    log.advance(1)
    assert not log.state.outstanding
    return log


def test_a_dead_letter_that_could_not_be_written_is_held_and_tried_again() -> None:
    # 0 S  1 X | 2 W of 1: held    12 | not yet   12.001 | again
    log = rejected_log()
    log.withhold(offsets(1), at=2, delay=10, error="bad")
    assert log.advance(2) == []
    held = HeldLetters(1, REJECTED, "bad", 0, "no leader", 12_000, 1)
    state = log.state
    assert (state.held, state.mark_delete, state.totals.dead_lettered) == (((held, offsets(1)),), 0, 2)
    assert state.next_event_ms == 12_000
    assert log.advance(12) == []
    assert log.advance(12.001) == [dead(offsets(1), 1, REJECTED, "bad", tries=1)]
    assert (log.state.outstanding, log.state.totals.dead_lettered) == (EMPTY, 3)


def test_a_second_failure_puts_the_next_try_off() -> None:
    log = rejected_log(1)
    log.withhold(offsets(0), at=2, delay=10)
    log.advance(13)
    log.withhold(offsets(0), at=14, delay=20, tries=2)
    assert log.advance(33) == []
    assert log.advance(35) == [dead(offsets(0), 1, REJECTED, "bad", tries=2)]


def test_the_end_of_a_whole_batch_does_not_end_a_held_message_that_was_never_delivered() -> None:
    # An expired message has no delivery. Its dead letter is still to be written.
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.end_of(offsets(1), at=1)
    log.withhold(offsets(1), at=2, count=0)
    log.end_of(offsets((0, 2)), at=3, run=A)
    assert log.state.outstanding == offsets(1, 2)
    log.end_up_to(3, at=4, run=A)
    assert log.state.outstanding == offsets(1)
    log.end_of(offsets(1), at=5)
    assert not log.state.outstanding, "an ack of the message itself ends it"


def test_what_is_held_for_a_trouble_ends_with_an_ack_and_is_neither_taken_nor_announced() -> None:
    log = rejected_log()
    log.withhold(offsets((0, 3)), at=2)
    log.start(offsets((0, 3)), at=3, count=2, run=B)
    log.hello(B, at=3)
    log.end_of(offsets(0), at=4)
    assert log.advance(4) == []
    assert (log.state.outstanding, log.state.totals.acked) == (offsets(1, 2), 1)
    log.seek(0, at=5)
    assert log.advance(100) == []


def test_the_operator_s_resume_tries_at_once() -> None:
    log = rejected_log(1)
    log.withhold(offsets(0), at=2, delay=600)
    log.resume(at=3)
    assert log.advance(3) == [dead(offsets(0), 1, REJECTED, "bad", tries=1)]


def test_while_the_breaker_is_open_nothing_is_tried_again_and_no_batch_runs_for_it() -> None:
    policy = RedeliveryPolicy(max_deliveries=3, breaker=BreakerPolicy(limit=9, pause_ms=60_000))
    log = rejected_log(1, policy=policy)
    log.withhold(offsets(0), at=2, delay=10)
    log.hold("x", at=3)
    assert log.advance(30) == []
    assert log.state.next_event_ms == 90_000
    assert log.advance(91) == [dead(offsets(0), 1, REJECTED, "bad", tries=1)]


def test_a_breaker_that_closes_lets_what_is_held_for_a_trouble_wait_for_its_time() -> None:
    policy = RedeliveryPolicy(max_deliveries=3, breaker=BreakerPolicy(limit=9, pause_ms=1_000))
    log = rejected_log(1, policy=policy)
    log.withhold(offsets(0), at=2, delay=20)
    log.hold("x", at=3)
    assert log.advance(4) == []
    assert log.advance(6) == []
    assert not log.state.breaker.is_open
    assert log.advance(23) == [dead(offsets(0), 1, REJECTED, "bad", tries=1)]


def test_a_tracker_that_is_rebuilt_from_the_cursor_reads_the_marker_again_to_the_same_end() -> None:
    # The cursor of the batch that failed holds the letters at once; its marker comes after it in the log.
    log = rejected_log()
    written = log.state.withholding([(HELD, offsets(1))])
    assert (written.mark_delete, written.totals.dead_lettered) == (0, 2)
    log.withhold(offsets(1), at=2)
    rebuilt = Log()
    rebuilt.tracker = rebuilt.tracker.resume(written, cell=written.cell, policy=rebuilt.policy)
    rebuilt.end = written.next_marker
    rebuilt.withhold(offsets(1), at=2)
    assert rebuilt.state == log.state


@pytest.mark.parametrize("back", [Seek(cell=CELL, position=1), RestoreState(cell=CELL, name="before")])
def test_a_cursor_does_not_hold_what_a_later_move_of_the_same_batch_brought_back(back: Marker) -> None:
    log = Log()
    log.start(offsets((0, 3)), at=0)
    log.append(SaveState(cell=CELL, name="before"), at=0)
    log.reject(offsets((0, 3)), at=1)
    log.append(back, at=2)
    log.advance(2)
    written = log.state.withholding([(HELD, offsets((0, 3)))])
    assert wire.decode(wire.encode(written)) == written
    assert written.outstanding.starting_at(1) == log.state.outstanding.starting_at(1)
    assert written.totals.dead_lettered == 3 - len(written.outstanding - log.state.outstanding)


def test_a_cursor_holds_a_message_of_two_letters_once() -> None:
    log = rejected_log()
    written = log.state.withholding([(HELD, offsets(0, 1)), (HELD._replace(error="worse"), offsets(1, 2))])
    assert wire.decode(wire.encode(written)).outstanding == offsets((0, 3))
    assert written.totals.dead_lettered == 0


def test_a_cursor_does_not_keep_troubles_without_number_apart() -> None:
    letters = [(HELD._replace(error=f"order {n}"), offsets(n)) for n in range(MAX_ERRORS + 10)]
    held = dict(rejected_log(MAX_ERRORS + 10).state.withholding(letters).held)
    assert len(held) == MAX_ERRORS + 1
    assert held[HELD._replace(error=OTHER_ERRORS)] == offsets((MAX_ERRORS, MAX_ERRORS + 10))


def test_what_is_leased_or_unread_is_no_dead_letter_whatever_a_marker_says() -> None:
    # After a Seek back, a marker of before it comes late.
    log = rejected_log()
    log.seek(1, at=2)
    log.hello(B, at=2)
    log.start(offsets(1), at=3, run=B)
    log.withhold(offsets(1, 2), at=4)
    assert log.advance(4) == []
    assert (log.state.held, log.state.read_position, log.state.leased) == ((), 2, offsets(1))
    log.release(offsets(1), at=5)
    assert log.advance(5) == [redeliver(offsets(1), 1, run=B)]


def test_a_cell_that_was_deleted_meanwhile_takes_nothing_back() -> None:
    log = rejected_log()
    log.delete(at=2)
    log.withhold(offsets(0), at=3)
    assert log.advance(3) == []
    assert log.tracker.snapshot() is None


def test_the_first_delivery_is_known_at_the_next_try() -> None:
    log = Log()
    log.start(offsets((0, 3)), at=7)
    log.reject(offsets((0, 3)), at=8)
    log.advance(8)
    log.withhold(offsets(1), at=9)
    log.advance(9)
    (again,) = log.advance(20)
    assert again == replace(
        dead(offsets(1), 1, REJECTED, "bad", tries=1), first_deliveries=FirstDeliveries(((0, 7_000),))
    )
    log.advance(21)
    assert log.state.first_deliveries == FirstDeliveries(()), "it was written"


def test_troubles_without_number_are_not_all_kept_apart() -> None:
    log = rejected_log(MAX_ERRORS + 10)
    for offset in range(MAX_ERRORS + 10):
        log.withhold(offsets(offset), at=2, error=f"order {offset}")
    held = dict(log.state.held)
    assert len(held) == MAX_ERRORS + 1
    rest = HeldLetters(1, REJECTED, OTHER_ERRORS, 0, "no leader", 12_000, 1)
    assert held[rest] == offsets((MAX_ERRORS, MAX_ERRORS + 10))
