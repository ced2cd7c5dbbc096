"""Markers folded into rows on executors: fewer of them, and the same in effect."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, EndUpTo, KeepAlive, Marker, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.interop.markers_wire import kmq_end, kmq_start
from spark_cursor_source.options.reappend import MarkerFormat, ReappendOptions
from spark_cursor_source.tracker import fold as marker_rows
from spark_cursor_source.tracker import rows as tracker_rows
from spark_cursor_source.tracker.fold import MarkerFold
from spark_cursor_source.tracker.rows import folded_batches
from spark_cursor_source.wire import marker as wire
from tests.kafka.ways import NEEDS_NATIVE

CELL = Cell(subscription="s", topic="t", partition=0)


def folded(*markers: Marker) -> list[tuple[int, Marker]]:
    """What comes out, with its sequence number."""
    fold = MarkerFold(0, "markers", None)
    for offset, marker in enumerate(markers):
        fold.add(offset, 1_000, marker.cell.key, wire.encode(marker))
    rows = [row._asdict() for row in fold.rows()]
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


def test_the_ends_of_two_topics_of_a_name_are_not_mixed() -> None:
    old, new = replace(end(3), topic_id="old"), replace(end(4), topic_id="new")
    assert folded(old, new, end(5)) == [(0, old), (1, new), (2, end(5))]


def test_a_keep_alive_of_another_topic_does_not_replace_one() -> None:
    old, new = replace(keep(1_000, 0, 9), topic_id="old"), replace(keep(2_000, 0, 9), topic_id="new")
    assert [one for _, one in folded(old, new)] == [old, new]


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
        given.append(len(list(fold.ready())))
    assert given == [0, 0, 0, 2_000, 0, 0, 0, 2_000, 0, 0]
    assert len(list(fold.rows())) == 1_000
    assert list(fold.rows()) == []


def test_no_batch_of_rows_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_rows, "_BATCH_BYTES", 10_000)
    fold = MarkerFold(0, "markers", None)
    reject = Reject(cell=CELL, offsets=OffsetSet.of((0, 1)), delivery_count=1, reason="x" * 400)
    for at in range(100):
        fold.add(at, 0, CELL.key, wire.encode(reject))
    sizes = [batch.nbytes for batch in folded_batches(fold.rows())]
    assert len(sizes) > 3
    assert max(sizes) < 13_000


_STARTED = wire.encode_v1(wire.MarkerV1(queue_id=b"q1", type=0, partition=3, offset=7, value=b"v"))
_OF_KMQ = [*kmq_start(3, 7, 2_000), *kmq_end(3, 7)]


@pytest.mark.parametrize(
    ("marker_format", "records", "rows"),
    [
        pytest.param(
            MarkerFormat.PROTOBUF,
            [
                (b"q1", _STARTED),
                (CELL.key, wire.encode(end(1))),
                (None, _STARTED),
                (b"q1", None),
                (CELL.key, wire.encode(end(2))),
                (b"q1", _STARTED[:-1]),
            ],
            5,
            marks=NEEDS_NATIVE,
        ),
        (
            MarkerFormat.KMQ,
            [tuple(_OF_KMQ[:2]), (None, b"\0"), tuple(_OF_KMQ[2:]), (_OF_KMQ[0], None), (_OF_KMQ[0], b"\2")],
            4,
        ),
    ],
)
def test_columns_of_the_native_reader_are_folded_as_messages_are(
    marker_format: MarkerFormat, records: list[tuple[bytes | None, bytes | None]], rows: int
) -> None:
    reappend = ReappendOptions(
        queue_topic="jobs", marker_format=marker_format, max_deliveries=None, dead_letter_topic="dead"
    )
    keys, values = [key for key, _ in records], [value for _, value in records]
    times_ms = list(range(1_000, 1_000 + len(records)))
    columns = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "offset": pa.array(range(len(records)), pa.int64()),
            "timestamp": pa.array(times_ms, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        }
    )
    one_by_one, by_message, by_column = (MarkerFold(0, "markers", reappend) for _ in range(3))
    for at, (key, value) in enumerate(records):
        one_by_one.add(at, times_ms[at], key, value)
    by_message.add_all(range(len(records)), times_ms, keys, values)
    by_column.add_columns(columns, None)
    expected = list(by_message.rows())
    assert list(by_column.rows()) == list(one_by_one.rows()) == expected
    assert by_column.kinds == by_message.kinds == one_by_one.kinds
    assert len(expected) == rows


def test_a_marker_that_is_not_folded_goes_on_with_the_bytes_of_its_record() -> None:
    unknown_field = bytes.fromhex("f87f01")  # of a later version, which encoding again would drop
    for marker in (keep(60_000, 0, 9), Release(cell=CELL, offsets=OffsetSet.of((2, 3)), delivery_count=1)):
        fold, value = MarkerFold(0, "markers", None), wire.encode(marker) + unknown_field
        fold.add(0, 1_000, CELL.key, value)
        (row,) = fold.rows()
        assert row.body == value
