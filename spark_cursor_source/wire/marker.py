"""Markers to bytes and back. Decoding is strict: bytes that are not surely a marker are rejected.

Two versions share one protobuf message. V1 is the format of kafka-mq-go: one marker per message, keyed by
queue id. V2 is one marker for a set of messages of a cell, keyed by the cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.limits import Limits
from spark_cursor_source.core.marker import (
    MAX_LEASE_MS,
    Block,
    CloseBreaker,
    Delete,
    End,
    EndLeased,
    EndOffsetObserved,
    EndPause,
    EndUpTo,
    ForgetState,
    Hello,
    KeepAlive,
    Leave,
    Marker,
    MemberLost,
    OfTopic,
    OpenBreaker,
    Pause,
    Reject,
    Release,
    Requeue,
    RestoreState,
    SaveState,
    Seek,
    SetLimits,
    Start,
    Withhold,
)
from spark_cursor_source.core.names import why_no_subscription, why_no_topic
from spark_cursor_source.core.offsets import OFFSET_LIMIT, OffsetSet
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.wire.descriptors import UNREADABLE
from spark_cursor_source.wire.marker_pb2 import Marker as MarkerPb

V1, V2 = 0, 1
MAX_REASON = 500  #: longest reason that a marker keeps, in characters
MAX_STATE_NAME = 100  #: longest name of a saved state, in characters
MAX_DUE_MS = 253_402_300_800_000  #: the end of the year 9999
MAX_DELIVERY_COUNT = 10**9  #: limit of delivery counts and tries; further ones still fit in 32 bits


class MarkerType(IntEnum):
    """Stored numbers of the marker classes. V1 has the first three."""

    START = 0
    END = 1
    KEEP_ALIVE = 2
    RELEASE = 3
    REJECT = 4
    END_UP_TO = 5
    SEEK = 6
    HELLO = 7
    CLOSE_BREAKER = 8
    OPEN_BREAKER = 9
    END_OFFSET_OBSERVED = 10
    DELETE = 11
    WITHHOLD = 12
    END_LEASED = 13
    LEAVE = 14
    PAUSE = 15
    END_PAUSE = 16
    REQUEUE = 17
    MEMBER_LOST = 18
    SAVE_STATE = 19
    RESTORE_STATE = 20
    FORGET_STATE = 21
    BLOCK = 22
    SET_LIMITS = 23


_V1_TYPES = (MarkerType.START, MarkerType.END, MarkerType.KEEP_ALIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerV1:
    """Marker of kafka-mq-go: ``type`` is START, END or KEEP_ALIVE of one message of a queue.

    A KEEP_ALIVE with a ``trouble`` is written by this library's tracker alone. It opens the message again, of
    which the tracker has no content. kafka-mq-go's tracker ignores it, as the message is not open there.
    """

    queue_id: bytes
    type: MarkerType
    partition: int
    offset: int
    redeliver_after_ms: int = 0
    key: bytes = b""
    value: bytes = b""
    trouble: str = ""


def encode_v1(marker: MarkerV1) -> bytes:
    """Returns the bytes that kafka-mq-go writes for this marker.

    >>> encode_v1(MarkerV1(queue_id=b"q1", type=MarkerType.END, partition=3, offset=0)).hex(" ", 2)
    '1001 1a02 0803'
    """
    pb = MarkerPb(
        version=V1, type=marker.type, key=marker.key, value=marker.value, trouble=kept(marker.trouble)
    )
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
    number, encode_fields, _ = _CODECS[type(marker)]
    cell = marker.cell
    pb = MarkerPb(version=V2, subscription=cell.subscription, topic=cell.topic)
    pb.type = number
    pb.message_id.SetInParent()
    pb.message_id.partition = cell.partition
    encode_fields(pb, marker)
    if isinstance(marker, OfTopic) and marker.topic_id is not None:
        pb.topic_id = marker.topic_id
    return pb.SerializeToString(deterministic=True)


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
    except UNREADABLE as cause:
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
    """Returns a marker whose record was decoded before, from its value alone."""
    pb = MarkerPb.FromString(value)
    cell = Cell(subscription=pb.subscription, topic=pb.topic, partition=pb.message_id.partition)
    return _decode_v2(cell.key, pb)


def _decode_v1(key: bytes, pb: MarkerPb) -> MarkerV1:
    if not key:
        raise InvalidMarker("the record key names no queue")
    if pb.type not in _V1_TYPES:
        raise InvalidMarker(f"its type {pb.type} is unknown in version 1")
    return MarkerV1(
        queue_id=key,
        type=MarkerType(pb.type),
        partition=pb.message_id.partition,
        offset=pb.message_id.offset,
        redeliver_after_ms=min(pb.redeliver_after_ms, MAX_LEASE_MS),
        key=pb.key,
        value=pb.value,
        trouble=pb.trouble,
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
    for count, what in ((pb.delivery_count, "delivery count"), (pb.tries, "number of tries")):
        if count > MAX_DELIVERY_COUNT:
            raise InvalidMarker(f"its {what} {count} is beyond belief")
    decode_fields = _DECODERS.get(pb.type)
    if decode_fields is None:
        raise InvalidMarker(f"its type {pb.type} is unknown")
    marker = decode_fields(pb, cell)
    if marker is None:
        raise InvalidMarker(f"its type {pb.type} needs a delivery count, run or reason that it lacks")
    return marker


def _encode_start(pb: MarkerPb, marker: Start) -> None:
    pb.offsets, pb.redeliver_after_ms = marker.offsets.to_roaring(), marker.lease_ms
    pb.delivery_count, pb.run_id, pb.alone = marker.delivery_count, marker.run_id, marker.alone


def _decode_start(pb: MarkerPb, cell: Cell) -> Start | None:
    if not pb.delivery_count or not pb.run_id:
        return None
    return Start(
        cell=cell,
        offsets=_offsets(pb),
        lease_ms=_lease_ms(pb),
        delivery_count=pb.delivery_count,
        run_id=pb.run_id,
        alone=pb.alone,
        topic_id=pb.topic_id or None,
    )


def _encode_end(pb: MarkerPb, marker: End) -> None:
    pb.offsets, pb.run_id = marker.offsets.to_roaring(), marker.run_id or ""
    pb.no_message = marker.no_message


def _decode_end(pb: MarkerPb, cell: Cell) -> End:
    return End(
        cell=cell,
        offsets=_offsets(pb),
        run_id=pb.run_id or None,
        no_message=pb.no_message,
        topic_id=pb.topic_id or None,
    )


def _encode_end_leased(pb: MarkerPb, marker: EndLeased) -> None:
    pb.offsets, pb.run_id = marker.offsets.to_roaring(), marker.run_id
    pb.delivery_count = marker.delivery_count


def _decode_end_leased(pb: MarkerPb, cell: Cell) -> EndLeased | None:
    count, run = pb.delivery_count, pb.run_id
    if not count or not run:
        return None
    return EndLeased(cell=cell, offsets=_offsets(pb), run_id=run, delivery_count=count)


def _encode_leave(pb: MarkerPb, marker: Leave) -> None:
    pb.offsets, pb.run_id = marker.offsets.to_roaring(), marker.run_id or ""
    pb.delivery_count = marker.delivery_count


def _decode_leave(pb: MarkerPb, cell: Cell) -> Leave | None:
    count = pb.delivery_count
    if not count:
        return None
    return Leave(cell=cell, offsets=_offsets(pb), delivery_count=count, run_id=pb.run_id or None)


def _encode_keep_alive(pb: MarkerPb, marker: KeepAlive) -> None:
    pb.offsets, pb.redeliver_after_ms = marker.offsets.to_roaring(), marker.lease_ms
    pb.delivery_count, pb.run_id = marker.delivery_count or 0, marker.run_id or ""


def _decode_keep_alive(pb: MarkerPb, cell: Cell) -> KeepAlive | None:
    count, run = pb.delivery_count, pb.run_id
    if not count and not run:
        return None
    return KeepAlive(
        cell=cell,
        offsets=_offsets(pb),
        lease_ms=_lease_ms(pb),
        delivery_count=count or None,
        run_id=run or None,
        topic_id=pb.topic_id or None,
    )


def _encode_release(pb: MarkerPb, marker: Release) -> None:
    pb.offsets, pb.delivery_count = marker.offsets.to_roaring(), marker.delivery_count
    pb.reason = kept(marker.reason)
    if marker.delay_ms is not None:
        pb.delay_ms = marker.delay_ms
    if marker.due_ms is not None:
        pb.due_ms = marker.due_ms


def _decode_release(pb: MarkerPb, cell: Cell) -> Release | None:
    if not pb.delivery_count:
        return None
    return Release(
        cell=cell,
        offsets=_offsets(pb),
        delivery_count=pb.delivery_count,
        delay_ms=_delay_ms(pb),
        reason=kept(pb.reason),
        due_ms=_due_ms(pb),
        topic_id=pb.topic_id or None,
    )


def _encode_block(pb: MarkerPb, marker: Block) -> None:
    pb.offsets, pb.delivery_count = marker.offsets.to_roaring(), marker.delivery_count
    pb.behind.extend(one - behind for one, behind in zip(marker.offsets, marker.behind, strict=True))


def _decode_block(pb: MarkerPb, cell: Cell) -> Block | None:
    if not pb.delivery_count:
        return None
    offsets = _offsets(pb)
    if len(offsets) != len(pb.behind):
        raise InvalidMarker("it does not tell for each message which one it waits for")
    behind = tuple(one - back for one, back in zip(offsets, pb.behind, strict=True))
    if not all(pb.behind) or min(behind, default=0) < 0:
        raise InvalidMarker("one of its messages waits for a message that is not before it")
    return Block(cell=cell, offsets=offsets, behind=behind, delivery_count=pb.delivery_count)


def _encode_reject(pb: MarkerPb, marker: Reject) -> None:
    pb.offsets, pb.delivery_count = marker.offsets.to_roaring(), marker.delivery_count
    pb.reason = kept(marker.reason)


def _decode_reject(pb: MarkerPb, cell: Cell) -> Reject | None:
    count = pb.delivery_count
    if not count:
        return None
    return Reject(
        cell=cell,
        offsets=_offsets(pb),
        delivery_count=count,
        reason=kept(pb.reason),
        topic_id=pb.topic_id or None,
    )


def _encode_end_up_to(pb: MarkerPb, marker: EndUpTo) -> None:
    pb.position, pb.run_id = marker.position, marker.run_id or ""


def _decode_end_up_to(pb: MarkerPb, cell: Cell) -> EndUpTo:
    return EndUpTo(cell=cell, position=_position(pb), run_id=pb.run_id or None)


def _encode_position(pb: MarkerPb, marker: Seek | EndOffsetObserved) -> None:
    pb.position = marker.position


def _decode_seek(pb: MarkerPb, cell: Cell) -> Seek:
    return Seek(cell=cell, position=_position(pb))


def _decode_end_offset_observed(pb: MarkerPb, cell: Cell) -> EndOffsetObserved:
    return EndOffsetObserved(cell=cell, position=_position(pb))


def _encode_hello(pb: MarkerPb, marker: Hello) -> None:
    pb.run_id, pb.position, pb.topic_id = marker.run_id, marker.position, marker.topic_id or ""


def _decode_hello(pb: MarkerPb, cell: Cell) -> Hello | None:
    if not pb.run_id:
        return None
    return Hello(cell=cell, run_id=pb.run_id, position=_position(pb), topic_id=pb.topic_id or None)


def _encode_nothing(pb: MarkerPb, marker: CloseBreaker | Delete | Pause | EndPause) -> None:
    pass


def _decode_close_breaker(pb: MarkerPb, cell: Cell) -> CloseBreaker:
    return CloseBreaker(cell=cell)


def _decode_delete(pb: MarkerPb, cell: Cell) -> Delete:
    return Delete(cell=cell)


def _decode_pause(pb: MarkerPb, cell: Cell) -> Pause:
    return Pause(cell=cell)


def _decode_end_pause(pb: MarkerPb, cell: Cell) -> EndPause:
    return EndPause(cell=cell)


def _encode_set_limits(pb: MarkerPb, marker: SetLimits) -> None:
    if marker.limits.rate is not None:
        pb.rate_limit = marker.limits.rate
    if marker.limits.max_outstanding is not None:
        pb.outstanding_limit = marker.limits.max_outstanding


def _decode_set_limits(pb: MarkerPb, cell: Cell) -> SetLimits:
    limits = Limits(
        rate=pb.rate_limit if pb.HasField("rate_limit") else None,
        max_outstanding=pb.outstanding_limit if pb.HasField("outstanding_limit") else None,
    )
    if (why := limits.why_invalid) is not None:
        raise InvalidMarker(why)
    return SetLimits(cell=cell, limits=limits)


def _encode_requeue(pb: MarkerPb, marker: Requeue) -> None:
    pb.offsets = marker.offsets.to_roaring()


def _decode_requeue(pb: MarkerPb, cell: Cell) -> Requeue:
    return Requeue(cell=cell, offsets=_offsets(pb))


def _encode_member_lost(pb: MarkerPb, marker: MemberLost) -> None:
    pb.run_id, pb.lost_run_id = marker.run_id, marker.lost_run_id


def _decode_member_lost(pb: MarkerPb, cell: Cell) -> MemberLost | None:
    if not pb.run_id or not pb.lost_run_id:
        return None
    return MemberLost(cell=cell, run_id=pb.run_id, lost_run_id=pb.lost_run_id)


def _encode_save_state(pb: MarkerPb, marker: SaveState) -> None:
    pb.name, pb.move = marker.name, marker.move


def _decode_save_state(pb: MarkerPb, cell: Cell) -> SaveState | None:
    return SaveState(cell=cell, name=_name(pb), move=_move(pb)) if pb.name else None


def _encode_restore_state(pb: MarkerPb, marker: RestoreState) -> None:
    pb.name, pb.move = marker.name, marker.move
    if marker.next_marker is not None:
        pb.next_marker = marker.next_marker


def _decode_restore_state(pb: MarkerPb, cell: Cell) -> RestoreState | None:
    if not pb.name:
        return None
    meant = pb.next_marker if pb.HasField("next_marker") else None
    return RestoreState(cell=cell, name=_name(pb), move=_move(pb), next_marker=meant)


def _encode_forget_state(pb: MarkerPb, marker: ForgetState) -> None:
    pb.name = marker.name


def _decode_forget_state(pb: MarkerPb, cell: Cell) -> ForgetState | None:
    return ForgetState(cell=cell, name=_name(pb)) if pb.name else None


def _encode_open_breaker(pb: MarkerPb, marker: OpenBreaker) -> None:
    pb.reason = kept(marker.trip)


def _decode_open_breaker(pb: MarkerPb, cell: Cell) -> OpenBreaker | None:
    return OpenBreaker(cell=cell, trip=kept(pb.reason)) if pb.reason else None


def _encode_withhold(pb: MarkerPb, marker: Withhold) -> None:
    pb.offsets, pb.delivery_count = marker.offsets.to_roaring(), marker.delivery_count
    pb.reason, pb.error, pb.trouble = kept(marker.reason), kept(marker.error), kept(marker.trouble)
    pb.delay_ms, pb.last_delivery_ms, pb.tries = marker.delay_ms, marker.last_delivery_ms, marker.tries


def _decode_withhold(pb: MarkerPb, cell: Cell) -> Withhold | None:
    if not pb.trouble or not pb.tries or pb.last_delivery_ms < 0:
        return None
    return Withhold(
        cell=cell,
        offsets=_offsets(pb),
        delivery_count=pb.delivery_count,
        reason=kept(pb.reason),
        error=kept(pb.error),
        last_delivery_ms=pb.last_delivery_ms,
        trouble=kept(pb.trouble),
        tries=pb.tries,
        delay_ms=_delay_ms(pb) or 0,
    )


_EncodeFields = Callable[[MarkerPb, Any], None]
#: None if the message lacks a field that its type needs
_DecodeFields = Callable[[MarkerPb, Cell], Marker | None]

_CODECS: dict[type[Marker], tuple[MarkerType, _EncodeFields, _DecodeFields]] = {
    Start: (MarkerType.START, _encode_start, _decode_start),
    End: (MarkerType.END, _encode_end, _decode_end),
    KeepAlive: (MarkerType.KEEP_ALIVE, _encode_keep_alive, _decode_keep_alive),
    Release: (MarkerType.RELEASE, _encode_release, _decode_release),
    Block: (MarkerType.BLOCK, _encode_block, _decode_block),
    Reject: (MarkerType.REJECT, _encode_reject, _decode_reject),
    EndUpTo: (MarkerType.END_UP_TO, _encode_end_up_to, _decode_end_up_to),
    Seek: (MarkerType.SEEK, _encode_position, _decode_seek),
    Hello: (MarkerType.HELLO, _encode_hello, _decode_hello),
    CloseBreaker: (MarkerType.CLOSE_BREAKER, _encode_nothing, _decode_close_breaker),
    OpenBreaker: (MarkerType.OPEN_BREAKER, _encode_open_breaker, _decode_open_breaker),
    EndOffsetObserved: (MarkerType.END_OFFSET_OBSERVED, _encode_position, _decode_end_offset_observed),
    Delete: (MarkerType.DELETE, _encode_nothing, _decode_delete),
    Withhold: (MarkerType.WITHHOLD, _encode_withhold, _decode_withhold),
    EndLeased: (MarkerType.END_LEASED, _encode_end_leased, _decode_end_leased),
    Leave: (MarkerType.LEAVE, _encode_leave, _decode_leave),
    Pause: (MarkerType.PAUSE, _encode_nothing, _decode_pause),
    EndPause: (MarkerType.END_PAUSE, _encode_nothing, _decode_end_pause),
    SetLimits: (MarkerType.SET_LIMITS, _encode_set_limits, _decode_set_limits),
    Requeue: (MarkerType.REQUEUE, _encode_requeue, _decode_requeue),
    MemberLost: (MarkerType.MEMBER_LOST, _encode_member_lost, _decode_member_lost),
    SaveState: (MarkerType.SAVE_STATE, _encode_save_state, _decode_save_state),
    RestoreState: (MarkerType.RESTORE_STATE, _encode_restore_state, _decode_restore_state),
    ForgetState: (MarkerType.FORGET_STATE, _encode_forget_state, _decode_forget_state),
}
_DECODERS: dict[int, _DecodeFields] = {number: fields for number, _, fields in _CODECS.values()}


def _offsets(pb: MarkerPb) -> OffsetSet:
    try:
        return OffsetSet.from_roaring(pb.offsets)
    except ValueError as cause:
        raise InvalidMarker(str(cause)) from cause


def _name(pb: MarkerPb) -> str:
    if len(pb.name) > MAX_STATE_NAME:
        raise InvalidMarker(f"its name has more than {MAX_STATE_NAME} characters")
    return pb.name


def _move(pb: MarkerPb) -> str:
    if len(pb.move) > MAX_STATE_NAME:
        raise InvalidMarker(f"the id of its move has more than {MAX_STATE_NAME} characters")
    return pb.move


def _lease_ms(pb: MarkerPb) -> int:
    return min(pb.redeliver_after_ms, MAX_LEASE_MS)


def _delay_ms(pb: MarkerPb) -> int | None:
    return min(pb.delay_ms, MAX_LEASE_MS) if pb.HasField("delay_ms") else None


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
