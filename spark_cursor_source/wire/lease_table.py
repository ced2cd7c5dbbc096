"""Lease tables to record values and back: about 13 bytes a lease, no payload."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.lease_table import LeaseTable
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion
from spark_cursor_source.wire.columns import pack, unpack
from spark_cursor_source.wire.control_pb2 import LeaseTable as LeaseTablePb

VERSION = 1


def table_key(queue_topic: str, markers_topic: str, markers_partition: int) -> bytes:
    """The record key in the cursors topic: the queue topic's cursor in the markers topic.

    >>> table_key("orders", "orders-markers", 3)
    b'orders,orders-markers,3'
    """
    return Cell(subscription=queue_topic, topic=markers_topic, partition=markers_partition).key


def encode(table: LeaseTable, *, queue_topic: str, markers_topic: str, markers_partition: int) -> bytes:
    """The record value.

    >>> from spark_cursor_source.core.lease_table import MessageMarkers, START
    >>> table = LeaseTable.resume(None).apply(MessageMarkers.of([(7, 0, START, 0, 40, 30_000)]))
    >>> value = encode(table, queue_topic="q", markers_topic="m", markers_partition=0)
    >>> decode(value).offsets.tolist(), len(value)
    ([40], 66)
    """
    return LeaseTablePb(
        stream=markers_topic,
        partition=markers_partition,
        cursor_id=queue_topic,
        offset=table.commit_position - 1,
        table_version=VERSION,
        next_marker=table.next_marker,
        partitions=pack(table.partitions),
        offsets=pack(table.offsets),
        deadlines_ms=pack(table.deadlines_ms),
        starts=pack(table.starts),
    ).SerializeToString(deterministic=True)


def decode(value: bytes) -> LeaseTable:
    """The table of a record value.

    Raises:
        LaterCursorVersion: it is one, of a version that is not known here.
        InvalidControlRecord: it is none.
    """
    try:
        pb = LeaseTablePb.FromString(value)
    except DecodeError as cause:
        raise InvalidControlRecord("the value is not a protobuf message of lease tables") from cause
    if pb.table_version > VERSION:
        raise LaterCursorVersion(pb.table_version, VERSION)
    if pb.table_version != VERSION or pb.next_marker < 0:
        raise InvalidControlRecord("the value is not a lease table")
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
