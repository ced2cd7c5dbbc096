"""Saved states of a cell, and the return to one; times as in test_tracker.py."""

from __future__ import annotations

import pytest

from spark_cursor_source.core.marker import (
    UNDO,
    EndUpTo,
    ForgetState,
    Marker,
    RestoreState,
    SaveState,
    Seek,
)
from spark_cursor_source.core.tracker import MAX_SAVED, UNDO_MS, CellTracker
from tests.core.timeline import CELL, A, B, Log, offsets, redeliver


def save(name: str = "a", *, move: str = "") -> SaveState:
    return SaveState(cell=CELL, name=name, move=move)


def restore(name: str = "a", *, move: str = "", next_marker: int | None = None) -> RestoreState:
    return RestoreState(cell=CELL, name=name, move=move, next_marker=next_marker)


def at_work() -> Log:
    """Read up to 6: 1 is acked, 2 is in its second delivery, 0 and 3 to 5 are in their first."""
    log = Log()
    log.hello(A)
    log.start(offsets((0, 6)), at=0)
    log.release(offsets(2), at=0, delay=0)
    log.start(offsets(2), at=0, count=2)
    log.end_of(offsets(1))
    return log


def test_a_restore_returns_to_the_acks_and_the_deliveries_of_then() -> None:
    log = at_work()
    log.append(save(), at=1)
    log.end_of(offsets(0, (2, 6)), at=2)
    log.start(offsets((6, 9)), at=2)
    log.end_of(offsets((6, 9)), at=3)
    log.append(restore(), at=4)
    state = log.state
    assert (state.read_position, state.outstanding) == (6, offsets(0, (2, 6)))
    assert (state.owner, state.sought) == (None, True), "as after a seek"
    assert state.delivery_counts() == {1: offsets(0, (3, 6)), 2: offsets(2)}
    log.hello(B, at=5)
    assert log.advance(5) == [
        redeliver(offsets(0, (3, 6)), count=1, run=B),
        redeliver(offsets(2), count=2, run=B),
    ]


def test_a_restore_can_be_undone_and_that_too() -> None:
    log = at_work()
    log.append(save(), at=1)
    log.end_of(offsets(0, (2, 6)), at=2)
    log.append(restore(), at=3)
    log.append(restore(UNDO), at=4)
    assert (log.state.read_position, log.state.outstanding) == (6, offsets())
    log.append(restore(UNDO), at=5)
    assert log.state.outstanding == offsets(0, (2, 6))


def test_a_move_that_arrives_twice_can_be_undone() -> None:
    # 1 save, skip to 9: twice   3 undo: twice, for the state of then
    log = at_work()
    then = (log.state.read_position, log.state.outstanding)
    for number in (1, 2):
        log.append(save(UNDO, move=f"skip {number}"), at=number)
        log.tracker = CellTracker.resume(log.state, cell=CELL, policy=log.policy)
        log.end_up_to(9, at=number)
    (undo,) = log.state.saved
    assert (undo.at_ms, undo.move) == (1_000, "skip 1")
    for number in (1, 2):
        log.append(restore(UNDO, move=f"undo {number}", next_marker=undo.next_marker), at=2 + number)
    assert (log.state.read_position, log.state.outstanding) == then
    (redo,) = log.state.saved
    assert (redo.read_position, redo.outstanding, redo.move) == (9, (), "undo 1")


@pytest.mark.parametrize("move", [Seek(cell=CELL, position=3), EndUpTo(cell=CELL, position=3)])
def test_a_seek_or_skip_that_changes_nothing_keeps_the_state_before_the_last_move(move: Marker) -> None:
    log = at_work()
    for number, one in enumerate((move, move, EndUpTo(cell=CELL, position=9, run_id=A))):
        log.append(save(UNDO, move=f"{number}"), at=number)
        log.append(one, at=number)
    assert [one.move for one in log.state.saved] == ["0"], "a query's own marker is no move"
    log.append(Seek(cell=CELL, position=0), at=5)
    assert [one.move for one in log.state.saved] == ["2"]


def test_a_restore_that_arrives_twice_can_be_undone() -> None:
    log = at_work()
    log.append(save(), at=1)
    log.end_of(offsets(0, (2, 6)), at=2)
    for number in (3, 4):
        log.append(restore(move=f"{number}"), at=number)
    log.append(restore(UNDO, move="5"), at=5)
    assert (log.state.read_position, log.state.outstanding) == (6, offsets())


def test_the_state_before_a_move_of_an_earlier_version_is_replaced_always() -> None:
    log = at_work()
    for number in (1, 2):
        log.append(save(UNDO), at=number)
        log.end_up_to(9, at=number)
    assert [one.at_ms for one in log.state.saved] == [2_000]


def test_a_message_that_was_in_its_last_delivery_has_one_more() -> None:
    log = Log(max_deliveries=2)
    log.hello(A)
    log.start(offsets(0), at=0, count=2)
    log.append(save(), at=1)
    log.end_of(offsets(0), at=2)
    log.append(restore(), at=3)
    log.hello(B, at=4)
    assert log.advance(4) == [redeliver(offsets(0), count=1, run=B)]


def test_a_restore_of_an_unknown_or_forgotten_name_changes_nothing() -> None:
    log = at_work()
    log.append(save(), at=1)
    log.append(ForgetState(cell=CELL, name="a"), at=1)
    before = log.state
    log.append(restore(), at=2)
    log.append(restore("b"), at=2)
    assert log.state.outstanding == before.outstanding
    assert log.state.owner == A
    assert log.state.saved == ()


def test_a_cell_has_a_limit_of_names_beside_the_state_before_the_last_move() -> None:
    log = at_work()
    for number in range(MAX_SAVED + 1):
        log.append(save(f"{number}"), at=number)
    log.append(save(UNDO), at=20)
    log.append(save("0"), at=21)
    names = [one.name for one in log.state.saved]
    assert names == [*(f"{number}" for number in range(1, MAX_SAVED)), UNDO, "0"]


def test_the_state_before_the_last_move_is_forgotten_after_a_week() -> None:
    log = at_work()
    log.end_of(offsets(0, (2, 6)))
    log.append(save(), at=1)
    log.append(save(UNDO), at=1)
    week_s = UNDO_MS // 1000
    log.advance(1 + week_s)
    assert [one.name for one in log.state.saved] == ["a", UNDO]
    log.advance(1.001 + week_s)
    assert [one.name for one in log.state.saved] == ["a"]


def test_saved_states_survive_a_seek_and_a_restart_and_no_delete() -> None:
    log = at_work()
    log.append(save(), at=1)
    saved = log.state.saved
    log.seek(0, at=2)
    log.restart(max_deliveries=3)
    assert log.state.saved == saved
    log.delete(at=3)
    log.hello(A, at=4)
    assert log.state.saved == ()
