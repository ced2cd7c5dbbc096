"""Cursors as record values: one record if the cursor fits, several parts if not."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise

from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import (
    Available,
    CursorSnapshot,
    Delayed,
    HeldLetters,
    Lease,
    MarkersLog,
    SavedState,
    Totals,
)
from spark_cursor_source.core.limits import Limits
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.ttl import MessageAges, ObservedEnd
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion
from spark_cursor_source.wire.control_pb2 import Blocked as BlockedPb
from spark_cursor_source.wire.control_pb2 import Breaker as BreakerPb
from spark_cursor_source.wire.control_pb2 import Cursor as CursorPb
from spark_cursor_source.wire.control_pb2 import CursorPart as CursorPartPb
from spark_cursor_source.wire.control_pb2 import EndSeen as EndSeenPb
from spark_cursor_source.wire.control_pb2 import Group as GroupPb
from spark_cursor_source.wire.control_pb2 import Held as HeldPb
from spark_cursor_source.wire.control_pb2 import Saved as SavedPb
from spark_cursor_source.wire.control_pb2 import Totals as TotalsPb
from spark_cursor_source.wire.descriptors import UNREADABLE, parsed
from spark_cursor_source.wire.first_deliveries import decode_first_deliveries, encode_first_deliveries
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets

VERSION = 1
PART_MARK = b"#"  #: separates the cell's key and the part number in the record key of a part


def encode(cursor: CursorSnapshot) -> bytes:
    """Returns the whole cursor as bytes. The size depends on the ack holes, not on the backlog."""
    runs = sorted({lease.run_id for lease, _ in cursor.leases} | {cursor.owner or ""} - {""})
    place = {run: at for at, run in enumerate(runs, start=1)}
    return CursorPb(
        stream=cursor.cell.topic,
        partition=cursor.cell.partition,
        cursor_id=cursor.cell.subscription,
        offset=cursor.mark_delete,
        version=VERSION,
        read_position=cursor.read_position,
        next_marker=cursor.next_marker,
        owner=place.get(cursor.owner or "", 0),
        markers_partition=cursor.markers_partition,
        topic_id=cursor.topic_id or "",
        max_deliveries=cursor.max_deliveries or 0,
        leases=[
            _group(
                lease,
                offsets,
                run=place.get(lease.run_id, 0),
                lasts_ms=_lasts_ms(lease),
                grouped=lease.grouped,
                left=lease.left,
            )
            for lease, offsets in cursor.leases
        ],
        delayed=[
            _group(delay, offsets, died=delay.died, lapsed=delay.lapsed, grouped=delay.grouped)
            for delay, offsets in cursor.delayed
        ],
        available=[
            GroupPb(
                offsets=encode_offsets(offsets),
                delivery_count=wait.delivery_count,
                died=wait.died,
                lapsed=wait.lapsed,
                grouped=wait.grouped,
            )
            for wait, offsets in cursor.available
        ],
        totals=TotalsPb(**{field.name: getattr(cursor.totals, field.name) for field in fields(Totals)}),
        runs=runs,
        message_ttl_ms=cursor.ages.ttl_ms,
        ends_seen=[EndSeenPb(at_ms=end.at_ms, position=end.position) for end in cursor.ages.ends],
        expired_below=cursor.ages.expired_below,
        held=[HeldPb(offsets=encode_offsets(offsets), **held._asdict()) for held, offsets in cursor.held],
        breaker=None if cursor.breaker == Breaker() else _breaker(cursor.breaker),
        first_deliveries=encode_first_deliveries(cursor.first_deliveries),
        sought=cursor.sought,
        owner_seen_ms=cursor.owner_seen_ms,
        paused_ms=cursor.paused_ms,
        rate_limit=cursor.limits.rate,
        outstanding_limit=cursor.limits.max_outstanding,
        saved=[_encode_saved(one) for one in cursor.saved],
        blocked=_encode_blocked(cursor.blocked),
        markers_topic="" if cursor.log is None else cursor.log.topic,
        markers_topic_id="" if cursor.log is None else cursor.log.topic_id,
        undo_of_next=None if cursor.undo_of_next is None else _encode_saved(cursor.undo_of_next),
        generation_ms=cursor.generation_ms,
    ).SerializeToString(deterministic=True)


def encode_log(log: MarkersLog) -> bytes:
    """Returns the bytes to append to an encoded cursor without a markers topic, to add this one.

    >>> from dataclasses import replace
    >>> cursor = CursorSnapshot(
    ...     cell=Cell(subscription="s", topic="t", partition=0), read_position=9, next_marker=7)
    >>> log = MarkersLog("markers", "id")
    >>> encode(cursor) + encode_log(log) == encode(replace(cursor, log=log))
    True
    """
    return CursorPb(markers_topic=log.topic, markers_topic_id=log.topic_id).SerializeToString(
        deterministic=True
    )


def has_open_breaker(value: bytes) -> bool:
    """Tells whether the breaker of an encoded cursor is open."""
    return CursorPb.FromString(value).breaker.HasField("opened_ms")


def _group(
    key: Lease | Delayed,
    offsets: OffsetSet,
    *,
    run: int = 0,
    lasts_ms: int | None = None,
    died: bool = False,
    lapsed: bool = False,
    grouped: bool = False,
    left: bool = False,
) -> GroupPb:
    return GroupPb(
        offsets=encode_offsets(offsets),
        delivery_count=key.delivery_count,
        at_ms=key[0],
        run=run,
        lasts_ms=lasts_ms,
        died=died,
        lapsed=lapsed,
        grouped=grouped,
        left=left,
    )


def _encode_blocked(blocked: Blocked) -> BlockedPb | None:
    if not blocked.offsets:
        return None
    return BlockedPb(
        offsets=encode_offsets(blocked.offsets),
        behind=[one - behind for one, behind in zip(blocked.offsets, blocked.behind, strict=True)],
        delivery_counts=blocked.delivery_counts,
    )


def _decode_blocked(pb: BlockedPb) -> Blocked:
    offsets = decode_offsets(pb.offsets) if pb.offsets else EMPTY
    if len(offsets) != len(pb.behind):
        raise InvalidControlRecord("a cursor does not tell for each blocked message which one it waits for")
    behind = tuple(one - back for one, back in zip(offsets, pb.behind, strict=True))
    return Blocked(offsets=offsets, behind=behind, delivery_counts=tuple(pb.delivery_counts))


def _encode_saved(saved: SavedState) -> SavedPb:
    return SavedPb(
        name=saved.name,
        at_ms=saved.at_ms,
        read_position=saved.read_position,
        next_marker=saved.next_marker,
        outstanding=[
            GroupPb(offsets=encode_offsets(offsets), delivery_count=count)
            for count, offsets in saved.outstanding
        ],
        move=saved.move,
    )


def _decode_saved(pb: SavedPb) -> SavedState:
    return SavedState(
        name=pb.name,
        at_ms=pb.at_ms,
        read_position=pb.read_position,
        next_marker=pb.next_marker,
        outstanding=tuple((group.delivery_count, decode_offsets(group.offsets)) for group in pb.outstanding),
        move=pb.move,
    )


def _breaker(breaker: Breaker) -> BreakerPb:
    return BreakerPb(
        trip=breaker.trip,
        opened_ms=breaker.opened_ms,
        closes_ms=breaker.closes_ms,
        recent=[BreakerPb.Letters(at_ms=at_ms, count=count) for at_ms, count in breaker.recent],
    )


def decode(value: bytes) -> CursorSnapshot:
    """Returns the cursor of a whole record value.

    Raises:
        LaterCursorVersion: the value is a cursor of a later version than this library reads.
        InvalidControlRecord: the value is not a cursor of a subscription.
    """
    pb = parsed(CursorPb, value, "cursors")
    if pb.version > VERSION and pb.stream:
        raise LaterCursorVersion(pb.version, VERSION)
    if pb.version != VERSION or not pb.stream:
        raise InvalidControlRecord("a plain position, not the cursor of a subscription")
    cursor = CursorSnapshot(
        cell=Cell(subscription=pb.cursor_id, topic=pb.stream, partition=pb.partition),
        read_position=pb.read_position,
        next_marker=pb.next_marker,
        leases=tuple(
            (
                Lease(
                    group.at_ms,
                    group.delivery_count,
                    _run(pb.runs, group.run),
                    _started_ms(group),
                    group.grouped,
                    group.left,
                ),
                decode_offsets(group.offsets),
            )
            for group in pb.leases
        ),
        delayed=tuple(
            (
                Delayed(group.at_ms, group.delivery_count, group.died, group.lapsed, group.grouped),
                decode_offsets(group.offsets),
            )
            for group in pb.delayed
        ),
        available=tuple(
            (
                Available(group.delivery_count, group.died, group.lapsed, group.grouped),
                decode_offsets(group.offsets),
            )
            for group in pb.available
        ),
        owner=_run(pb.runs, pb.owner) or None,
        markers_partition=pb.markers_partition,
        topic_id=pb.topic_id or None,
        max_deliveries=pb.max_deliveries or None,
        totals=Totals(**{field.name: getattr(pb.totals, field.name) for field in fields(Totals)}),
        held=tuple(
            (
                HeldLetters(
                    held.delivery_count,
                    held.reason,
                    held.error,
                    held.last_delivery_ms,
                    held.trouble,
                    held.retry_ms,
                    held.tries,
                ),
                decode_offsets(held.offsets),
            )
            for held in pb.held
        ),
        breaker=_decode_breaker(pb.breaker),
        ages=MessageAges(
            ttl_ms=pb.message_ttl_ms if pb.HasField("message_ttl_ms") else None,
            ends=tuple(ObservedEnd(end.at_ms, end.position) for end in pb.ends_seen),
            expired_below=pb.expired_below,
        ),
        first_deliveries=decode_first_deliveries(pb.first_deliveries),
        sought=pb.sought,
        owner_seen_ms=pb.owner_seen_ms,
        paused_ms=pb.paused_ms if pb.HasField("paused_ms") else None,
        limits=Limits(
            rate=pb.rate_limit if pb.HasField("rate_limit") else None,
            max_outstanding=pb.outstanding_limit if pb.HasField("outstanding_limit") else None,
        ),
        saved=tuple(_decode_saved(saved) for saved in pb.saved),
        blocked=_decode_blocked(pb.blocked),
        undo_of_next=_decode_saved(pb.undo_of_next) if pb.HasField("undo_of_next") else None,
        generation_ms=pb.generation_ms,
        log=MarkersLog(pb.markers_topic, pb.markers_topic_id) if pb.markers_topic else None,
    )
    _check(cursor)
    return cursor


def is_cursor_of(key: bytes, value: bytes) -> bool:
    """Tells whether a whole record value says that it is the cursor of the cell with this key.

    If it does, and cannot be decoded, it is a damaged cursor and no record of another program.
    """
    try:
        pb = CursorPb.FromString(value)
    except UNREADABLE:
        return False
    cell = Cell(subscription=pb.cursor_id, topic=pb.stream, partition=pb.partition)
    return pb.version == VERSION and cell.key == key


def _decode_breaker(pb: BreakerPb) -> Breaker:
    return Breaker(
        trip=pb.trip,
        opened_ms=pb.opened_ms if pb.HasField("opened_ms") else None,
        closes_ms=pb.closes_ms if pb.HasField("closes_ms") else None,
        recent=tuple((letters.at_ms, letters.count) for letters in pb.recent),
    )


def _lasts_ms(lease: Lease) -> int | None:
    return lease.deadline_ms - lease.started_ms if lease.started_ms else None


def _started_ms(group: GroupPb) -> int:
    return group.at_ms - group.lasts_ms if group.HasField("lasts_ms") else 0


def _run(runs: Sequence[str], place: int) -> str:
    if place > len(runs):
        raise InvalidControlRecord(f"run {place} of {len(runs)} in a cursor")
    return runs[place - 1] if place else ""


def _check(cursor: CursorSnapshot) -> None:
    """Checks the offsets, groups and numbers of a cursor.

    No offset may count twice or be unseen, no group may occur twice, and no number may be out of bounds.
    """
    groups: list[tuple[Lease | Delayed | Available | HeldLetters, OffsetSet]]
    groups = [*cursor.leases, *cursor.delayed, *cursor.available, *cursor.held]
    kinds = (cursor.leases, cursor.delayed, cursor.available, cursor.held)
    outstanding = cursor.outstanding
    numbers = [cursor.cell.partition, cursor.markers_partition, cursor.read_position, cursor.next_marker]
    numbers += [cursor.ages.expired_below, cursor.owner_seen_ms, cursor.generation_ms]
    ends = cursor.ages.ends
    if (
        min(numbers) < 0
        or any(earlier.position >= later.position for earlier, later in pairwise(ends))
        or any(lease.delivery_count < 1 for lease, _ in cursor.leases)
        or not all(offsets for _, offsets in groups)
        or any(len(dict(kind)) < len(kind) for kind in kinds)
        or not cursor.blocked.is_consistent
        or sum(len(offsets) for _, offsets in groups) + len(cursor.blocked.offsets) != len(outstanding)
        or outstanding.below(cursor.read_position) != outstanding
        or not all(map(_is_consistent, cursor.saved))
        or (cursor.undo_of_next is not None and not _is_consistent(cursor.undo_of_next))
        or cursor.limits.why_invalid is not None
        or len({saved.name for saved in cursor.saved}) < len(cursor.saved)
    ):
        raise InvalidControlRecord(f"the cursor of {cursor.cell} contradicts itself")


def _is_consistent(saved: SavedState) -> bool:
    offsets = saved.offsets
    return (
        bool(saved.name)
        and min(saved.at_ms, saved.read_position, saved.next_marker) >= 0
        and sum(len(some) for _, some in saved.outstanding) == len(offsets)
        and offsets.below(saved.read_position) == offsets
    )


def to_records(key: bytes, whole: bytes, *, max_bytes: int) -> list[tuple[bytes, bytes]]:
    """Returns records (key, value) that together hold ``whole``, each of about ``max_bytes`` at most.

    The records of one cursor are written in one transaction. If a reader gets parts of two cursors, the
    checksum reveals it.
    """
    if len(whole) <= max_bytes:
        return [(key, whole)]
    pieces = [whole[at : at + max_bytes] for at in range(0, len(whole), max_bytes)]
    crc32 = zlib.crc32(whole)
    return [
        (
            key + PART_MARK + str(index).encode(),
            CursorPartPb(index=index, parts=len(pieces), crc32=crc32, data=data).SerializeToString(),
        )
        for index, data in enumerate(pieces)
    ] + [(key, b"")]


def from_records(records: Mapping[bytes, bytes], key: bytes) -> bytes | None:
    """Returns the ``whole`` of :func:`to_records`, from the latest value of each key; None without a record.

    Raises:
        InvalidControlRecord: parts are missing, or belong to different cursors.
    """
    whole = records.get(key)
    if whole is None or whole:
        return whole
    parts: list[CursorPartPb] = []
    while len(parts) < (parts[0].parts if parts else 1):
        value = records.get(key + PART_MARK + str(len(parts)).encode())
        if not value:
            raise InvalidControlRecord(f"part {len(parts)} of the cursor of {key!r} is missing")
        parts.append(_part(value))
    data = b"".join(part.data for part in parts)
    crc32 = zlib.crc32(data)
    if any(part.crc32 != crc32 for part in parts):
        raise InvalidControlRecord(f"the parts of the cursor of {key!r} do not belong together")
    return data


def _part(value: bytes) -> CursorPartPb:
    return parsed(CursorPartPb, value, "parts of cursors")


def cell_keys(keys: Iterable[bytes]) -> list[bytes]:
    """Returns the record keys of whole cursors in order, without the keys of parts."""
    return sorted(key for key in keys if PART_MARK not in key.rsplit(b",", 1)[-1])
