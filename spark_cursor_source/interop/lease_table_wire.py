"""Encoding of lease tables in records: about 13 bytes per lease, without payloads."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion
from spark_cursor_source.interop.lease_table import LeaseTable
from spark_cursor_source.wire.columns import pack, unpack
from spark_cursor_source.wire.control_pb2 import LeaseTable as LeaseTablePb
from spark_cursor_source.wire.descriptors import UNREADABLE
from spark_cursor_source.wire.marker import kept

VERSION = 1


def table_cell(queue_topic: str, markers_topic: str, markers_partition: int) -> Cell:
    """Returns the cell whose cursor record stores a table.

    The queue topic takes the place of the subscription, and the markers topic that of the topic.

    >>> table_cell("orders", "orders-markers", 3).key
    b'orders,orders-markers,3'
    """
    return Cell(subscription=queue_topic, topic=markers_topic, partition=markers_partition)


def encode_record(table: LeaseTable, cell: Cell, *, trouble: str = "", troubled: int = 0) -> bytes:
    """Returns the record value of a table for the cursors topic.

    The value can also be read as a plain position. It includes the reason why messages could not be appended
    again, and their number.
    """
    pb = _message(table)
    pb.stream, pb.partition, pb.cursor_id = cell.topic, cell.partition, cell.subscription
    pb.trouble, pb.troubled = kept(trouble), troubled
    return pb.SerializeToString(deterministic=True)


def encode(table: LeaseTable) -> bytes:
    """Returns the encoded table.

    >>> from spark_cursor_source.interop.lease_table import MessageMarkers, START
    >>> table = LeaseTable.resume(None).apply(MessageMarkers.of([(7, 0, START, 0, 40, 30_000)]))
    >>> decode(encode(table)).offsets.tolist()
    [40]
    """
    return _message(table).SerializeToString(deterministic=True)


def decode_trouble(value: bytes) -> tuple[str, int]:
    """Returns why messages of a table record could not be appended again, and their number.

    Raises:
        LaterCursorVersion, InvalidControlRecord: see :func:`decode`.
    """
    pb = _parsed(value)
    return pb.trouble, pb.troubled


def _message(table: LeaseTable) -> LeaseTablePb:
    return LeaseTablePb(
        offset=table.commit_position - 1,
        table_version=VERSION,
        next_marker=table.next_marker,
        partitions=pack(table.partitions),
        offsets=pack(table.offsets),
        deadlines_ms=pack(table.deadlines_ms),
        starts=pack(table.starts),
    )


def decode(value: bytes) -> LeaseTable:
    """Returns the table of a record value.

    Raises:
        LaterCursorVersion: the table has a version that this release does not know.
        InvalidControlRecord: the value is not a lease table.
    """
    pb = _parsed(value)
    try:
        columns = [unpack(data) for data in (pb.partitions, pb.offsets, pb.deadlines_ms, pb.starts)]
    except ValueError as cause:
        raise InvalidControlRecord(f"in a lease table {cause}") from cause
    partitions, offsets, deadlines_ms, starts = columns
    if len({len(column) for column in columns}) > 1:
        raise InvalidControlRecord("the columns of a lease table are not of one length")
    return LeaseTable(
        next_marker=pb.next_marker,
        partitions=partitions,
        offsets=offsets,
        deadlines_ms=deadlines_ms,
        starts=starts,
    )


def _parsed(value: bytes) -> LeaseTablePb:
    try:
        pb = LeaseTablePb.FromString(value)
    except UNREADABLE as cause:
        raise InvalidControlRecord("the value is not a protobuf message of lease tables") from cause
    if pb.table_version > VERSION:
        raise LaterCursorVersion(pb.table_version, VERSION)
    if pb.table_version != VERSION or pb.next_marker < 0:
        raise InvalidControlRecord("the value is not a lease table")
    return pb
