"""A cell whose cursor cannot be read is held, and everything else of its partition goes on."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Delete, Hello, Marker, Seek, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.tracker.memory import CellsInMemory, TableInMemory
from spark_cursor_source.tracker.partition_state import PartitionState
from spark_cursor_source.tracker.rows import Decided, Folded, FoldedRow
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire

TORN = Cell(subscription="torn", topic="t", partition=0)
OTHER = Cell(subscription="other", topic="t", partition=0)


class Held:
    """A partition with a held cell."""

    def __init__(self) -> None:
        self.cells, self._next = CellsInMemory(), 0
        self.state = PartitionState(lambda _: RedeliveryPolicy(), self.cells, TableInMemory())
        self.state.hold(TORN.key)

    def decided(self, *markers: Marker) -> set[tuple[str, bytes]]:
        """The kinds of decisions that follow from these markers, each with its cell."""
        rows = []
        for marker in markers:
            body = marker_wire.encode(marker)
            rows.append(FoldedRow(0, self._next, 1_000, Folded.MARKER.value, body))
            self._next += 1
        return {(one.kind, one.cell) for one in self.state.advance(0, rows)}


def started(cell: Cell) -> Start:
    return Start(cell=cell, offsets=OffsetSet.of((5, 9)), lease_ms=1_000, delivery_count=1, run_id="r")


def test_markers_of_a_held_cell_change_nothing_and_those_of_others_do() -> None:
    held = Held()
    greeted = [Hello(cell=cell, run_id="r", position=5) for cell in (TORN, OTHER)]
    decided = held.decided(*greeted, started(TORN), started(OTHER))
    assert decided == {(Decided.CURSOR.value, OTHER.key)}
    assert held.cells.get(OTHER.key)
    assert not held.cells.get(TORN.key)


def test_a_seek_creates_a_held_cell_again() -> None:
    held = Held()
    assert held.decided(started(TORN), Seek(cell=TORN, position=7)) == {(Decided.CURSOR.value, TORN.key)}
    stored = held.cells.get(TORN.key)
    assert stored is not None
    assert cursor_wire.decode(stored).read_position == 7
    greeted = Hello(cell=TORN, run_id="r", position=0)
    assert held.decided(greeted) == {(Decided.CURSOR.value, TORN.key)}


def test_a_held_cell_stays_held_where_its_state_is_opened_again() -> None:
    held = Held()
    held.decided(started(TORN))
    held.state = PartitionState(lambda _: RedeliveryPolicy(), held.cells, TableInMemory())
    assert held.decided(started(TORN)) == set()
    assert held.decided(Seek(cell=TORN, position=7)) == {(Decided.CURSOR.value, TORN.key)}


def test_a_held_cell_can_be_deleted() -> None:
    held = Held()
    assert held.decided(Delete(cell=TORN)) == {(Decided.DELETED.value, TORN.key)}
    assert held.decided(started(TORN)) == set()
