"""Clients of a tracker's driver: its control topics, its rights, and what it observes in the queues."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.errors import MarkersGone, MarkersTopicRecreated, TopicNotFound
from spark_cursor_source.interop.lease_tables import LeaseTables
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.tracker.marker_clocks import MarkerClocks, monotonic_ms
from spark_cursor_source.tracker.marker_ends import MarkerEnds
from spark_cursor_source.tracker.rescuer import Rescuer
from spark_cursor_source.tracker.resume import cursors_of
from spark_cursor_source.tracker.rights import TrackerRights
from spark_cursor_source.tracker.tracked_cells import TrackedCells
from spark_cursor_source.tracker.watch import QueueWatch

log = logging.getLogger(__name__)

_BEHIND_MS = 3_000  # how long the log of a new leader may end below the read position


class TrackerEnvironment:
    """Topics, cursors, clocks and queue observation of a tracker. Creates missing control topics.

    Raises:
        NotAuthorized: rights are missing; the error names all of them.
        ControlTopicUnfit, KafkaUnavailable, KafkaRefused
    """

    def __init__(self, options: TrackerOptions, counts: Counts | None = None) -> None:
        """``counts`` receives the counts of the rescue."""
        self.markers_topic = options.markers_topic
        self._cursors_topic = options.cursors_topic
        admin = client_config(options.kafka, "admin")
        self.topics = ClusterAdmin(admin, timeout_ms=PATIENCE_MS).meet()
        self.cursors = cursors_of(options)
        self.rights = TrackerRights(options, self.topics)
        self.cells = TrackedCells(self._cursor)
        self._news: dict[Cell, CursorSnapshot | None] = {}
        self.rights.check(self._first_cells)
        self.partitions = self.topics.ensure_control(
            markers=options.markers_topic,
            redeliveries=options.redeliveries_topic,
            cursors=options.cursors_topic,
        ).markers
        self.tables: LeaseTables | None = None
        if options.reappend is not None:
            self.tables = LeaseTables(
                self.cursors, options.reappend.queue_topic, options.markers_topic, self.partitions
            )
        self.watch = QueueWatch(options, self.topics, self.partitions)
        self.ends = MarkerEnds(self.topics, options.markers_topic, self.partitions)
        self.clocks = MarkerClocks(self.topics, options.markers_topic)
        self.watch.note(self._news)
        self.rescuer: Rescuer | None = None
        if options.rescue_before_ms is not None:
            self.topics.ensure_rescue(options.rescue_topic)
            self.rescuer = Rescuer(options, self.partitions, counts or Counts())
            self.rescuer.note(self._news, self.cursors.torn)
        self._news = {}

    def _cursor(self, cell: Cell) -> CursorSnapshot | None:
        # A tracker knows cells whose cursors another program overwrites later.
        return None if cell in self.cursors.torn else self.cursors.get(cell)

    def _first_cells(self) -> Collection[Cell]:
        """Reads all cursors. At a hundred thousand cells this takes seconds, so it happens once."""
        try:
            self.cursors.refresh()
        except TopicNotFound:
            return ()
        self._news = self.cursors.changes()
        self.cells.update(self._news)
        return [cell for cell, cursor in self._news.items() if cursor is not None]

    def look(self) -> None:
        """Reads new cursors. The cost is that of the cells that have changed.

        Raises:
            LaterCursorVersion: a newer version of the library wrote a cursor.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self.cursors.refresh()
        changed = self.cursors.changes()
        self.cells.update(changed)
        self.watch.note(changed)
        if self.rescuer is not None:
            self.rescuer.note(changed, self.cursors.torn)
        self.rights.look(cell for cell, cursor in changed.items() if cursor is not None)

    def rescue(self, partitions: Collection[int]) -> None:
        """Rescues messages for these markers partitions from now on, if ``rescueBefore`` is set."""
        if self.rescuer is not None:
            self.rescuer.own(partitions)

    def observe(self, *, partitions: Collection[int] | None = None) -> None:
        """Writes what the tracker observes in queues and breakers to the cells, see :class:`QueueWatch`."""
        now = self.clocks.now(monotonic_ms())
        accurate = {number: now[number] for number in self.clocks.fresh & now.keys()}
        self.watch.look(self.cells, accurate, partitions=partitions)

    def due(self, now_ms: Mapping[int, int]) -> frozenset[int]:
        """Returns the partitions with a timed event before their broker time in ``now_ms``."""
        tables = {} if self.tables is None else self.tables.next_events()
        return self.cells.due(now_ms) | {
            number
            for number, at_ms in tables.items()
            if number in now_ms and at_ms is not None and at_ms < now_ms[number]
        }

    def waiting(self) -> dict[int, Cell | None]:
        """Returns the markers partitions with a timed event, each with a cell of it or None."""
        waiting: dict[int, Cell | None] = {}
        if self.tables is not None:
            waiting |= dict.fromkeys(p for p, at in self.tables.next_events().items() if at is not None)
        return waiting | self.cells.waiting()

    def first_positions(self, committed: Mapping[int, int]) -> dict[int, int]:
        """Returns the position of each markers partition: the committed one, or else its first marker."""
        begins = self._beginnings(range(self.partitions))
        return {p: max(committed.get(p, 0), at) for p, at in begins.items()}

    def check_markers_topic(self) -> None:
        """Checks that the cursors do not refer to an earlier markers topic of this name.

        Raises:
            MarkersTopicRecreated
        """
        topic = self.markers_topic
        now = self.topics.describe([topic])[topic].topic_id
        for earlier in sorted(self.cells.log_ids - {now}):
            raise MarkersTopicRecreated(topic, earlier, now)

    def tell_recreated(self, was: str) -> None:
        """Logs that the cursors topic is another one than before, and that all cursors are written to it."""
        log.warning(
            "The cursors topic was recreated, and all cursors are written to it. "
            "event=cursors_topic_recreated topic=%s was=%s now=%s",
            self._cursors_topic,
            was,
            self.cursors.topic_id,
        )

    def check_log(self, positions: Mapping[int, int], ends: Mapping[int, int], *, resumed: bool) -> None:
        """Checks that the markers topic has every position. ``resumed`` is False before the cursors are read.

        Raises:
            MarkersGone: markers were removed before they were read.
        """
        reached = dict(positions)
        if not resumed:
            # Cursors may belong to an earlier markers topic. Their positions would make new markers look read
            # already.
            for partition in ends:
                reached[partition] = max(reached.get(partition, 0), self.cells.next_marker(partition))
        changed = [p for p, end in ends.items() if end != reached.get(p, 0)]
        if not changed:
            return
        begins = self._beginnings(changed)
        deadline = Deadline.after_ms(_BEHIND_MS)
        for partition in changed:
            position, end = reached.get(partition, 0), ends[partition]
            while position > end and not deadline.over:
                deadline.pause(0.5)
                found = self.topics.end_offsets([(self.markers_topic, partition)], committed=True)
                end = found[self.markers_topic, partition]
            if not begins[partition] <= position <= end:
                raise MarkersGone(self.markers_topic, partition, position, (begins[partition], end))

    def close(self) -> None:
        """Closes the clients."""
        if self.rescuer is not None:
            self.rescuer.close()
        self.watch.close()
        self.cursors.close()

    def _beginnings(self, partitions: range | list[int]) -> dict[int, int]:
        found = self.topics.beginning_offsets((self.markers_topic, p) for p in partitions)
        return {partition: at for (_, partition), at in found.items()}
