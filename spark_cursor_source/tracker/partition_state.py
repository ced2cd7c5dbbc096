"""State of one markers partition: its cells, the time of their next events, and a table of V1 leases.

Spark's tracker keeps the state in its state store, and the tracker without Spark in memory. Both advance it
with :class:`PartitionState`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import (
    Delete,
    End,
    KeepAlive,
    Leave,
    Marker,
    Reject,
    Release,
    Seek,
)
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import CellTracker
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop import markers_wire as message_wire
from spark_cursor_source.interop.lease_table import LeaseTable, MessageMarkers
from spark_cursor_source.tracker.rows import (
    Decided,
    DecidedRow,
    Folded,
    FoldedRow,
    encode_decision,
    encode_no_cell,
)
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire

_HELD = b""  # stored in the place of a cursor that cannot be read
MOST_DUE = 20_000  #: maximum messages of a partition that a batch appends again; the rest wait for the next


class CellStore(Protocol):
    """Storage of encoded cursors by cell key, each with the time of its next event."""

    def get(self, cell_key: bytes) -> bytes | None: ...

    def put(self, cell_key: bytes, cursor: bytes, next_event_ms: int | None) -> None: ...

    def remove(self, cell_key: bytes) -> None: ...

    def cell_keys(self, *, due_ms: int | None = None) -> list[bytes]:
        """Returns all cells, or those whose next event is before ``due_ms``."""
        ...

    def clear(self) -> None: ...


class TableStore(Protocol):
    """Storage of an encoded lease table and, separately, of its next deadline."""

    def get(self) -> bytes | None: ...

    def next_event_ms(self) -> int | None: ...

    def put(self, table: bytes, next_event_ms: int | None) -> None: ...

    def clear(self) -> None: ...


@dataclass(slots=True)
class _Batch:
    """Rows of one batch and markers partition, as far as they are applied."""

    partition: int
    trackers: dict[bytes, CellTracker] = field(default_factory=dict)
    known: set[bytes] = field(default_factory=set)  #: cells that existed before this batch
    held: set[bytes] = field(default_factory=set)  #: cells of this batch that are held
    #: number of messages settled by name whose cell does not exist, by subscription and topic
    nowhere: Counter[tuple[str, str]] = field(default_factory=Counter)
    messages: list[MessageMarkers] = field(default_factory=list)
    table: LeaseTable | None = None  #: lease table to resume from
    now_ms: int | None = None
    rewrite: bool = False  #: write all cursors again


class PartitionState:
    """Advances the stored state of one markers partition. A cell's markers are all in one partition.

    A tick loads only the cells with a due event.
    """

    def __init__(
        self, policy_for: Callable[[str], RedeliveryPolicy], cells: CellStore, table: TableStore
    ) -> None:
        self._policy_for = policy_for
        self._cells = cells
        self._messages = _MessageLeases(table)

    def hold(self, cell_key: bytes) -> None:
        """Holds a cell whose stored cursor cannot be read.

        A Seek creates the cell again, and a Delete removes it. Other markers of it are skipped: without its
        state, a Hello would begin behind its outstanding messages, which would be lost.
        """
        self._cells.put(cell_key, _HELD, None)

    def advance(self, partition: int, rows: Iterable[FoldedRow]) -> Iterator[DecidedRow]:
        """Applies the rows of a batch, in any order, and yields the decisions and all changes."""
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

    def _take_in(self, row: FoldedRow, batch: _Batch) -> DecidedRow | None:
        """Applies a row to the batch. Returns the decision that follows from the row alone, if any."""
        match row.kind:
            case Folded.REWRITE:
                batch.rewrite = True
                self._load_all(batch)
                return _decided(Decided.REWRITTEN, batch.partition, 0, b"")
            case Folded.RESET:
                self._forget()
            case Folded.HELD:
                self.hold(row.body)
            case Folded.CURSOR:
                cursor = cursor_wire.decode(row.body)
                batch.trackers[cursor.cell.key] = self._tracker(cursor.cell, cursor, batch.partition)
                batch.known.add(cursor.cell.key)
            case Folded.MARKER:
                self._apply(row, batch)
            case Folded.MESSAGES:
                batch.messages.append(message_wire.decode(row.body))
            case Folded.LEASE_TABLE:
                batch.table = table_wire.decode(row.body)
            case Folded.QUARANTINED:
                return _decided(Decided.QUARANTINED, batch.partition, row.sequence, row.body)
            case Folded.TICK:
                batch.now_ms = row.at_ms
                return _decided(Decided.POSITION, batch.partition, row.sequence, row.body)
        return None

    def _apply(self, row: FoldedRow, batch: _Batch) -> None:
        assert row.at_ms is not None
        marker = marker_wire.decode_folded(row.body)
        tracker = self._of(marker.cell, batch)
        if marker.cell.key in batch.held:
            if not isinstance(marker, (Seek, Delete)):
                return
            batch.held.discard(marker.cell.key)
            batch.known.add(marker.cell.key)
        tracker.apply(marker, at_ms=row.at_ms, marker_offset=row.sequence)
        if not tracker.exists and (messages_of := _of_a_sink(marker)):
            batch.nowhere[marker.cell.subscription, marker.cell.topic] += messages_of

    def _advanced(self, batch: _Batch) -> Iterator[DecidedRow]:
        """Yields the decisions of all loaded cells, and their changed cursors."""
        for cell_key, tracker in batch.trackers.items():
            for decision in tracker.advance(batch.now_ms):
                kind, cell, body = encode_decision(decision)
                yield _decided(kind, batch.partition, 0, body, cell=cell)
            snapshot = tracker.snapshot()
            if snapshot is not None:
                yield self._keep(cell_key, snapshot, batch.partition)
            elif cell_key in batch.known:
                self._cells.remove(cell_key)
                yield _decided(Decided.DELETED, batch.partition, 0, b"", cell=cell_key)

    def _leases(self, batch: _Batch) -> Iterator[DecidedRow]:
        stepped = self._messages.step(batch.messages, batch.table, batch.now_ms, anyway=batch.rewrite)
        if stepped is None:
            return
        due, stored = stepped
        if len(due):
            yield _decided(Decided.REAPPEND, batch.partition, 0, table_wire.encode(due))
        yield _decided(Decided.LEASE_TABLE, batch.partition, 0, stored)

    def _forget(self) -> None:
        self._cells.clear()
        self._messages.clear()

    def _load_all(self, batch: _Batch) -> None:
        for cell_key in self._cells.cell_keys():
            self._load(cell_key, batch)

    def _load(self, cell_key: bytes, batch: _Batch) -> None:
        stored = self._cells.get(cell_key)
        if stored == _HELD:
            batch.held.add(cell_key)
        elif stored is not None:
            snapshot = cursor_wire.decode(stored)
            batch.trackers[cell_key] = self._tracker(snapshot.cell, snapshot, batch.partition)
            batch.known.add(cell_key)

    def _wake(self, batch: _Batch, now_ms: int) -> None:
        """Loads the cells with a due event."""
        for cell_key in self._cells.cell_keys(due_ms=now_ms):
            if cell_key not in batch.trackers:
                self._load(cell_key, batch)

    def _of(self, cell: Cell, batch: _Batch) -> CellTracker:
        if cell.key not in batch.trackers:
            self._load(cell.key, batch)
        if cell.key not in batch.trackers:
            batch.trackers[cell.key] = self._tracker(cell, None, batch.partition)
        return batch.trackers[cell.key]

    def _tracker(self, cell: Cell, snapshot: CursorSnapshot | None, partition: int) -> CellTracker:
        policy = self._policy_for(cell.subscription)
        return CellTracker.resume(snapshot, cell=cell, policy=policy, markers_partition=partition)

    def _keep(self, cell_key: bytes, snapshot: CursorSnapshot, partition: int) -> DecidedRow:
        body = cursor_wire.encode(snapshot)
        self._cells.put(cell_key, body, snapshot.next_event_ms)
        return _decided(Decided.CURSOR, partition, snapshot.next_marker, body, cell=cell_key)


class _MessageLeases:
    """A lease table and its next deadline. A tick before that deadline does not load the table."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    def step(
        self,
        markers: Sequence[MessageMarkers],
        resumed: LeaseTable | None,
        now_ms: int | None,
        *,
        anyway: bool = False,
    ) -> tuple[LeaseTable, bytes] | None:
        """Applies a batch of markers. Returns the expired leases to append again, and the encoded table.

        Returns None if nothing changed, unless ``anyway`` is set and a table exists. ``resumed`` replaces the
        stored table. Leases expire only if ``now_ms`` is given.
        """
        wanted = bool(markers) or resumed is not None or self._is_due(now_ms)
        if not wanted and not (anyway and self._store.get() is not None):
            return None
        table = LeaseTable.resume(resumed if resumed is not None else self._load())
        if markers:
            table = table.apply(MessageMarkers.concatenated(markers))
        due, table = table.expire(-1 if now_ms is None else now_ms, most=MOST_DUE)
        stored = table_wire.encode(table)
        self._store.put(stored, table.next_event_ms)
        return due, stored

    def clear(self) -> None:
        """Clears the table and its deadline."""
        self._store.clear()

    def _load(self) -> LeaseTable | None:
        stored = self._store.get()
        return None if stored is None else table_wire.decode(stored)

    def _is_due(self, now_ms: int | None) -> bool:
        next_ms = self._store.next_event_ms()
        return now_ms is not None and next_ms is not None and next_ms < now_ms


def _of_a_sink(marker: Marker) -> int:
    """Returns the number of messages that a sink or client settled by name with this marker.

    Markers that a query itself or an operator writes count 0. If the subscription was deleted, no sink made a
    mistake. An EndUpTo without a run is an operator's.
    """
    match marker:
        case End(run_id=None) | Release(due_ms=None) | Reject() | Leave(run_id=None) | KeepAlive(run_id=None):
            return len(marker.offsets)
        case _:
            return 0


def _decided(kind: Decided, partition: int, sequence: int, body: bytes, *, cell: bytes = b"") -> DecidedRow:
    return DecidedRow(kind.value, partition, sequence, cell, bytes(body))
