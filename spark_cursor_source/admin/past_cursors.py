"""Cursors as they were at an instant: the last snapshot before it, and the markers since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_cursor_source.admin.marker_log import scan_markers
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, SavedState
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import CellTracker
from spark_cursor_source.errors import PastNotKept
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.wire.instant_text import instant_text


def cursors_at(
    kafka: Mapping[str, str], markers_topic: str, cursors: Iterable[CursorSnapshot], at_ms: int
) -> list[CursorSnapshot]:
    """Returns these cursors as they were at a time of the brokers, in the same order.

    Cells that did not exist at that time are left out. The totals count from the snapshot on. A message that
    was leased when the snapshot was taken is available in the result, unless a later marker is about it.

    Raises:
        PastNotKept: a cell has no snapshot from before, and its first markers are not kept any more.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    wanted = list(cursors)
    topics = ClusterAdmin(client_config(kafka, "admin"))
    places = sorted({(markers_topic, one.markers_partition) for one in wanted})
    begins = topics.beginning_offsets(places)
    stops = {number: at for (_, number), at in topics.offsets_for_time(places, at_ms + 1).items()}
    trackers: dict[Cell, CellTracker] = {}
    starts: dict[int, int] = {}
    for cursor in wanted:
        number = cursor.markers_partition
        base = _last_before(cursor, at_ms)
        start = 0 if base is None else base.next_marker
        if start < begins[markers_topic, number]:
            cell = cursor.cell
            raise PastNotKept(cell.subscription, cell.topic, cell.partition, instant_text(at_ms))
        trackers[cursor.cell] = _resumed(cursor, base)
        starts[number] = min(start, starts.get(number, start))
    keys = {cell.key for cell in trackers}
    records = scan_markers(kafka, topics, markers_topic, starts, stops=stops, only=lambda key: key in keys)
    for record in records:
        if (marker := record.marker) is not None:
            trackers[marker.cell].apply(marker, at_ms=record.at_ms, marker_offset=record.offset)
    for tracker in trackers.values():
        tracker.advance(at_ms)
    found = (tracker.snapshot() for tracker in trackers.values())
    return [cursor for cursor in found if cursor is not None]


def _last_before(cursor: CursorSnapshot, at_ms: int) -> SavedState | None:
    earlier = (saved for saved in cursor.saved if saved.at_ms <= at_ms)
    return max(earlier, key=lambda saved: saved.next_marker, default=None)


def _resumed(cursor: CursorSnapshot, base: SavedState | None) -> CellTracker:
    policy = RedeliveryPolicy(max_deliveries=cursor.max_deliveries)
    state = None
    if base is not None:
        state = CursorSnapshot(
            cell=cursor.cell,
            read_position=base.read_position,
            next_marker=base.next_marker,
            available=tuple((Available(count, died=False), some) for count, some in base.outstanding),
            markers_partition=cursor.markers_partition,
            topic_id=cursor.topic_id,
        )
    number = cursor.markers_partition
    return CellTracker.resume(state, cell=cursor.cell, policy=policy, markers_partition=number)
