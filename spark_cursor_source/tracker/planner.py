"""The driver side of the tracker: plans how far each batch reads, and at which broker time."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_cursor_source.core.broker_clock import BrokerClock
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.tracker_offset import TrackerOffset, limit_markers
from spark_cursor_source.errors import MarkersGone, MarkersTopicRecreated, TrackerOwnedByAnother
from spark_cursor_source.interop.lease_tables import LeaseTables
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline, Pace
from spark_cursor_source.kafka.transaction import end_transactions
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.tracker_progress import (
    TrackerProgress,
    read_progress,
    read_progress_of_others,
    tracker_group,
)
from spark_cursor_source.tracker.marker_ends import MarkerEnds
from spark_cursor_source.tracker.rights import TrackerRights
from spark_cursor_source.tracker.watch import QueueWatch
from spark_cursor_source.wire import tracker_offset_json

log = logging.getLogger(__name__)
COMMIT_EVERY_MS = 24 * 3_600_000  #: longest interval in ms between two offset commits of an idle tracker
_BEHIND_MS = 3_000  # how long the log of a new leader may end below the read position


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersSlice:
    """Input of one task: markers of one partition, and the broker time to advance to after them, if any."""

    partition: int
    start: int
    stop: int
    now_ms: int | None  #: leases with a deadline before this expire; None if more markers must be read first
    tracker_id: str
    identity: str = ""  #: identity of the batch, to recognize a repetition
    read_between: tuple[int, int] | None = None  #: see :class:`TrackerOffset`
    rewrite: bool = False  #: True if all cursors are written again, because their topic was deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class AllCursors:
    """The task of a new checkpoint, or of a state that is rebuilt: reads all cursors."""

    reset: int = 0  #: number of markers partitions that clear their state first


class TrackerPlanner:
    """Plans the tracker's batches: how far to read, and at which broker time."""

    def __init__(self, options: TrackerOptions, policies: str | None = None) -> None:
        """``policies`` is the digest of all policies if ``options`` contain only those of the source."""
        self._options = options
        self._policies = options.policies_digest if policies is None else policies
        admin = client_config(options.kafka, "admin")
        self._topics = ClusterAdmin(admin, timeout_ms=PATIENCE_MS).meet()
        self._cursors = CursorTable(
            client_config(options.kafka, "consumer"),
            options.cursors_topic,
            timeout_ms=PATIENCE_MS,
            markers_topic=options.markers_topic,
        )
        self._rights = TrackerRights(options, self._topics)
        self._rights.check(self._cursors)
        self._partitions = self._topics.ensure_control(
            markers=options.markers_topic,
            redeliveries=options.redeliveries_topic,
            cursors=options.cursors_topic,
        ).markers
        self._tables: LeaseTables | None = None
        if options.reappend is not None:
            self._tables = LeaseTables(self._cursors, options.reappend.queue_topic, options.markers_topic)
        self._watch = QueueWatch(options, self._topics, self._partitions)
        self._ends = MarkerEnds(self._topics, options.markers_topic, self._partitions)
        self._clocks: dict[int, BrokerClock] = {}
        self._read_all: dict[int, int] = {}  # by partition, broker time in ms when all its markers were read
        self._seen: dict[int, int] = {}  # end of each partition when its last append time was read
        self._fresh: set[int] = set()  # partitions with an append since the start; their clocks are accurate
        self._commits = Pace(COMMIT_EVERY_MS)
        self._commits.is_time()  # starts the interval: the first commit is one interval after the start
        self._checked = False
        self._done: TrackerProgress | None = None  # the progress that was committed before the start
        self._asked_time = False

    def initial_offset(self) -> TrackerOffset:
        """Returns the offset where a tracker without a checkpoint begins.

        The offset follows the markers that the cursors include. It may be too low while another tracker still
        commits. That is safe, because each cursor records which markers it includes.
        """
        positions = self._progress(stable=False).next_markers
        beginnings = self._by_partition(
            self._topics.beginning_offsets((self._options.markers_topic, p) for p in range(self._partitions))
        )
        return TrackerOffset(
            tracker_id=uuid.uuid4().hex,
            next={p: max(positions.get(p, 0), at) for p, at in beginnings.items()},
            resumed=False,
            cursors_id=self._cursors.topic_id,
        )

    def latest_offset(self, start: TrackerOffset) -> TrackerOffset:
        """Returns the end of the next batch, or ``start`` if no marker waits and no event is due.

        Raises:
            TrackerOwnedByAnother: another tracker has committed progress, and the option to take over is not
                set.
            MarkersGone: markers were removed before they were read.
            MarkersTopicRecreated: the cursors refer to an earlier markers topic of this name.
        """
        self._check_owner(start, known=start)
        # The time is taken before the ends are read. So every marker appended before that time is below the
        # ends, or hidden by an open transaction.
        instant = _monotonic_ms()
        now = self._now(start, instant)
        self._cursors.refresh()
        cursors = self._cursors.all()
        self._ask_time(cursors.values())
        self._rights.look(cursors)
        self._watch.look(cursors, {partition: now[partition] for partition in self._fresh & now.keys()})
        found = self._ends.look()
        ends = found.readable
        self._read_clocks(ends)
        self._check_log(start, ends)
        reached = limit_markers(start.next, ends, self._options.max_markers_per_trigger)
        moved = frozenset(p for p in ends if reached[p] > start.next.get(p, 0))
        between = self._read_between(moved)
        caught_up = {p for p in found.whole & now.keys() if reached[p] >= ends[p]}
        self._read_all |= {p: now[p] for p in caught_up}
        due = self._due(cursors.values(), now)
        if self._commits.is_time():
            # This batch only commits offsets: brokers expire the offsets of a group that is idle for a week.
            due |= frozenset(now)
        settled = (moved | due) & caught_up
        end = TrackerOffset(
            tracker_id=start.tracker_id,
            next=reached,
            now_ms=now,
            settled=settled,
            read_between=between,
            cursors_id=self._cursors.topic_id,
        )
        if end.rewrites(start):
            log.warning(
                "The cursors topic was recreated, and all cursors are written to it. "
                "event=cursors_topic_recreated topic=%s was=%s now=%s",
                self._options.cursors_topic,
                start.cursors_id,
                end.cursors_id,
            )
            return end
        if not start.resumed or moved or settled:
            return end
        return start

    def tasks(self, start: TrackerOffset, end: TrackerOffset) -> list[MarkersSlice | AllCursors]:
        """Returns the inputs of a batch's tasks.

        Raises:
            TrackerOwnedByAnother: see :meth:`latest_offset`, which Spark does not call before a replayed
                batch.
        """
        self._check_owner(start, known=end)
        if self._was_decided_otherwise(end):
            log.warning(
                "The repeated batch was committed under other policies, so the state is rebuilt from "
                "the cursors. event=tracker_rebuilt topic=%s",
                self._options.markers_topic,
            )
            return [AllCursors(reset=self._partitions)]
        identity, rewrite = self._identity(end), end.rewrites(start)
        slices: list[MarkersSlice | AllCursors] = [
            MarkersSlice(
                partition=p,
                start=start.next.get(p, 0),
                stop=stop,
                now_ms=end.now_ms.get(p) if p in end.settled else None,
                tracker_id=end.tracker_id,
                identity=identity,
                read_between=end.read_between.get(p),
                rewrite=rewrite,
            )
            for p, stop in end.next.items()
            if stop > start.next.get(p, 0) or p in end.settled or rewrite
        ]
        return slices if start.resumed else [AllCursors(), *slices]

    def close(self) -> None:
        self._watch.close()
        self._cursors.close()

    def _check_owner(self, start: TrackerOffset, *, known: TrackerOffset) -> None:
        """Checks once that no other tracker has committed progress beyond this checkpoint.

        ``initial_offset`` does not check. If the tracker died in its first batch, Spark calls
        ``initial_offset`` again, which returns another tracker id. The progress of that first batch would
        look like another tracker's.
        """
        if self._checked:
            return
        others = read_progress_of_others(self._topics, self._options.markers_topic)
        self._check_progress(others, start, known)
        # Fences all other trackers. Also ends the transaction of a tracker that died in a batch, which would
        # otherwise delay reading the stable positions.
        deadline = Deadline.after_ms(PATIENCE_MS)
        end_transactions(
            client_config(self._options.kafka, "producer"),
            tracker_group(self._options.markers_topic),
            deadline,
        )
        self._done = self._progress(stable=True)
        self._check_progress(self._done, start, known)
        self._check_markers_topic()
        self._checked = True

    def _identity(self, end: TrackerOffset) -> str:
        return f"{tracker_offset_json.digest(end)}.{self._policies}"

    def _was_decided_otherwise(self, end: TrackerOffset) -> bool:
        """True if this batch was executed before this start, under other policies."""
        if self._done is None or self._done.query_id != end.tracker_id:
            return False
        read, _, policies = self._done.identity.partition(".")
        return policies not in ("", self._policies) and read == tracker_offset_json.digest(end)

    def _check_progress(self, done: TrackerProgress, start: TrackerOffset, known: TrackerOffset) -> None:
        ours = done.query_id in (None, known.tracker_id)
        if start.resumed:
            # Resuming from a state older than the committed progress would restore old leases.
            batches = {tracker_offset_json.digest(start), tracker_offset_json.digest(known)}
            # Digests are compared too, because a batch caused only by the passing of time moves no position.
            other = bool(done.identity) and done.identity.partition(".")[0] not in batches
            beyond = any(at > known.next.get(p, 0) for p, at in done.next_markers.items())
            if not ours or beyond or other:
                raise TrackerOwnedByAnother(self._options.markers_topic, done.query_id or "", stale=True)
        elif not ours and not self._options.take_over:
            raise TrackerOwnedByAnother(self._options.markers_topic, done.query_id or "")

    def _check_markers_topic(self) -> None:
        topic = self._options.markers_topic
        now = self._topics.describe([topic])[topic].topic_id
        self._cursors.refresh()
        for cursor in self._cursors.all().values():
            if cursor.log is not None and cursor.log.topic_id not in ("", now):
                raise MarkersTopicRecreated(topic, cursor.log.topic_id, now)

    def _check_log(self, start: TrackerOffset, ends: Mapping[int, int]) -> None:
        positions = dict(start.next)
        if not start.resumed:
            # Cursors may belong to an earlier markers topic. Their positions would make new markers look read
            # already.
            self._cursors.refresh()
            for cursor in self._cursors.all().values():
                partition = cursor.markers_partition
                positions[partition] = max(positions.get(partition, 0), cursor.next_marker)
        changed = [p for p, end in ends.items() if end != positions.get(p, 0)]
        if not changed:
            return
        topic = self._options.markers_topic
        begins = self._by_partition(self._topics.beginning_offsets([(topic, p) for p in changed]))
        deadline = Deadline.after_ms(_BEHIND_MS)
        for partition in changed:
            position, end = positions.get(partition, 0), ends[partition]
            while position > end and not deadline.over:
                deadline.pause(0.5)
                found = self._topics.end_offsets([(topic, partition)], committed=True)
                end = found[topic, partition]
            if not begins[partition] <= position <= end:
                raise MarkersGone(topic, partition, position, (begins[partition], end))

    def _ask_time(self, cursors: Iterable[CursorSnapshot]) -> None:
        """Once per run, appends markers without effect to learn the broker time if events wait for it.

        Without an append, a clock that starts again continues from the last time of the previous run instead
        of the present time.
        """
        if self._asked_time:
            return
        self._asked_time = True
        waiting: dict[int, Cell | None] = {}
        if self._tables is not None:
            waiting |= dict.fromkeys(p for p, at in self._tables.next_events().items() if at is not None)
        waiting |= {one.markers_partition: one.cell for one in cursors if one.next_event_ms is not None}
        if waiting and self._watch.ask_time(waiting):
            self._fresh |= waiting.keys()

    def _now(self, start: TrackerOffset, instant: int) -> dict[int, int]:
        now: dict[int, int] = {}
        for partition in range(self._partitions):
            clock = self._clocks.setdefault(partition, BrokerClock(start.now_ms.get(partition)))
            known = clock.now_ms(monotonic_ms=instant)
            if known is not None:
                now[partition] = known
        return now

    def _read_clocks(self, ends: Mapping[int, int]) -> None:
        changed = [p for p, end in ends.items() if self._seen.get(p) != end]
        if not changed:
            return
        last = self._topics.last_appends(self._options.markers_topic, changed)
        read_at = _monotonic_ms()
        for partition, (_, at_ms, epoch) in last.items():
            self._clocks[partition].observe(broker_ms=at_ms, monotonic_ms=read_at, epoch=epoch)
        self._fresh |= {p for p in changed if p in self._seen}
        self._seen |= {p: ends[p] for p in changed}

    def _read_between(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        read_at = _monotonic_ms()
        times = {p: self._clocks[p].now_ms(monotonic_ms=read_at) for p in partitions}
        return {p: (self._read_all.get(p, 0), at) for p, at in times.items() if at is not None}

    def _due(self, cursors: Iterable[CursorSnapshot], now: Mapping[int, int]) -> frozenset[int]:
        """Returns the partitions with a due event. Without one, no batch is needed for time."""
        events = [(cursor.markers_partition, cursor.next_event_ms) for cursor in cursors]
        if self._tables is not None:
            events += self._tables.next_events().items()
        return frozenset(
            partition
            for partition, event_ms in events
            if partition in now and event_ms is not None and event_ms < now[partition]
        )

    def _progress(self, *, stable: bool) -> TrackerProgress:
        return read_progress(self._topics, self._options.markers_topic, stable=stable)

    @staticmethod
    def _by_partition(offsets: Mapping[tuple[str, int], int]) -> dict[int, int]:
        return {partition: at for (_, partition), at in offsets.items()}


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
