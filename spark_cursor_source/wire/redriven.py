"""Records of redriven dead letters to bytes and back."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets
from spark_cursor_source.wire.redriven_pb2 import RedrivenOffsets

VERSION = 1


def redriven_cell(topic: str, partition: int) -> Cell:
    """Returns the cell whose key is the record key for a partition of a dead-letter topic.

    >>> redriven_cell("orders-billing-DLQ", 3).key
    b'cursorq-redrive,orders-billing-DLQ,3'
    """
    return Cell(subscription="cursorq-redrive", topic=topic, partition=partition)


def encode(cell: Cell, topic_id: str, offsets: OffsetSet) -> bytes:
    """Returns the record value: the offsets of the redriven dead letters.

    >>> decode(encode(redriven_cell("dead", 0), "id", OffsetSet.of((0, 3), (7, 8))), "id").ranges
    ((0, 3), (7, 8))
    """
    ranges = offsets.iter_ranges()
    start, stop = next(ranges, (1, 0))
    return RedrivenOffsets(
        stream=cell.topic,
        partition=cell.partition,
        cursor_id=cell.subscription,
        offset=stop - 1 if start == 0 else -1,
        redriven_version=VERSION,
        topic_id=topic_id,
        offsets=encode_offsets(offsets),
    ).SerializeToString(deterministic=True)


def decode(value: bytes, topic_id: str) -> OffsetSet:
    """Returns the offsets of a record value; none if the value is about another topic of the same name.

    Raises:
        LaterCursorVersion: the value has a later version than this library reads.
        InvalidControlRecord: the value is not a record of redriven dead letters.
    """
    try:
        pb = RedrivenOffsets.FromString(value)
    except DecodeError as cause:
        raise InvalidControlRecord("the value is not a protobuf message of redriven dead letters") from cause
    if pb.redriven_version > VERSION:
        raise LaterCursorVersion(pb.redriven_version, VERSION)
    if pb.redriven_version != VERSION:
        raise InvalidControlRecord("the value does not name redriven dead letters")
    return decode_offsets(pb.offsets) if pb.topic_id == topic_id else OffsetSet.of()
