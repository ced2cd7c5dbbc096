"""Folds markers: many markers of a cell become one row of the tracker's input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Message

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, KeepAlive
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker_offset import append_time
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.interop import markers_wire as message_wire
from spark_cursor_source.interop.lease_table import Column, MessageMarkers
from spark_cursor_source.kafka.range_consumer import columns_of
from spark_cursor_source.options.reappend import MarkerFormat, ReappendOptions
from spark_cursor_source.tracker.rows import Folded, FoldedRow
from spark_cursor_source.wire import marker as marker_wire

_MARKERS = 50_000  # largest number of single-message markers in one row
# Number and size of the records folded before rows are produced.
_GATHERED = 200_000
_GATHERED_BYTES = 32 << 20
_V1, _KMQ = "MarkerV1", "kmq"  # types of markers that are not decoded one by one


class _KindOfEnd(NamedTuple):
    """Properties that Ends must share to be folded into one."""

    run_id: str | None
    no_message: bool
    topic_id: str | None


class _Kept(NamedTuple):
    """A KeepAlive that waits for one that replaces it."""

    marker: KeepAlive
    offset: int
    at_ms: int
    body: bytes


class MarkerFold:
    """Folds markers of one partition into rows: consecutive Ends or KeepAlives of a cell and run in one.

    With ``reappend`` options, single-message markers are accepted too and kept in columns. :meth:`ready`
    yields rows while markers are added, so that a backlog of any length needs little memory.
    """

    def __init__(self, partition: int, topic: str, reappend: ReappendOptions | None) -> None:
        self._partition = partition
        self._topic = topic
        self._reappend = reappend
        self._is_kmq = reappend is not None and reappend.marker_format is MarkerFormat.KMQ
        self._rows: list[FoldedRow] = []
        self._ends: dict[Cell, tuple[_KindOfEnd, list[OffsetSet], int, int]] = {}
        self._kept: dict[Cell, _Kept] = {}  # last KeepAlive of each cell
        self._columns: list[MessageMarkers] = []
        self._messages: list[message_wire.Row] = []  # single-message markers that were not decoded in columns
        self._gathered = self._gathered_bytes = 0  # records and bytes added since rows were last produced
        self.kinds: Counter[str] = Counter()  #: markers added, by type

    def add_messages(self, messages: Sequence[Message], read_between: tuple[int, int] | None) -> None:
        """Adds the next records of the log, which were read at a time in ``read_between``.

        Append times outside ``read_between`` are replaced, see :func:`append_time`.
        """
        offsets, times_ms, keys, values = columns_of(messages)
        if read_between is not None:
            times_ms = [append_time(at_ms, read_between) for at_ms in times_ms]
        self.add_all(offsets, times_ms, keys, values)

    def add_all(
        self,
        offsets: Sequence[int],
        times_ms: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        """Adds the next records of the log."""
        self._gathered += len(offsets)
        self._gathered_bytes += sum(map(len, filter(None, values)))
        places: Iterable[int] = range(len(offsets))
        if self._reappend is not None:
            decode = message_wire.usual_kmq if self._is_kmq else message_wire.usual_v1
            columns, places = decode(offsets, times_ms, keys, values)
            self._add_usual(columns)
        for at in places:
            self.add(offsets[at], times_ms[at], keys[at], values[at])

    @property
    def takes_columns(self) -> bool:
        """True if most records are single-message markers, which :meth:`add_columns` decodes."""
        return self._reappend is not None

    def add_columns(self, records: pa.RecordBatch, read_between: tuple[int, int] | None) -> None:
        """Adds the next records of the log, as columns of the native reader. See :meth:`add_messages`."""
        times_ms: Column = records.column("timestamp").cast(pa.int64()).to_numpy() // 1000
        if read_between is not None:
            earliest, latest = read_between
            times_ms[(times_ms < earliest) | (times_ms > latest)] = latest
        keys, values = records.column("key"), records.column("value")
        self._gathered += len(records)
        self._gathered_bytes += values.nbytes
        decode = message_wire.usual_kmq_columns if self._is_kmq else message_wire.usual_v1_columns
        columns, others = decode(records, times_ms)
        self._add_usual(columns)
        offsets = records.column("offset")
        for at in others:
            self.add(offsets[at].as_py(), int(times_ms[at]), keys[at].as_py(), values[at].as_py())

    def _add_usual(self, columns: MessageMarkers) -> None:
        self._columns.append(columns)
        self.kinds[_KMQ if self._is_kmq else _V1] += len(columns)

    def add(self, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Adds the next record of the log."""
        try:
            self._take(offset, at_ms, key, value)
        except InvalidMarker as problem:
            why = f"{self._topic} partition {self._partition} offset {offset}: {problem}"
            self._put(offset, at_ms, Folded.QUARANTINED, why.encode())

    @property
    def gathered(self) -> int:
        """Number of records added since rows were last produced."""
        return self._gathered

    def ready(self) -> Iterator[FoldedRow]:
        """Yields rows if enough records were added, otherwise no row."""
        if self._gathered >= _GATHERED or self._gathered_bytes >= _GATHERED_BYTES:
            yield from self.rows()

    def rows(self) -> Iterator[FoldedRow]:
        """Yields rows for all records added since rows were last produced."""
        for cell in [*self._ends, *self._kept]:
            self._flush(cell)
        yield from self._rows
        markers = MessageMarkers.concatenated([*self._columns, MessageMarkers.of(self._messages)]).sorted()
        for at in range(0, len(markers), _MARKERS):
            some, kind = markers[at : at + _MARKERS], Folded.MESSAGES.value
            body = message_wire.encode(some)
            yield FoldedRow(self._partition, int(some.sequences[-1]), None, kind, body)
        self._rows, self._columns, self._messages = [], [], []
        self._gathered = self._gathered_bytes = 0

    def _take(self, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        if self._is_kmq:
            self._messages.append(message_wire.kmq_row(offset, at_ms, key, value))
            self.kinds[_KMQ] += 1
            return
        marker = marker_wire.decode(key, value)
        self.kinds[type(marker).__name__] += 1
        if isinstance(marker, marker_wire.MarkerV1):
            if self._reappend is None:
                raise InvalidMarker("it is of version 1, and the tracker has no option redelivery=reappend")
            self._messages.append(message_wire.row_of(offset, at_ms, marker))
        elif isinstance(marker, End):
            kind = _KindOfEnd(marker.run_id, marker.no_message, marker.topic_id)
            if marker.cell in self._ends and self._ends[marker.cell][0] != kind:
                self._flush(marker.cell)
            _, sets, _, _ = self._ends.setdefault(marker.cell, (kind, [], 0, 0))
            sets.append(marker.offsets)
            self._ends[marker.cell] = (kind, sets, offset, at_ms)
        elif isinstance(marker, KeepAlive):
            # Ends and KeepAlives of a cell may be reordered: a KeepAlive never extends ended messages.
            if (earlier := self._kept.get(marker.cell)) is not None and not _replaces(marker, at_ms, earlier):
                self._put(earlier.offset, earlier.at_ms, Folded.MARKER, earlier.body)
            self._kept[marker.cell] = _Kept(marker, offset, at_ms, value or b"")
        else:
            self._flush(marker.cell)
            self._put(offset, at_ms, Folded.MARKER, value or b"")

    def _flush(self, cell: Cell) -> None:
        ends = self._ends.pop(cell, None)
        if ends is not None:
            kind, sets, offset, at_ms = ends
            folded = End(cell=cell, offsets=OffsetSet.union(sets), **kind._asdict())
            self._put(offset, at_ms, Folded.MARKER, marker_wire.encode(folded))
        if (kept := self._kept.pop(cell, None)) is not None:
            self._put(kept.offset, kept.at_ms, Folded.MARKER, kept.body)

    def _put(self, offset: int, at_ms: int, kind: Folded, body: bytes) -> None:
        self._rows.append(FoldedRow(self._partition, offset, at_ms, kind.value, body))


def _replaces(later: KeepAlive, at_ms: int, kept: _Kept) -> bool:
    """True if the later KeepAlive covers the whole effect of the earlier one."""
    earlier = kept.marker
    return (
        (later.run_id, later.delivery_count, later.topic_id)
        == (earlier.run_id, earlier.delivery_count, earlier.topic_id)
        and at_ms + later.lease_ms >= kept.at_ms + earlier.lease_ms
        and not earlier.offsets - later.offsets
    )
