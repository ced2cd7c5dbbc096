"""Records of redriven dead letters to bytes and back."""

from __future__ import annotations

from typing import NamedTuple

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.wire.descriptors import check_version, parsed
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets
from spark_cursor_source.wire.redriven_pb2 import RedrivenOffsets

VERSION = 1


class SettledLetters(NamedTuple):
    """Dead letters of a partition that an operator has redriven or deleted."""

    offsets: OffsetSet = EMPTY  #: all of them
    deleted: OffsetSet = EMPTY  #: those of them that were deleted


def redriven_cell(topic: str, partition: int) -> Cell:
    """Returns the cell whose key is the record key for a partition of a dead-letter topic.

    >>> redriven_cell("orders-billing-DLQ", 3).key
    b'cursorq-redrive,orders-billing-DLQ,3'
    """
    return Cell(subscription="cursorq-redrive", topic=topic, partition=partition)


def encode(cell: Cell, topic_id: str, settled: SettledLetters) -> bytes:
    """Returns the record value: the offsets of the redriven and the deleted dead letters.

    >>> settled = SettledLetters(OffsetSet.of((0, 3), (7, 8)), OffsetSet.of((7, 8)))
    >>> decode(encode(redriven_cell("dead", 0), "id", settled), "id") == settled
    True
    """
    ranges = settled.offsets.iter_ranges()
    start, stop = next(ranges, (1, 0))
    return RedrivenOffsets(
        stream=cell.topic,
        partition=cell.partition,
        cursor_id=cell.subscription,
        offset=stop - 1 if start == 0 else -1,
        redriven_version=VERSION,
        topic_id=topic_id,
        offsets=encode_offsets(settled.offsets),
        deleted=encode_offsets(settled.deleted) if settled.deleted else b"",
    ).SerializeToString(deterministic=True)


def decode(value: bytes, topic_id: str) -> SettledLetters:
    """Returns the content of a record value; empty if the value is about another topic of the same name.

    Raises:
        LaterCursorVersion: the value has a later version than this library reads.
        InvalidControlRecord: the value is not a record of redriven dead letters.
    """
    pb = parsed(RedrivenOffsets, value, "redriven dead letters")
    check_version(pb.redriven_version, VERSION, otherwise="the value does not name redriven dead letters")
    if pb.topic_id != topic_id:
        return SettledLetters()
    return SettledLetters(decode_offsets(pb.offsets), decode_offsets(pb.deleted) if pb.deleted else EMPTY)
