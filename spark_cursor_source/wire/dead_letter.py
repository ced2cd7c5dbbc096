"""A decision to dead-letter as bytes, between the tracker's state and its outbox; stored nowhere."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.wire.marker_pb2 import Marker as MarkerPb
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets


def encode(dead_letter: DeadLetter) -> bytes:
    """Bytes of the decision."""
    pb = MarkerPb(
        subscription=dead_letter.cell.subscription,
        topic=dead_letter.cell.topic,
        offsets=encode_offsets(dead_letter.offsets),
        delivery_count=dead_letter.delivery_count,
        reason=dead_letter.reason,
    )
    pb.message_id.partition = dead_letter.cell.partition
    return pb.SerializeToString()


def decode(data: bytes) -> DeadLetter:
    """The decision of such bytes.

    >>> from spark_cursor_source.core.offsets import OffsetSet
    >>> cell = Cell(subscription="s", topic="t", partition=1)
    >>> one = DeadLetter(cell=cell, offsets=OffsetSet.of((3, 4)), delivery_count=5, reason="lease expired")
    >>> decode(encode(one)) == one
    True
    """
    pb = MarkerPb.FromString(data)
    return DeadLetter(
        cell=Cell(subscription=pb.subscription, topic=pb.topic, partition=pb.message_id.partition),
        offsets=decode_offsets(pb.offsets),
        delivery_count=pb.delivery_count,
        reason=pb.reason,
    )
