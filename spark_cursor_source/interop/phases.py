"""Phases of a run with V1 markers: start, replay of a logged batch, new batches."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_cursor_source.consumer.idle_wait import IdleWait
from spark_cursor_source.consumer.membership import Membership
from spark_cursor_source.consumer.progress import GroupProgress
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.consumer.trigger import InputEnds, MinOffsetsDelay
from spark_cursor_source.core.admission import admit_queue
from spark_cursor_source.core.batch import SourceOffset, TopicPartition, paused_queue_ends
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.errors import MarkerFormatChanged
from spark_cursor_source.interop.starts import Range, started_in
from spark_cursor_source.kafka.admin import ClusterAdmin, epochs_of
from spark_cursor_source.kafka.append_watch import AppendWatch
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.options.source import Isolation, SourceOptions

log = logging.getLogger(__name__)
Ranges = Mapping[TopicPartition, Range]  #: the offsets of a batch, by queue partition


class PositionsV1:
    """Next offset of each queue partition, and the messages above it that have a Start already."""

    def __init__(
        self,
        options: SourceOptions,
        topics: ClusterAdmin,
        queue: SourceTopics,
        membership: Membership,
        group: GroupProgress,
        markers_partitions: int,
    ) -> None:
        self._options, self._topics, self._queue = options, topics, queue
        self._membership, self._group = membership, group
        self._markers = [(options.markers_topic, number) for number in range(markers_partitions)]
        self._next: dict[TopicPartition, int] = {}
        self._started: dict[int, OffsetSet] = {}  # by partition; there is one topic

    @property
    def next(self) -> Mapping[TopicPartition, int]:
        """Next offset to plan, for each assigned partition."""
        return self._next

    def started(self, tp: TopicPartition) -> OffsetSet:
        """Returns messages at or above the next offset that already have a Start."""
        return self._started.get(tp[1], EMPTY)

    def sync(self, start: SourceOffset) -> bool:
        """Applies the group assignment. New partitions continue at committed offsets.

        Returns True if the query holds the subscription.
        """
        held = self._membership.assigned_partitions(self._queue.partitions)
        new = held - self._next.keys()
        if new:
            committed = self._group.known(new)
            known = {**start.queue, **committed}
            known |= self._queue.beginnings([tp for tp in new if tp not in known])
            self._next |= {tp: known[tp] for tp in new}
            self._pass_over_started(committed, start)
        if not held:
            self._next = {}
        return bool(held)

    def advance(self, ends: Mapping[TopicPartition, int]) -> None:
        """Moves the next offsets to the ends of a batch whose Starts are confirmed, and commits them.

        As in kafka-mq-go, a Start removes a message from the queue. Committed positions prevent a second
        Start even if the checkpoint is lost.
        """
        self._next |= ends
        self._group.keep(ends)

    def look_for_starts(self, batch: Ranges, start: SourceOffset, end: SourceOffset) -> None:
        """Finds the messages of a batch of an earlier run that have a Start."""
        self._started = self._started_in(batch, since=end.markers)
        self._pass_over_started({tp: first for tp, (first, _) in batch.items()}, start)

    def markers_ends(self) -> dict[int, int]:
        """Returns the present ends of the markers topic, by partition."""
        # Uncommitted ends: an open transaction of another producer would hide this query's Starts.
        ends = self._topics.end_offsets(self._markers, committed=False)
        return {number: at for (_, number), at in ends.items()}

    def _pass_over_started(self, positions: Mapping[TopicPartition, int], start: SourceOffset) -> None:
        """Finds messages of earlier logged batches that already have a Start, above the next offset.

        Such a batch was logged and not planned. Or it was planned, but the query had left the group and could
        not commit.
        """
        doubtful = {tp: (at, start.queue[tp]) for tp, at in positions.items() if at < start.queue.get(tp, 0)}
        if doubtful:
            begins = self._topics.beginning_offsets(self._markers)
            found = self._started_in(doubtful, since={p: at for (_, p), at in begins.items()})
            self._started |= {p: self._started.get(p, EMPTY) | offsets for p, offsets in found.items()}

    def _started_in(self, batch: Ranges, *, since: Mapping[int, int]) -> dict[int, OffsetSet]:
        """Returns the messages of these ranges that have a Start, by partition.

        ``since`` are the first offsets to read in the markers topic.
        """
        ranges = {p: (since.get(p, 0), at) for p, at in self.markers_ends().items()}
        reader = RangeReader(client_config(self._options.kafka, "consumer"), committed=False)
        try:
            by_partition = {partition: within for (_, partition), within in batch.items()}
            found = started_in(reader, self._options.markers_topic, ranges, by_partition)
        finally:
            reader.close()
        left = sum(map(len, found.values()))
        log.info(
            "Messages of the replayed batch have leases already and are left to the tracker. "
            "event=already_started subscription=%s messages=%d",
            self._options.subscription,
            left,
        )
        return found


class RunningPhaseV1:
    """Admits waiting messages to the next batch. Implements the last phase of a run."""

    def __init__(
        self,
        options: SourceOptions,
        topics: ClusterAdmin,
        queue: SourceTopics,
        positions: PositionsV1,
        appends: AppendWatch,
    ) -> None:
        self._topics, self._queue, self._positions = topics, queue, positions
        self._read_committed = options.isolation is Isolation.READ_COMMITTED
        self.ends = InputEnds(self._read_ends)  #: the ends up to which messages are admitted
        self.delay = MinOffsetsDelay(options, self.ends)
        self._idle = IdleWait(appends)

    def begin(self, start: SourceOffset) -> RunningPhaseV1:
        """Returns this phase: the run has begun."""
        return self

    def run(self) -> RunningPhaseV1:
        """Returns this phase: it is the last one."""
        return self

    def next_end(self, start: SourceOffset, *, max_offsets: int | None) -> SourceOffset:
        """Returns the end offset of the next batch, or ``start`` itself if no message can be delivered."""
        self._queue.discover()
        if not self._positions.sync(start):
            return start
        if not self.ends.is_bounded and self._idle.goes_on(self._positions.next):
            return start
        known = self._queue.topic_ids
        found = self._queue.unless_deleted(self.ends.read)
        if found is None:
            return start
        ends = found.queue
        positions = self._positions.next
        self._queue.watch_ends(positions, ends, found.epochs)
        origin = {tp: positions[tp] for tp in ends}
        queue = admit_queue(origin, paused_queue_ends(ends, origin, self._queue.paused), budget=max_offsets)
        waiting = sum(queue[tp] - origin[tp] for tp in queue)
        if not waiting or self.delay.waits_for_more(waiting):
            self._rest(ends)
            return start
        self._idle.end()
        self._queue.refresh()
        if self._queue.topic_ids != known:
            return start  # a topic was deleted: plan without it at the next trigger
        return SourceOffset(
            queue={**start.queue, **queue},
            redeliveries={},
            topic_ids={**start.topic_ids, **self._queue.topic_ids},
            markers=self._positions.markers_ends(),
            origins=start.begun_elsewhere(origin),
            epochs={**start.epochs, **found.epochs},
        )

    def _rest(self, ends: Mapping[TopicPartition, int]) -> None:
        """Lets the query rest if no message waits below these ends."""
        read_to = self._positions.next
        if self.ends.is_bounded or any(read_to[tp] < end for tp, end in ends.items()):
            self._idle.end()
        else:
            self._idle.rest(ends)

    def content(self, start: SourceOffset, end: SourceOffset) -> Ranges:
        """Returns the offsets of a new batch: from the next offset of each assigned partition."""
        if not self._positions.sync(start):
            return {}
        positions = self._positions.next
        return {
            tp: (first, past)
            for tp, past in sorted(end.queue.items())
            if (first := positions.get(tp, past)) < past
        }

    def _read_ends(self) -> SourceOffset:
        ends = self._topics.log_ends(list(self._queue.partitions), committed=self._read_committed)
        return SourceOffset(
            queue={tp: end.offset for tp, end in ends.items()}, redeliveries={}, epochs=epochs_of(ends)
        )


class ReplayPhaseV1:
    """Plans a batch again that an earlier run has logged. Implements the second phase of a run.

    Messages that the earlier run has started are excluded: the tracker owns them and redelivers them.
    """

    def __init__(self, positions: PositionsV1, running: RunningPhaseV1) -> None:
        self._positions, self._running = positions, running

    def begin(self, start: SourceOffset) -> ReplayPhaseV1:
        """Returns this phase: the run has begun."""
        return self

    def run(self) -> RunningPhaseV1:
        """Returns the next phase: Spark asks for new batches, so that it has no batch to replay."""
        return self._running

    def content(self, start: SourceOffset, end: SourceOffset) -> Ranges:
        """Returns the offsets of the logged batch."""
        batch = {}
        if self._positions.sync(start):
            batch = {
                tp: (first, past)
                for tp, past in sorted(end.queue.items())
                if (first := end.origin(tp, start)) < past
            }
        self._positions.look_for_starts(batch, start, end)
        return batch


class StartPhaseV1:
    """Finds the beginning of a query that has no checkpoint, and begins the run where Spark says."""

    def __init__(
        self,
        queue: SourceTopics,
        membership: Membership,
        group: GroupProgress,
        positions: PositionsV1,
        replaying: ReplayPhaseV1,
    ) -> None:
        self._queue, self._membership, self._group = queue, membership, group
        self._positions, self._replaying = positions, replaying
        self._initial: SourceOffset | None = None

    def initial_offset(self) -> SourceOffset:
        """Returns the offset where a query without a checkpoint begins, the same in this run and the next."""
        if self._initial is None:
            self._initial = self._find_initial()
        return self._initial

    def begin(self, start: SourceOffset) -> ReplayPhaseV1:
        """Begins the run at ``start``, after its partitions are assigned.

        Raises:
            MarkerFormatChanged: the offset was written with V2 markers.
            QueueTopicRecreated, QueueTopicEndsEarlier, SubscriptionInUse
        """
        if not start.markers:
            raise MarkerFormatChanged("v2", "v1")
        self._queue.resume(start)
        self._membership.wait_for_assignment(self._queue.partitions)
        return self._replaying

    def _find_initial(self) -> SourceOffset:
        self._queue.refresh()
        held = self._membership.wait_for_assignment(self._queue.partitions)
        positions = self._group.beginning(self._queue, {})
        if held:
            self._group.keep(positions)
        return SourceOffset(
            queue=positions,
            redeliveries={},
            topic_ids=dict(self._queue.topic_ids),
            markers=self._positions.markers_ends(),
        )
