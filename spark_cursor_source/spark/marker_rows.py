"""Rows between the tracker's source and its processor: folded markers, cursors to resume from, ticks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import pyarrow as pa

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import End, Marker
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire

FOLDED_DDL = "markers_partition INT, sequence BIGINT, at_ms BIGINT, kind STRING, body BINARY"
_SCHEMA = pa.schema(
    [
        ("markers_partition", pa.int32()),
        ("sequence", pa.int64()),
        ("at_ms", pa.int64()),
        ("kind", pa.string()),
        ("body", pa.binary()),
    ]
)
_ROWS = 5_000
_Row = tuple[int, int, int | None, str, bytes]


class Kind(StrEnum):
    """What the body of a row is."""

    CURSOR = "cursor"  #: a cursor to resume from; its sequence is before every marker's
    MARKER = "marker"  #: a marker of V2, one or many folded; the sequence is the last one's offset
    QUARANTINED = "quarantined"  #: where a record is that is no marker, and why
    TICK = "tick"  #: the end of the batch; at_ms is the broker's time, or null where leases are not to end


class MarkerFold:
    """Markers of one partition as rows, consecutive Ends of a cell and run in one."""

    def __init__(self, partition: int, topic: str, queue_topic: str | None) -> None:
        self._partition = partition
        self._topic = topic
        self._queue_topic = queue_topic
        self._rows: list[_Row] = []
        self._ends: dict[Cell, tuple[str | None, list[OffsetSet], int, int]] = {}

    def add(self, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Take in the next record of the log."""
        try:
            marker = self._decode(key, value)
        except InvalidMarker as problem:
            why = f"{self._topic} partition {self._partition} offset {offset}: {problem}"
            self._put(offset, at_ms, Kind.QUARANTINED, why.encode())
            return
        if isinstance(marker, End):
            if marker.cell in self._ends and self._ends[marker.cell][0] != marker.run_id:
                self._flush(marker.cell)
            _, sets, _, _ = self._ends.setdefault(marker.cell, (marker.run_id, [], 0, 0))
            sets.append(marker.offsets)
            self._ends[marker.cell] = (marker.run_id, sets, offset, at_ms)
        else:
            self._flush(marker.cell)
            self._put(offset, at_ms, Kind.MARKER, marker_wire.encode(marker))

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Everything that was added."""
        for cell in list(self._ends):
            self._flush(cell)
        for at in range(0, len(self._rows), _ROWS):
            yield _batch(self._rows[at : at + _ROWS])

    def _decode(self, key: bytes | None, value: bytes | None) -> Marker:
        marker = marker_wire.decode(key, value)
        if not isinstance(marker, marker_wire.MarkerV1):
            return marker
        if self._queue_topic is None:
            raise InvalidMarker("it is of version 1, and the tracker has no option queueTopic")
        return marker.in_cell(self._queue_topic)

    def _flush(self, cell: Cell) -> None:
        ends = self._ends.pop(cell, None)
        if ends is not None:
            run_id, sets, offset, at_ms = ends
            folded = End(cell=cell, offsets=OffsetSet.union(sets), run_id=run_id)
            self._put(offset, at_ms, Kind.MARKER, marker_wire.encode(folded))

    def _put(self, offset: int, at_ms: int, kind: Kind, body: bytes) -> None:
        self._rows.append((self._partition, offset, at_ms, kind.value, body))


def cursor_rows(cursors: Iterable[CursorSnapshot]) -> Iterator[pa.RecordBatch]:
    """Rows to resume from."""
    rows: list[_Row] = [
        (cursor.markers_partition, -1, None, Kind.CURSOR.value, cursor_wire.encode(cursor))
        for cursor in cursors
    ]
    if rows:
        yield _batch(rows)


def tick_row(partition: int, stop: int, now_ms: int | None, tracker_id: str) -> pa.RecordBatch:
    """The row that ends a partition's part of a batch."""
    return _batch([(partition, stop, now_ms, Kind.TICK.value, tracker_id.encode())])


def _batch(rows: Sequence[_Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)],
        schema=_SCHEMA,
    )
