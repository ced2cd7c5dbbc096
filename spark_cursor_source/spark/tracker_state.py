"""Stateful processor of the tracker: stores the cells of a markers partition and emits decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import End, EndUpTo, KeepAlive, Marker, Reject, Release
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import CellTracker
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop import markers_wire as message_wire
from spark_cursor_source.interop.lease_table import LeaseTable, MessageMarkers
from spark_cursor_source.spark.message_leases import MessageLeases
from spark_cursor_source.tracker.rows import (
    Decided,
    Folded,
    encode_decision,
    encode_no_cell,
)
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire

_NEVER = -1  #: event time of a cell without a timed event


@dataclass(slots=True)
class _Batch:
    """Rows of one batch and markers partition, as far as they are applied."""

    partition: int
    trackers: dict[bytes, CellTracker] = field(default_factory=dict)
    known: set[bytes] = field(default_factory=set)  #: cells that existed before this batch
    #: number of messages settled by name whose cell does not exist, by subscription and topic
    nowhere: Counter[tuple[str, str]] = field(default_factory=Counter)
    messages: list[MessageMarkers] = field(default_factory=list)
    table: LeaseTable | None = None  #: lease table to resume from
    now_ms: int | None = None
    rewrite: bool = False  #: write all cursors again


class TrackerProcessor(StatefulProcessor):
    """Tracker of one markers partition per state key. A cell's markers are all in one partition.

    The state has each cell (as a cursor) and, separately, the time of its next event. A tick therefore loads
    only the cells with a due event.
    """

    def __init__(self, policy_for: Callable[[str], RedeliveryPolicy]) -> None:
        self._policy_for = policy_for
        self._cells: MapState
        self._events: MapState
        self._messages: MessageLeases

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._cells = handle.getMapState("cells", "cell BINARY", "cursor BINARY")
        self._events = handle.getMapState("events", "cell BINARY", "next_event_ms BIGINT")
        self._messages = MessageLeases(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (partition,) = key
        batch = _Batch(partition)
        # A shuffle keeps no order, so rows are sorted by marker offset.
        for row in sorted(rows, key=lambda row: row.sequence):
            if (decided := self._take_in(row, batch)) is not None:
                yield decided
        for (subscription, topic), count in batch.nowhere.items():
            yield _decided(Decided.NO_CELL, partition, count, encode_no_cell(subscription, topic))
        if batch.now_ms is not None:
            self._wake(batch, batch.now_ms)
        yield from self._advanced(batch)
        yield from self._leases(batch)

    def close(self) -> None:
        pass

    def _take_in(self, row: Row, batch: _Batch) -> Row | None:
        """Applies a row to the batch. Returns the decision that follows from the row alone, if any."""
        match row.kind:
            case Folded.REWRITE:
                batch.rewrite = True
                self._load_all(batch)
                return _decided(Decided.REWRITTEN, batch.partition, 0, b"")
            case Folded.RESET:
                self._forget()
            case Folded.CURSOR:
                cursor = cursor_wire.decode(bytes(row.body))
                batch.trackers[cursor.cell.key] = self._tracker(cursor.cell, cursor, batch.partition)
                batch.known.add(cursor.cell.key)
            case Folded.MARKER:
                self._apply(row, batch)
            case Folded.MESSAGES:
                batch.messages.append(message_wire.decode(bytes(row.body)))
            case Folded.LEASE_TABLE:
                batch.table = table_wire.decode(bytes(row.body))
            case Folded.QUARANTINED:
                return _decided(Decided.QUARANTINED, batch.partition, row.sequence, row.body)
            case Folded.TICK:
                batch.now_ms = row.at_ms
                return _decided(Decided.POSITION, batch.partition, row.sequence, row.body)
        return None

    def _apply(self, row: Row, batch: _Batch) -> None:
        marker = marker_wire.decode_folded(bytes(row.body))
        tracker = self._of(marker.cell, batch)
        tracker.apply(marker, at_ms=row.at_ms, marker_offset=row.sequence)
        if not tracker.exists and (messages_of := _of_a_sink(marker)):
            batch.nowhere[marker.cell.subscription, marker.cell.topic] += messages_of

    def _advanced(self, batch: _Batch) -> Iterator[Row]:
        """Yields the decisions of all loaded cells, and their changed cursors."""
        for cell_key, tracker in batch.trackers.items():
            for decision in tracker.advance(batch.now_ms):
                kind, cell, body = encode_decision(decision)
                yield _decided(kind, batch.partition, 0, body, cell=cell)
            snapshot = tracker.snapshot()
            if snapshot is not None:
                yield self._keep(cell_key, snapshot, batch.partition)
            elif cell_key in batch.known:
                yield self._forget_cell(cell_key, batch.partition)

    def _leases(self, batch: _Batch) -> Iterator[Row]:
        stepped = self._messages.step(batch.messages, batch.table, batch.now_ms, anyway=batch.rewrite)
        if stepped is None:
            return
        due, stored = stepped
        if len(due):
            yield _decided(Decided.REAPPEND, batch.partition, 0, table_wire.encode(due))
        yield _decided(Decided.LEASE_TABLE, batch.partition, 0, stored)

    def _forget(self) -> None:
        self._cells.clear()
        self._events.clear()
        self._messages.clear()

    def _load_all(self, batch: _Batch) -> None:
        for cell_key in [bytes(cell_key) for (cell_key,), _ in self._cells.iterator()]:
            self._load(cell_key, batch)

    def _load(self, cell_key: bytes, batch: _Batch) -> None:
        snapshot = self._stored(cell_key)
        batch.trackers[cell_key] = self._tracker(snapshot.cell, snapshot, batch.partition)
        batch.known.add(cell_key)

    def _wake(self, batch: _Batch, now_ms: int) -> None:
        """Loads the cells with a due event."""
        due = [
            bytes(cell_key)
            for (cell_key,), (event_ms,) in self._events.iterator()
            if event_ms != _NEVER and event_ms < now_ms
        ]
        for cell_key in due:
            if cell_key not in batch.trackers:
                self._load(cell_key, batch)

    def _of(self, cell: Cell, batch: _Batch) -> CellTracker:
        tracker = batch.trackers.get(cell.key)
        if tracker is None:
            snapshot = self._stored(cell.key) if self._cells.containsKey((cell.key,)) else None
            if snapshot is not None:
                batch.known.add(cell.key)
            tracker = batch.trackers[cell.key] = self._tracker(cell, snapshot, batch.partition)
        return tracker

    def _stored(self, cell_key: bytes) -> CursorSnapshot:
        stored: Any = self._cells.getValue((cell_key,))
        return cursor_wire.decode(bytes(stored[0]))

    def _tracker(self, cell: Cell, snapshot: CursorSnapshot | None, partition: int) -> CellTracker:
        policy = self._policy_for(cell.subscription)
        return CellTracker.resume(snapshot, cell=cell, policy=policy, markers_partition=partition)

    def _forget_cell(self, cell_key: bytes, partition: int) -> Row:
        self._cells.removeKey((cell_key,))
        self._events.removeKey((cell_key,))
        return _decided(Decided.DELETED, partition, 0, b"", cell=cell_key)

    def _keep(self, cell_key: bytes, snapshot: CursorSnapshot, partition: int) -> Row:
        body = cursor_wire.encode(snapshot)
        self._cells.updateValue((cell_key,), (body,))
        event_ms = snapshot.next_event_ms
        self._events.updateValue((cell_key,), (_NEVER if event_ms is None else event_ms,))
        return _decided(Decided.CURSOR, partition, snapshot.next_marker, body, cell=cell_key)


def _of_a_sink(marker: Marker) -> int:
    """Returns the number of messages that a sink or client settled by name with this marker.

    Markers that a query itself writes count 0. If its subscription was deleted, its sink made no mistake.
    """
    match marker:
        case End(run_id=None) | Release(due_ms=None) | Reject() | KeepAlive(run_id=None):
            return len(marker.offsets)
        case EndUpTo(run_id=None):
            return 1
        case _:
            return 0


def _decided(kind: Decided, partition: int, sequence: int, body: bytes, *, cell: bytes = b"") -> Row:
    return Row(kind=kind.value, markers_partition=partition, sequence=sequence, cell=cell, body=bytes(body))
