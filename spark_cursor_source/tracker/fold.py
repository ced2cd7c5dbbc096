"""Folds markers on executors: many markers of a cell become one row of the tracker's query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, KeepAlive
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.interop import markers_wire as message_wire
from spark_cursor_source.interop.lease_table import MessageMarkers
from spark_cursor_source.options.reappend import MarkerFormat, ReappendOptions
from spark_cursor_source.tracker.rows import Folded, FoldedRow, folded_batch, folded_batches
from spark_cursor_source.wire import marker as marker_wire

_MARKERS = 50_000  # largest number of single-message markers in one row
# Number and size of the records folded before rows are produced.
_GATHERED = 200_000
_GATHERED_BYTES = 32 << 20


class _KindOfEnd(NamedTuple):
    """Properties that Ends must share to be folded into one."""

    run_id: str | None
    no_message: bool


class MarkerFold:
    """Folds markers of one partition into rows: consecutive Ends or KeepAlives of a cell and run in one.

    With ``reappend`` options, single-message markers are accepted too and kept in columns. :meth:`ready`
    yields rows while markers are added, so that a backlog of any length needs little memory.
    """

    def __init__(self, partition: int, topic: str, reappend: ReappendOptions | None) -> None:
        self._partition = partition
        self._topic = topic
        self._reappend = reappend
        self._rows: list[FoldedRow] = []
        self._ends: dict[Cell, tuple[_KindOfEnd, list[OffsetSet], int, int]] = {}
        # last KeepAlive of each cell, with its offset and time
        self._kept: dict[Cell, tuple[KeepAlive, int, int]] = {}
        self._columns: list[MessageMarkers] = []
        self._messages: list[message_wire.Row] = []  # single-message markers that were not decoded in columns
        self._gathered = self._gathered_bytes = 0  # records and bytes added since rows were last produced

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
        if self._reappend is not None and self._reappend.marker_format is MarkerFormat.PROTOBUF:
            columns, places = message_wire.usual_v1(offsets, times_ms, keys, values)
            self._columns.append(columns)
        for at in places:
            self.add(offsets[at], times_ms[at], keys[at], values[at])

    def add(self, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Adds the next record of the log."""
        try:
            self._take(offset, at_ms, key, value)
        except InvalidMarker as problem:
            why = f"{self._topic} partition {self._partition} offset {offset}: {problem}"
            self._put(offset, at_ms, Folded.QUARANTINED, why.encode())

    def ready(self) -> Iterator[pa.RecordBatch]:
        """Yields rows if enough records were added, otherwise no row."""
        if self._gathered >= _GATHERED or self._gathered_bytes >= _GATHERED_BYTES:
            yield from self.rows()

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yields rows for all records added since rows were last produced."""
        for cell in [*self._ends, *self._kept]:
            self._flush(cell)
        yield from folded_batches(self._rows)
        markers = MessageMarkers.concatenated([*self._columns, MessageMarkers.of(self._messages)]).sorted()
        for at in range(0, len(markers), _MARKERS):
            some = markers[at : at + _MARKERS]
            row = (
                self._partition,
                int(some.sequences[-1]),
                None,
                Folded.MESSAGES.value,
                message_wire.encode(some),
            )
            yield folded_batch([row])
        self._rows, self._columns, self._messages = [], [], []
        self._gathered = self._gathered_bytes = 0

    def _take(self, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        if self._reappend is not None and self._reappend.marker_format is MarkerFormat.KMQ:
            self._messages.append(message_wire.kmq_row(offset, at_ms, key, value))
            return
        marker = marker_wire.decode(key, value)
        if isinstance(marker, marker_wire.MarkerV1):
            if self._reappend is None:
                raise InvalidMarker("it is of version 1, and the tracker has no option redelivery=reappend")
            self._messages.append(message_wire.row_of(offset, at_ms, marker))
        elif isinstance(marker, End):
            kind = _KindOfEnd(marker.run_id, marker.no_message)
            if marker.cell in self._ends and self._ends[marker.cell][0] != kind:
                self._flush(marker.cell)
            _, sets, _, _ = self._ends.setdefault(marker.cell, (kind, [], 0, 0))
            sets.append(marker.offsets)
            self._ends[marker.cell] = (kind, sets, offset, at_ms)
        elif isinstance(marker, KeepAlive):
            # Ends and KeepAlives of a cell may be reordered: a KeepAlive never extends ended messages.
            if (earlier := self._kept.get(marker.cell)) is not None and not _replaces(marker, at_ms, earlier):
                self._put(*earlier[1:], Folded.MARKER, marker_wire.encode(earlier[0]))
            self._kept[marker.cell] = (marker, offset, at_ms)
        else:
            self._flush(marker.cell)
            self._put(offset, at_ms, Folded.MARKER, marker_wire.encode(marker))

    def _flush(self, cell: Cell) -> None:
        ends = self._ends.pop(cell, None)
        if ends is not None:
            kind, sets, offset, at_ms = ends
            folded = End(
                cell=cell, offsets=OffsetSet.union(sets), run_id=kind.run_id, no_message=kind.no_message
            )
            self._put(offset, at_ms, Folded.MARKER, marker_wire.encode(folded))
        if (kept := self._kept.pop(cell, None)) is not None:
            self._put(*kept[1:], Folded.MARKER, marker_wire.encode(kept[0]))

    def _put(self, offset: int, at_ms: int, kind: Folded, body: bytes) -> None:
        self._rows.append((self._partition, offset, at_ms, kind.value, body))


def _replaces(later: KeepAlive, at_ms: int, kept: tuple[KeepAlive, int, int]) -> bool:
    """True if the later KeepAlive covers the whole effect of the earlier one."""
    earlier, _, earlier_ms = kept
    return (
        (later.run_id, later.delivery_count) == (earlier.run_id, earlier.delivery_count)
        and at_ms + later.lease_ms >= earlier_ms + earlier.lease_ms
        and not earlier.offsets - later.offsets
    )
