"""Dead-letter decisions as bytes, from the tracker's state to its outbox; they are not stored."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.wire.control_pb2 import DeadLetter as DeadLetterPb
from spark_cursor_source.wire.first_deliveries import decode_first_deliveries, encode_first_deliveries
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets


def encode(dead_letter: DeadLetter) -> bytes:
    """Returns the bytes of a decision."""
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
    ).SerializeToString()


def decode(data: bytes) -> DeadLetter:
    """Returns the decision of such bytes.

    >>> from spark_cursor_source.core.offsets import OffsetSet
    >>> cell = Cell(subscription="s", topic="t", partition=1)
    >>> one = DeadLetter(cell=cell, offsets=OffsetSet.of((3, 4)), delivery_count=5, reason="max-deliveries",
    ...     error="Timeout: 30 s", last_delivery_ms=1_700_000_000_000)
    >>> decode(encode(one)) == one
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
    )
