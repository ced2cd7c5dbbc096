"""Observations of the tracker's driver outside the markers topic, written to the cells as markers.

The state of the tracker has one input, the markers topic. So a repeated batch and a rebuilt tracker make the
same decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping

from spark_cursor_source.core.breaker_sync import trips
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.event_times import EventTimes
from spark_cursor_source.core.marker import EndOffsetObserved, Marker
from spark_cursor_source.core.offsets import OFFSET_LIMIT
from spark_cursor_source.core.ttl import look_every_ms
from spark_cursor_source.errors import MarkersNotDurable, NotAuthorized
from spark_cursor_source.interop.markers_wire import kmq_end
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.rights import WRITE
from spark_cursor_source.options.reappend import MarkerFormat, ReappendOptions, subscription_of
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker.marker_clocks import monotonic_ms
from spark_cursor_source.tracker.queue_ends import QueueEnds
from spark_cursor_source.tracker.tracked_cells import TrackedCells
from spark_cursor_source.wire import marker as marker_wire

log = logging.getLogger(__name__)

AGAIN_MS = 10_000  #: pause after ends that could not be read, and after markers that were not confirmed
_CONFIRM_S = 5.0  # all other work of the tracker waits for a look


class QueueWatch:
    """Observes the ends of queue topics, for the TTL, and the dead letters of whole subscriptions."""

    def __init__(self, options: TrackerOptions, topics: ClusterAdmin, markers_partitions: int) -> None:
        self._options = options
        self._topics = topics
        config = client_config(options.kafka, "producer")
        self._sender = MarkerSender(config, options.markers_topic, markers_partitions)
        self._next_looks = EventTimes[Cell]()  # in ms of the monotonic clock, for cells with a TTL
        self._looked: set[Cell] = set()
        self._ends = QueueEnds(topics)
        self._next_write = Deadline.after_ms(0)
        self._is_unwritten = False  # the last markers were not confirmed

    def note(self, changed: Mapping[Cell, CursorSnapshot | None]) -> None:
        """Takes in changed cursors. The log ends of new cells with a TTL are observed at the next look.

        Cells without an owner are left out. They use version 1, and their topic also contains messages of
        other queues. A sought cell has no owner yet but does not use version 1, so it is observed.
        """
        for cell, cursor in changed.items():
            has_ttl = self._options.policy_for(cell.subscription).message_ttl_ms is not None
            if cursor is None or not has_ttl or (cursor.owner is None and not cursor.sought):
                self._next_looks.set(cell, None)
            elif cell not in self._next_looks:
                self._next_looks.set(cell, 0)

    def look(
        self,
        cells: TrackedCells,
        now_ms: Mapping[int, int],
        *,
        partitions: Collection[int] | None = None,
    ) -> None:
        """Writes the required markers. Returns after the broker has confirmed them, or after some seconds.

        Markers that are not confirmed, and ends that cannot be read, are tried again at a later look.
        ``now_ms`` is the broker time by markers partition, for partitions whose clocks are accurate. With
        ``partitions``, other trackers observe the queues of the cells in other markers partitions.
        """
        if not self._next_write.over:
            return
        ends = list(self._log_ends(cells, partitions))
        markers: list[Marker] = [*ends, *self._trips(cells, now_ms)]
        if not markers:
            return
        try:
            self._sender.write(markers, timeout_s=_CONFIRM_S)
        except MarkersNotDurable as why:
            self._write_later(ends, why)
        else:
            self._is_unwritten = False

    def ask_time(self, waiting: Mapping[int, Cell | None]) -> bool:
        """Appends a marker without effect to each partition in ``waiting``, to learn the broker time.

        ``waiting`` maps each markers partition to one of its cells, or to None if the partition only has a
        lease table. If the markers cannot be written, logs a warning and returns False. Broker time then does
        not advance until another client appends a marker.
        """
        topic = self._options.markers_topic
        try:
            self._topics.check_rights({topic: (WRITE,)})
            unconfirmed = self._sender.begin()
            for partition, cell in waiting.items():
                key, value = without_effect(cell, self._options.reappend)
                self._sender.produce(unconfirmed, key, value, partition)
            self._sender.flush()
        except (NotAuthorized, MarkersNotDurable) as why:
            log.warning(
                "The broker time of quiet partitions is unknown, so redeliveries there may be late "
                "until the next marker. Grant the tracker Write on the markers topic. "
                "event=markers_time_unknown topic=%s partitions=%d why=%s",
                topic,
                len(waiting),
                why,
            )
            return False
        return True

    def close(self) -> None:
        """Closes the producer."""
        self._sender.close()

    def _log_ends(
        self, cells: TrackedCells, partitions: Collection[int] | None
    ) -> Iterator[EndOffsetObserved]:
        """Yields the ends of logs that have grown, for subscriptions with a TTL."""
        now = monotonic_ms()
        due: dict[Cell, int | None] = {}
        for cell in self._next_looks.before(now + 1):
            ttl_ms = self._options.policy_for(cell.subscription).message_ttl_ms
            self._next_looks.set(cell, None if ttl_ms is None else now + look_every_ms(ttl_ms))
            if partitions is None or cells.partition(cell) in partitions:
                due[cell] = ttl_ms
        if not due:
            return
        # Committed ends: a hanging transaction can make messages look younger, but never older.
        ends, unknown = self._ends.look(cell.topic_partition for cell in due)
        for cell, ttl_ms in due.items():
            if cell.topic_partition in unknown:
                self._next_looks.set(cell, now + AGAIN_MS)
                continue
            end, cursor, first = ends.get(cell.topic_partition), cells.cursor(cell), self._first(cell)
            if end is not None and cursor is not None and _is_news(cursor, end, ttl_ms, first=first):
                yield EndOffsetObserved(cell=cell, position=end)

    def _write_later(self, ends: Collection[EndOffsetObserved], why: MarkersNotDurable) -> None:
        """Makes the next look observe the same ends again. Open breakers are in the cursors anyway."""
        for one in ends:
            self._next_looks.set(one.cell, 0)
            self._looked.discard(one.cell)
        self._next_write = Deadline.after_ms(AGAIN_MS)
        if not self._is_unwritten:
            self._is_unwritten = True
            log.warning(
                "The brokers do not confirm the markers of a tracker, so messages expire late and breakers "
                "open late. They are written again. event=queue_ends_unwritten topic=%s why=%s",
                self._options.markers_topic,
                why,
            )

    def _first(self, cell: Cell) -> bool:
        """Tells whether the end of a cell's log was never observed before, and is now."""
        first = cell not in self._looked
        self._looked.add(cell)
        return first

    def _trips(self, cells: TrackedCells, now_ms: Mapping[int, int]) -> Iterator[Marker]:
        for name in cells.with_breaker():
            yield from trips([*cells.cursors(name)], self._options.policy_for(name).breaker, now_ms)


def without_effect(cell: Cell | None, reappend: ReappendOptions | None) -> tuple[bytes, bytes]:
    """Returns key and value of a marker without effect, in the format that readers of the topic know.

    The marker of a cell states that the log ends at 0 or later. The marker of a lease table ends a message at
    an offset that no log can contain.
    """
    if cell is not None:
        return cell.key, marker_wire.encode(EndOffsetObserved(cell=cell, position=0))
    assert reappend is not None
    if reappend.marker_format is MarkerFormat.KMQ:
        return kmq_end(0, OFFSET_LIMIT - 1)
    queue_id = subscription_of(reappend.marker_format).encode()
    end = marker_wire.MarkerV1(
        queue_id=queue_id, type=marker_wire.MarkerType.END, partition=0, offset=OFFSET_LIMIT - 1
    )
    return queue_id, marker_wire.encode_v1(end)


def _is_news(cursor: CursorSnapshot, end: int, ttl_ms: int | None, *, first: bool) -> bool:
    """True if the cell lacks the age of an unacked message, this TTL, or the current broker time.

    After downtime, the tracker learns the broker's time from the next append. If no other client appends,
    this marker is that append.
    """
    ages = cursor.ages
    if ages.ends and (first or ages.ttl_ms != ttl_ms):
        return True
    known = max([ages.expired_below, *(seen.position for seen in ages.ends)])
    return end > known and end > cursor.mark_delete + 1
