"""Markers folded into rows on executors: fewer of them, and the same in effect."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, EndUpTo, Marker, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.spark.marker_rows import MarkerFold
from spark_cursor_source.wire import marker as wire

CELL = Cell(subscription="s", topic="t", partition=0)


def folded(*markers: Marker) -> list[tuple[int, Marker]]:
    """What comes out, with its sequence number."""
    fold = MarkerFold(0, "markers", None)
    for offset, marker in enumerate(markers):
        fold.add(offset, 1_000, marker.cell.key, wire.encode(marker))
    rows = [row for batch in fold.rows() for row in batch.to_pylist()]
    return sorted((row["sequence"], wire.decode_folded(row["body"])) for row in rows)


def end(offset: int, run_id: str | None = None) -> End:
    return End(cell=CELL, offsets=OffsetSet.of((offset, offset + 1)), run_id=run_id)


def test_consecutive_ends_of_a_cell_are_one_row() -> None:
    assert folded(end(1), end(2), end(5)) == [(2, End(cell=CELL, offsets=OffsetSet.of((1, 3), (5, 6))))]


def test_the_end_of_a_batch_is_not_mixed_with_those_of_messages() -> None:
    # what the first leaves, because it was never delivered, the other would end
    assert folded(end(1, "run"), end(2, "run"), end(3), end(4, "run")) == [
        (1, End(cell=CELL, offsets=OffsetSet.of((1, 3)), run_id="run")),
        (2, end(3)),
        (3, end(4, "run")),
    ]


def test_other_markers_keep_their_place_among_the_ends() -> None:
    release = Release(cell=CELL, offsets=OffsetSet.of((2, 3)), delivery_count=1, due_ms=9_000)
    up_to = EndUpTo(cell=CELL, position=9, run_id="run")
    given = [end(1), release, end(2, "run"), up_to]
    assert [marker for _, marker in folded(*given)] == given
