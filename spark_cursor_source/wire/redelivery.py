"""Announcements as records of the redeliveries topic; the record key is the cell's key."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire.control_pb2 import Redelivery as RedeliveryPb
from spark_cursor_source.wire.descriptors import parsed
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets

VERSION = 1


def encode(redeliver: Redeliver) -> bytes:
    """Returns the record value of an announcement.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> from spark_cursor_source.core.offsets import OffsetSet
    >>> one = Redeliver(cell=cell, offsets=OffsetSet.of((3, 4)), delivery_count=1, run_id="r", alone=False)
    >>> decode(encode(one)) == one
    True
    """
    return RedeliveryPb(
        version=VERSION,
        subscription=redeliver.cell.subscription,
        topic=redeliver.cell.topic,
        partition=redeliver.cell.partition,
        offsets=encode_offsets(redeliver.offsets),
        delivery_count=redeliver.delivery_count,
        run_id=redeliver.run_id,
        alone=redeliver.alone,
    ).SerializeToString(deterministic=True)


def decode(value: bytes | None) -> Redeliver:
    """Returns the announcement of a record value.

    Raises:
        InvalidControlRecord: the value is not an announcement.
    """
    pb = parsed(RedeliveryPb, value or b"", "redeliveries")
    if pb.version != VERSION or not pb.topic:
        raise InvalidControlRecord(f"a redelivery of version {pb.version} cannot be read")
    if pb.partition < 0 or not pb.run_id:
        raise InvalidControlRecord("a redelivery without a partition or a run")
    return Redeliver(
        cell=Cell(subscription=pb.subscription, topic=pb.topic, partition=pb.partition),
        offsets=decode_offsets(pb.offsets),
        delivery_count=pb.delivery_count,
        run_id=pb.run_id,
        alone=pb.alone,
    )
