"""Markers folded into rows on executors: fewer of them, and the same in effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, EndUpTo, KeepAlive, Marker, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.tracker import fold as marker_rows
from spark_cursor_source.tracker import rows as tracker_rows
from spark_cursor_source.tracker.fold import MarkerFold
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


def test_the_ends_of_gaps_are_not_mixed_with_those_of_messages() -> None:
    gap = replace(end(2), no_message=True)
    assert [marker for _, marker in folded(end(1), gap, end(3))] == [end(1), gap, end(3)]


def test_other_markers_keep_their_place_among_the_ends() -> None:
    release = Release(cell=CELL, offsets=OffsetSet.of((2, 3)), delivery_count=1, due_ms=9_000)
    up_to = EndUpTo(cell=CELL, position=9, run_id="run")
    given = [end(1), release, end(2, "run"), up_to]
    assert [marker for _, marker in folded(*given)] == given


def keep(lease_ms: int, *span: int, run_id: str | None = "run") -> KeepAlive:
    return KeepAlive(cell=CELL, offsets=OffsetSet.of((span[0], span[1])), lease_ms=lease_ms, run_id=run_id)


def test_keep_alives_of_a_run_are_the_last_one_also_among_ends() -> None:
    given = [keep(60_000, 0, 9), end(3), keep(60_000, 0, 9), end(4), keep(60_000, 0, 9)]
    acked = End(cell=CELL, offsets=OffsetSet.of((3, 5)))
    assert folded(*given) == [(3, acked), (4, keep(60_000, 0, 9))]


@pytest.mark.parametrize(
    "later", [keep(60_000, 0, 8), keep(59_000, 0, 9), keep(60_000, 0, 9, run_id="next")], ids=str
)
def test_a_keep_alive_that_says_less_does_not_replace_another(later: KeepAlive) -> None:
    assert [marker for _, marker in folded(keep(60_000, 0, 9), later)] == [keep(60_000, 0, 9), later]


def test_a_keep_alive_stays_before_a_marker_of_another_kind() -> None:
    release = Release(cell=CELL, offsets=OffsetSet.of((2, 3)), delivery_count=1)
    given = [keep(60_000, 0, 9), release, keep(60_000, 0, 9)]
    assert [marker for _, marker in folded(*given)] == given


def test_a_long_log_is_given_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_rows, "_GATHERED", 2_000)
    fold = MarkerFold(0, "markers", None)
    release = Release(cell=CELL, offsets=OffsetSet.of((2, 3)), delivery_count=1)
    value = wire.encode(release)
    given = []
    for at in range(0, 5_000, 500):
        fold.add_all(range(at, at + 500), [0] * 500, [CELL.key] * 500, [value] * 500)
        given.append(sum(batch.num_rows for batch in fold.ready()))
    assert given == [0, 0, 0, 2_000, 0, 0, 0, 2_000, 0, 0]
    assert sum(batch.num_rows for batch in fold.rows()) == 1_000
    assert list(fold.rows()) == []


def test_no_batch_of_rows_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_rows, "_BATCH_BYTES", 10_000)
    fold = MarkerFold(0, "markers", None)
    reject = Reject(cell=CELL, offsets=OffsetSet.of((0, 1)), delivery_count=1, reason="x" * 400)
    for at in range(100):
        fold.add(at, 0, CELL.key, wire.encode(reject))
    sizes = [batch.nbytes for batch in fold.rows()]
    assert len(sizes) > 3
    assert max(sizes) < 13_000
