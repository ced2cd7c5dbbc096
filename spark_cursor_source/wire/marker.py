"""Markers to bytes and back. Decoding is strict: bytes that are not surely a marker are rejected.

Two versions share one protobuf message. V1 is the format of kafka-mq-go: one marker per message, keyed by
queue id. V2 is one marker for a set of messages of a cell, keyed by the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from google.protobuf.message import DecodeError

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import (
    MAX_LEASE_MS,
    CloseBreaker,
    Delete,
    End,
    EndOffsetObserved,
    EndUpTo,
    Hello,
    KeepAlive,
    Marker,
    OpenBreaker,
    Reject,
    Release,
    Seek,
    Start,
    Withhold,
)
from spark_cursor_source.core.names import why_no_subscription, why_no_topic
from spark_cursor_source.core.offsets import OFFSET_LIMIT, OffsetSet
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.wire.marker_pb2 import Marker as MarkerPb

V1, V2 = 0, 1
START, END, KEEPALIVE, RELEASE, REJECT, END_UP_TO, SEEK, HELLO, RESUME, HOLD, LOG_END, DELETE, WITHHOLD = (
    range(13)
)
MAX_REASON = 500  #: longest reason that a marker keeps, in characters
MAX_DUE_MS = 253_402_300_800_000  #: the end of the year 9999
MAX_DELIVERY_COUNT = 10**9  #: limit of delivery counts; further deliveries still fit in 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerV1:
    """Marker of kafka-mq-go: ``type`` is START, END or KEEPALIVE of one message of a queue."""

    queue_id: bytes
    type: int
    partition: int
    offset: int
    redeliver_after_ms: int = 0
    key: bytes = b""
    value: bytes = b""


def encode_v1(marker: MarkerV1) -> bytes:
    """Returns the bytes that kafka-mq-go writes for this marker.

    >>> encode_v1(MarkerV1(queue_id=b"q1", type=END, partition=3, offset=0)).hex(" ", 2)
    '1001 1a02 0803'
    """
    pb = MarkerPb(version=V1, type=marker.type, key=marker.key, value=marker.value)
    pb.message_id.SetInParent()
    pb.message_id.partition = marker.partition
    pb.message_id.offset = marker.offset
    pb.redeliver_after_ms = marker.redeliver_after_ms
    return pb.SerializeToString(deterministic=True)


def encode(marker: Marker) -> bytes:
    """Returns the bytes of a V2 marker; its record key is ``marker.cell.key``.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> marker = End(cell=cell, offsets=OffsetSet.of((3, 9)))
    >>> decode(cell.key, encode(marker)) == marker
    True
    """
    pb = MarkerPb(version=V2, subscription=marker.cell.subscription, topic=marker.cell.topic)
    pb.message_id.SetInParent()
    pb.message_id.partition = marker.cell.partition
    if isinstance(marker, (Start, End, KeepAlive, Release, Reject, Withhold)):
        pb.offsets = marker.offsets.to_roaring()
    if isinstance(marker, (Start, KeepAlive)):
        pb.redeliver_after_ms = marker.lease_ms
    match marker:
        case Start(delivery_count=count, run_id=run, alone=alone):
            pb.type, pb.delivery_count, pb.run_id, pb.alone = START, count, run, alone
        case End(run_id=run, no_message=no_message):
            pb.type, pb.run_id, pb.no_message = END, run or "", no_message
        case KeepAlive(delivery_count=count, run_id=run):
            pb.type, pb.delivery_count, pb.run_id = KEEPALIVE, count or 0, run or ""
        case Release(delivery_count=count, delay_ms=delay_ms, reason=reason, due_ms=due_ms):
            pb.type, pb.delivery_count, pb.reason = RELEASE, count, kept(reason)
            if delay_ms is not None:
                pb.delay_ms = delay_ms
            if due_ms is not None:
                pb.due_ms = due_ms
        case Reject(delivery_count=count, reason=reason):
            pb.type, pb.delivery_count, pb.reason = REJECT, count, kept(reason)
        case EndUpTo(position=position, run_id=run):
            pb.type, pb.position, pb.run_id = END_UP_TO, position, run or ""
        case Seek(position=position):
            pb.type, pb.position = SEEK, position
        case Hello(run_id=run, position=position, topic_id=topic_id):
            pb.type, pb.run_id, pb.position, pb.topic_id = HELLO, run, position, topic_id or ""
        case CloseBreaker():
            pb.type = RESUME
        case OpenBreaker(trip=trip):
            pb.type, pb.reason = HOLD, kept(trip)
        case EndOffsetObserved(position=position):
            pb.type, pb.position = LOG_END, position
        case Delete():
            pb.type = DELETE
        case Withhold():
            _encode_withhold(pb, marker)
        case _:
            assert_never(marker)
    return pb.SerializeToString(deterministic=True)


def _encode_withhold(pb: MarkerPb, marker: Withhold) -> None:
    pb.type, pb.delivery_count, pb.delay_ms = WITHHOLD, marker.delivery_count, marker.delay_ms
    pb.reason, pb.error, pb.trouble = kept(marker.reason), kept(marker.error), kept(marker.trouble)
    pb.last_delivery_ms, pb.tries = marker.last_delivery_ms, marker.tries


def kept(reason: str) -> str:
    """Returns the part of a reason that a marker keeps."""
    # Reasons come from exceptions, whose text may hold lone surrogates that UTF-8 cannot encode.
    return reason[:MAX_REASON].encode(errors="replace").decode()


def decode(key: bytes | None, value: bytes | None) -> Marker | MarkerV1:
    """Returns the marker of a record of the markers topic.

    Raises:
        InvalidMarker: the record is not a valid marker and must be quarantined; the error gives the reason.
    """
    if key is None:
        raise InvalidMarker("the record has no key")
    if not value:
        raise InvalidMarker("the record has no value")
    try:
        pb = MarkerPb.FromString(value)
    except DecodeError as cause:
        raise InvalidMarker("the value is not a protobuf message of markers") from cause
    if not pb.HasField("message_id"):
        raise InvalidMarker("it has no message id")
    if pb.message_id.partition < 0 or not 0 <= pb.message_id.offset < OFFSET_LIMIT:
        raise InvalidMarker("its message id is negative or beyond every log")
    if pb.version == V1:
        return _decode_v1(key, pb)
    if pb.version == V2:
        return _decode_v2(key, pb)
    raise InvalidMarker(f"its version {pb.version} is unknown")


def decode_folded(value: bytes) -> Marker:
    """Returns a marker that :func:`encode` wrote from a decoded one, without its record key."""
    pb = MarkerPb.FromString(value)
    cell = Cell(subscription=pb.subscription, topic=pb.topic, partition=pb.message_id.partition)
    return _decode_v2(cell.key, pb)


def _decode_v1(key: bytes, pb: MarkerPb) -> MarkerV1:
    if not key:
        raise InvalidMarker("the record key names no queue")
    if pb.type not in (START, END, KEEPALIVE):
        raise InvalidMarker(f"its type {pb.type} is unknown in version 1")
    return MarkerV1(
        queue_id=key,
        type=pb.type,
        partition=pb.message_id.partition,
        offset=pb.message_id.offset,
        redeliver_after_ms=min(pb.redeliver_after_ms, MAX_LEASE_MS),
        key=pb.key,
        value=pb.value,
    )


def _decode_v2(key: bytes, pb: MarkerPb) -> Marker:
    if not pb.subscription or not pb.topic:
        raise InvalidMarker("it names no cell")
    cell = Cell(subscription=pb.subscription, topic=pb.topic, partition=pb.message_id.partition)
    if key != cell.key:
        raise InvalidMarker(f"the record key is not the cell {cell}")
    # No option accepts such a name and no topic has it: the cell could not be decoded or served.
    for name, why in (
        (pb.subscription, why_no_subscription(pb.subscription)),
        (pb.topic, why_no_topic(pb.topic)),
    ):
        if why is not None:
            raise InvalidMarker(f"{name!r} is no name: {why}")
    if pb.delivery_count > MAX_DELIVERY_COUNT:
        raise InvalidMarker(f"its delivery count {pb.delivery_count} is beyond belief")
    count, run, lease_ms = pb.delivery_count, pb.run_id, min(pb.redeliver_after_ms, MAX_LEASE_MS)
    delay_ms = min(pb.delay_ms, MAX_LEASE_MS) if pb.HasField("delay_ms") else None
    match pb.type:
        case 0 if count and run:
            return Start(
                cell=cell,
                offsets=_offsets(pb),
                lease_ms=lease_ms,
                delivery_count=count,
                run_id=run,
                alone=pb.alone,
            )
        case 1:
            return End(cell=cell, offsets=_offsets(pb), run_id=run or None, no_message=pb.no_message)
        case 2 if count or run:
            return KeepAlive(
                cell=cell,
                offsets=_offsets(pb),
                lease_ms=lease_ms,
                delivery_count=count or None,
                run_id=run or None,
            )
        case 3 if count:
            return Release(
                cell=cell,
                offsets=_offsets(pb),
                delivery_count=count,
                delay_ms=delay_ms,
                reason=kept(pb.reason),
                due_ms=_due_ms(pb),
            )
        case 4 if count:
            return Reject(cell=cell, offsets=_offsets(pb), delivery_count=count, reason=kept(pb.reason))
        case 5:
            return EndUpTo(cell=cell, position=_position(pb), run_id=run or None)
        case 6:
            return Seek(cell=cell, position=_position(pb))
        case 7 if run:
            return Hello(cell=cell, run_id=run, position=_position(pb), topic_id=pb.topic_id or None)
        case 8:
            return CloseBreaker(cell=cell)
        case 9 if pb.reason:
            return OpenBreaker(cell=cell, trip=kept(pb.reason))
        case 10:
            return EndOffsetObserved(cell=cell, position=_position(pb))
        case 11:
            return Delete(cell=cell)
        case 12 if pb.trouble and pb.tries and pb.last_delivery_ms >= 0:
            return Withhold(
                cell=cell,
                offsets=_offsets(pb),
                delivery_count=count,
                reason=kept(pb.reason),
                error=kept(pb.error),
                last_delivery_ms=pb.last_delivery_ms,
                trouble=kept(pb.trouble),
                tries=pb.tries,
                delay_ms=delay_ms or 0,
            )
        case 0 | 2 | 3 | 4 | 7 | 9 | 12:
            raise InvalidMarker(f"its type {pb.type} needs a delivery count, run or reason that it lacks")
        case _:
            raise InvalidMarker(f"its type {pb.type} is unknown")


def _offsets(pb: MarkerPb) -> OffsetSet:
    try:
        return OffsetSet.from_roaring(pb.offsets)
    except ValueError as cause:
        raise InvalidMarker(str(cause)) from cause


def _due_ms(pb: MarkerPb) -> int | None:
    if not pb.HasField("due_ms"):
        return None
    if not 0 <= pb.due_ms < MAX_DUE_MS:
        raise InvalidMarker("its due time is before 1970 or after 9999")
    return pb.due_ms


def _position(pb: MarkerPb) -> int:
    if not pb.HasField("position") or not 0 <= pb.position <= OFFSET_LIMIT:
        raise InvalidMarker("it has no position")
    return pb.position
