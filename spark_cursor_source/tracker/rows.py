"""Rows of the tracker's query: from its source to its state, and from its state to its outbox.

Spark shuffles and collects these rows, but stores none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, assert_never

import pyarrow as pa

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.tracker import DeadLetter, Decision, Redeliver
from spark_cursor_source.interop import lease_table_wire
from spark_cursor_source.interop.lease_table import LeaseTable
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import redelivery as redelivery_wire
from spark_cursor_source.wire.control_pb2 import DeadLetter as DeadLetterPb
from spark_cursor_source.wire.first_deliveries import decode_first_deliveries, encode_first_deliveries
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets

# -- from the source to the state ------------------------------------------------------------------------

FOLDED_DDL = "markers_partition INT, sequence BIGINT, at_ms BIGINT, kind STRING, body BINARY"
_FOLDED_SCHEMA = pa.schema(
    [
        ("markers_partition", pa.int32()),
        ("sequence", pa.int64()),
        ("at_ms", pa.int64()),
        ("kind", pa.string()),
        ("body", pa.binary()),
    ]
)
_ROWS = 5_000
_BATCH_BYTES = 32 << 20


class FoldedRow(NamedTuple):
    """A row from the tracker's source to its state."""

    markers_partition: int
    sequence: int
    at_ms: int | None  #: append time in ms
    kind: str  #: one of ``Folded``
    body: bytes


class Folded(StrEnum):
    """Kinds of rows from the tracker's source to its state."""

    REWRITE = "rewrite"  #: write all cursors again; its sequence is lower than all others
    RESET = "reset"  #: clear the state of the partition; its sequence is lower than that of every cursor
    CURSOR = "cursor"  #: a cursor to resume from; its sequence is lower than that of every marker
    HELD = "held"  #: key of a cell whose cursor cannot be read; its sequence is that of a cursor
    MARKER = "marker"  #: one marker of version 2, or many folded; the sequence is the offset of the last one
    MESSAGES = "messages"  #: many single-message markers; the sequence is the offset of the last one
    LEASE_TABLE = "lease_table"  #: a lease table to resume from
    QUARANTINED = "quarantined"  #: position of a record that is not a valid marker, and the reason
    TICK = "tick"  #: end of the batch with tracker id and identity; at_ms is the broker time or null


def cursor_row(cursor: CursorSnapshot) -> FoldedRow:
    """Returns the row of a cursor to resume from."""
    body = cursor_wire.encode(cursor)
    return FoldedRow(cursor.markers_partition, -1, None, Folded.CURSOR.value, body)


def held_row(partition: int, cell: Cell) -> FoldedRow:
    """Returns the row of a cell to hold, because its cursor cannot be read."""
    return FoldedRow(partition, -1, None, Folded.HELD.value, cell.key)


def lease_table_row(partition: int, value: bytes) -> FoldedRow:
    """Returns the row of a lease table to resume from."""
    return FoldedRow(partition, -1, None, Folded.LEASE_TABLE.value, value)


def tick_row(partition: int, stop: int, now_ms: int | None, tracker_id: str, identity: str) -> FoldedRow:
    """Returns the row that ends a partition's part of a batch."""
    return FoldedRow(partition, stop, now_ms, Folded.TICK.value, f"{tracker_id}:{identity}".encode())


def tracker_and_identity(tick: bytes) -> tuple[str, str]:
    """Returns the tracker id and the batch identity in the body of a tick."""
    tracker_id, _, identity = tick.decode().partition(":")
    return tracker_id, identity


def rewrite_row(partition: int) -> FoldedRow:
    """Returns the row that requests all cursors of a partition again, for a recreated cursors topic."""
    return FoldedRow(partition, -3, None, Folded.REWRITE.value, b"")


def reset_row(partition: int) -> FoldedRow:
    """Returns the row that precedes the cursors of a partition whose state is rebuilt from them."""
    return FoldedRow(partition, -2, None, Folded.RESET.value, b"")


def folded_batches(rows: Iterable[FoldedRow]) -> Iterator[pa.RecordBatch]:
    """Yields batches of rows of limited size, because Arrow columns cannot exceed 2 GB."""
    part: list[FoldedRow] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row.body)
        if len(part) >= _ROWS or size >= _BATCH_BYTES:
            yield folded_batch(part)
            part, size = [], 0
    if part:
        yield folded_batch(part)


def folded_batch(rows: Sequence[FoldedRow]) -> pa.RecordBatch:
    """Returns rows as one Arrow batch."""
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _FOLDED_SCHEMA, strict=True)],
        schema=_FOLDED_SCHEMA,
    )


# -- from the state to the outbox ------------------------------------------------------------------------

DECIDED_DDL = "kind STRING, markers_partition INT, sequence BIGINT, cell BINARY, body BINARY"


class Decided(StrEnum):
    """Kinds of rows from the tracker's state to its outbox."""

    REDELIVER = "redeliver"  #: record value of an announcement
    DEAD_LETTER = "dead_letter"
    CURSOR = "cursor"  #: a changed cursor, without the markers topic
    DELETED = "deleted"  #: no body
    REAPPEND = "reappend"  #: a lease table of the messages to append again
    LEASE_TABLE = "lease_table"  #: a changed lease table
    POSITION = "position"  #: a tick; the sequence is the next marker
    QUARANTINED = "quarantined"  #: position of a record that is not a valid marker, and the reason
    #: subscription and topic without a cell; the sequence is the number of messages settled there
    NO_CELL = "no_cell"
    REWRITTEN = "rewritten"  #: the batch contains all cursors of the partition


class DecidedRow(NamedTuple):
    """A row with the columns of ``DECIDED_DDL``."""

    kind: str  #: one of ``Decided``
    markers_partition: int
    sequence: int
    cell: bytes  #: key of the cell of a REDELIVER, CURSOR or DELETED
    body: bytes


@dataclass(slots=True)
class DecidedBatch:
    """Rows of one batch. Announcements and cursors stay encoded, because they are written as they are."""

    announcements: list[tuple[bytes, bytes]] = field(default_factory=list)  #: key of the cell, and value
    dead_letters: list[DeadLetter] = field(default_factory=list)
    cursors: dict[bytes, bytes] = field(default_factory=dict)  #: by key of the cell
    open_breakers: list[CursorSnapshot] = field(default_factory=list)  #: cursors with an open breaker
    closed_breakers: list[Cell] = field(default_factory=list)  #: all other cells with a changed cursor
    deleted: list[Cell] = field(default_factory=list)
    tables: dict[int, LeaseTable] = field(default_factory=dict)
    due: dict[int, LeaseTable] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    nowhere: list[tuple[str, str, int]] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    tracker_id: str = ""
    identity: str = ""
    rewritten: bool = False

    def add(self, row: DecidedRow) -> None:
        """Decodes a row."""
        body = bytes(row.body)
        match row.kind:
            case Decided.REDELIVER:
                self.announcements.append((bytes(row.cell), body))
            case Decided.DEAD_LETTER:
                self.dead_letters.append(decode_dead_letter(body))
            case Decided.CURSOR:
                self._add_cursor(bytes(row.cell), body)
            case Decided.DELETED:
                self.deleted.append(Cell.from_key(bytes(row.cell)))
            case Decided.LEASE_TABLE:
                self.tables[row.markers_partition] = lease_table_wire.decode(body)
            case Decided.REAPPEND:
                self.due[row.markers_partition] = lease_table_wire.decode(body)
            case Decided.POSITION:
                self.positions[row.markers_partition] = row.sequence
                self.tracker_id, self.identity = tracker_and_identity(body)
            case Decided.REWRITTEN:
                self.rewritten = True
            case Decided.NO_CELL:
                subscription, topic = body.decode().split(",")
                self.nowhere.append((subscription, topic, row.sequence))
            case Decided.QUARANTINED:
                self.quarantined.append(body.decode(errors="replace"))

    def _add_cursor(self, key: bytes, value: bytes) -> None:
        self.cursors[key] = value
        if cursor_wire.has_open_breaker(value):
            self.open_breakers.append(cursor_wire.decode(value))
        else:
            self.closed_breakers.append(Cell.from_key(key))


def encode_decision(decision: Decision) -> tuple[Decided, bytes, bytes]:
    """Returns kind, key of the cell, and body of the row of a decision."""
    match decision:
        case Redeliver():
            return Decided.REDELIVER, decision.cell.key, redelivery_wire.encode(decision)
        case DeadLetter():
            return Decided.DEAD_LETTER, b"", encode_dead_letter(decision)
        case _:
            assert_never(decision)


def encode_no_cell(subscription: str, topic: str) -> bytes:
    """Returns the body of the row of messages that were settled without a cell."""
    return f"{subscription},{topic}".encode()


def encode_dead_letter(dead_letter: DeadLetter) -> bytes:
    """Returns the body of the row of a dead letter."""
    return DeadLetterPb(
        subscription=dead_letter.cell.subscription,
        topic=dead_letter.cell.topic,
        partition=dead_letter.cell.partition,
        offsets=encode_offsets(dead_letter.offsets),
        delivery_count=dead_letter.delivery_count,
        reason=dead_letter.reason,
        error=dead_letter.error,
        last_delivery_ms=dead_letter.last_delivery_ms or 0,
        first_deliveries=encode_first_deliveries(dead_letter.first_deliveries),
        tries=dead_letter.tries,
        generation_ms=dead_letter.generation_ms or 0,
    ).SerializeToString()


def decode_dead_letter(data: bytes) -> DeadLetter:
    """Returns the dead letter of such a body.

    >>> from spark_cursor_source.core.offsets import OffsetSet
    >>> cell = Cell(subscription="s", topic="t", partition=1)
    >>> one = DeadLetter(cell=cell, offsets=OffsetSet.of((3, 4)), delivery_count=5, reason="max-deliveries",
    ...     error="Timeout: 30 s", last_delivery_ms=1_700_000_000_000, generation_ms=7)
    >>> decode_dead_letter(encode_dead_letter(one)) == one
    True
    """
    pb = DeadLetterPb.FromString(data)
    return DeadLetter(
        cell=Cell(subscription=pb.subscription, topic=pb.topic, partition=pb.partition),
        offsets=decode_offsets(pb.offsets),
        delivery_count=pb.delivery_count,
        reason=pb.reason,
        error=pb.error,
        last_delivery_ms=pb.last_delivery_ms or None,
        first_deliveries=decode_first_deliveries(pb.first_deliveries),
        tries=pb.tries,
        generation_ms=pb.generation_ms or None,
    )
