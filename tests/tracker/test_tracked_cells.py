"""What the driver of a tracker knows of its cells, after any changes of their cursors."""

from __future__ import annotations

from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Delayed, MarkersLog
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.tracker.tracked_cells import TrackedCells


def cursor(name: str, number: int, *, due_ms: int | None = None, **given: object) -> CursorSnapshot:
    """A cursor in the markers partition of the same number."""
    delayed = () if due_ms is None else ((Delayed(due_ms, 1, died=False), OffsetSet.of((0, 1))),)
    fields = {
        "cell": Cell(subscription=name, topic="t", partition=number),
        "read_position": 1,
        "next_marker": 0,
        "markers_partition": number,
        "delayed": delayed,
    }
    return CursorSnapshot(**{**fields, **given})  # type: ignore[arg-type]


def tracked(*cursors: CursorSnapshot) -> tuple[TrackedCells, dict[Cell, CursorSnapshot]]:
    """The cells of these cursors, and the present cursors."""
    present = {one.cell: one for one in cursors}
    cells = TrackedCells(present.get)
    cells.update(present)
    return cells, present


def test_partitions_are_due_by_their_own_time() -> None:
    cells, _ = tracked(cursor("a", 0, due_ms=100), cursor("b", 0, due_ms=50), cursor("a", 1), cursor("a", 2))
    assert cells.due({0: 50, 1: 999}) == frozenset()
    assert cells.due({0: 51, 1: 999}) == {0}
    assert cells.due({1: 999}) == frozenset()
    waiting = cells.waiting()
    assert waiting.keys() == {0}
    assert waiting[0].partition == 0
    found = {(cell.subscription, number, at_ms) for cell, number, at_ms in cells.of({0, 2})}
    assert found == {("a", 0, 100), ("b", 0, 50), ("a", 2, None)}


def test_a_change_replaces_what_was_known() -> None:
    early, opened = cursor("a", 0, due_ms=50), cursor("a", 1, breaker=Breaker(trip="x", opened_ms=1))
    cells, present = tracked(early, opened)
    assert cells.with_breaker() == ["a"]
    assert cells.has_open_breaker()
    later, closed = cursor("a", 0, due_ms=500, next_marker=9), cursor("a", 1)
    present |= {later.cell: later, closed.cell: closed}
    cells.update({later.cell: later, closed.cell: closed})
    assert cells.due({0: 100}) == frozenset()
    assert cells.with_breaker() == []
    assert not cells.has_open_breaker()
    assert list(cells.cursors("a")) == [later, closed]
    assert cells.next_marker(0) == 9


def test_a_deleted_cell_is_forgotten() -> None:
    one = cursor("a", 0, due_ms=50, log=MarkersLog("markers", "id"))
    cells, present = tracked(one)
    assert (len(cells), cells.partition(one.cell), cells.log_ids) == (1, 0, {"id"})
    present.clear()
    cells.update({one.cell: None})
    assert (len(cells), cells.partition(one.cell), cells.due({0: 999})) == (0, None, frozenset())
    assert list(cells.cursors("a")) == []
    assert cells.waiting() == {}
