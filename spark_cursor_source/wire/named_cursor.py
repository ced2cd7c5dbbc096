"""Plain cursors as record values: Liftbridge's four fields, and an epoch if the cursor is fenced."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.named_cursor import NamedCursor
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire.control_pb2 import Cursor as CursorPb
from spark_cursor_source.wire.control_pb2 import LeaseTable as LeaseTablePb
from spark_cursor_source.wire.descriptors import UNREADABLE


def encode(cursor: NamedCursor) -> bytes:
    """Returns the record value; the record key is the cell's key.

    >>> cell = Cell(subscription="mailer", topic="orders", partition=3)
    >>> encode(NamedCursor(cell=cell, offset=7)).hex(" ", 1)
    '0a 06 6f 72 64 65 72 73 10 03 1a 06 6d 61 69 6c 65 72 20 07'
    """
    return CursorPb(
        stream=cursor.cell.topic,
        partition=cursor.cell.partition,
        cursor_id=cursor.cell.subscription,
        offset=cursor.offset,
        epoch=cursor.epoch,
    ).SerializeToString(deterministic=True)


def decode(value: bytes, cell: Cell) -> NamedCursor:
    """Returns the cursor in a record of the cell's key, from a client, Liftbridge or any tracker version.

    Raises:
        InvalidControlRecord: the value is not a cursor, or is the cursor of another cell.
    """
    try:
        pb = CursorPb.FromString(value)
        table = LeaseTablePb.FromString(value)
    except UNREADABLE as cause:
        raise InvalidControlRecord(
            f"the record of cursor '{cell}' is no protobuf message of cursors"
        ) from cause
    if Cell(subscription=pb.cursor_id, topic=pb.stream, partition=pb.partition) != cell:
        raise InvalidControlRecord(f"the record of cursor '{cell}' is not about it")
    return NamedCursor(
        cell=cell,
        offset=pb.offset,
        epoch=pb.epoch if pb.HasField("epoch") else None,
        of_tracker=pb.version != 0 or table.table_version != 0,
    )
