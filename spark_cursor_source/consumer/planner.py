"""The planner: the driver side of a streaming query.

A planner decides which messages each batch delivers, writes their leases, and acks completed batches. One
planner is one run of the query. Its memory is a cache: a second planner built from the same checkpoint and
the same topics plans the same batches.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark_cursor_source.consumer.assignment import PartitionAssignment
from spark_cursor_source.consumer.batch_acks import SourceAcks
from spark_cursor_source.consumer.batch_delay import MinOffsetsDelay
from spark_cursor_source.consumer.lease_extender import LeaseExtender
from spark_cursor_source.consumer.outstanding_limit import OutstandingLimit
from spark_cursor_source.consumer.pending import PendingRedeliveries
from spark_cursor_source.consumer.progress import GroupProgress, group_config
from spark_cursor_source.consumer.replays import ReplayPlanner
from spark_cursor_source.consumer.session import TrackerAddress, TrackerSession
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.consumer.unread import UnreadMessages
from spark_cursor_source.core.admission import Turns, admit
from spark_cursor_source.core.batch import (
    BatchPlan,
    Delivery,
    HandBack,
    SourceOffset,
    TopicPartition,
    plan,
)
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import KeepAlive, Marker, Release, Start
from spark_cursor_source.core.read_report import ReportTo
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.core.task_split import split, split_by_key
from spark_cursor_source.errors import MarkerFormatChanged, TopicGone, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.rights import DESCRIBE, READ, of_consumer
from spark_cursor_source.options.source import Isolation, SourceOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.markers import MarkerSender

log = logging.getLogger(__name__)
HANDED_BACK = "the run that held it died"
STOOD_STILL = "it went to another query before its rows went out"


class Planner:
    """One run of a query, from Spark's first call to its last."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topics = ClusterAdmin(client_config(options.kafka, "admin"), timeout_ms=PATIENCE_MS).meet()
        # Checked before the first delivery. A right found missing later would stop the query halfway.
        self._topics.check_rights(
            of_consumer(
                markers=options.markers_topic,
                redeliveries=options.redeliveries_topic,
                cursors=options.cursors_topic,
                streams=options.streams_topic,
                queues=options.topics.names,
            ),
            group=options.group,
        )
        control = self._topics.ensure_control(
            markers=options.markers_topic,
            redeliveries=options.redeliveries_topic,
            cursors=options.cursors_topic,
        )
        self.markers_partitions = control.markers
        self._sender = MarkerSender(
            client_config(options.kafka, "producer"), options.markers_topic, control.markers
        )
        self._cursors = CursorTable(
            client_config(options.kafka, "consumer"), options.cursors_topic, timeout_ms=PATIENCE_MS
        )
        self._queue = SourceTopics(options, self._topics)
        run_id = uuid.uuid4().hex
        self._membership = group_config(options, self._topics, run_id)
        self._group = GroupProgress(self._topics, self._membership, options.group)
        tracker = TrackerAddress(
            markers_topic=options.markers_topic,
            cursors_topic=options.cursors_topic,
            timeout_ms=options.tracker_timeout_ms,
        )
        self._run = TrackerSession(run_id, tracker, self._cursors, self._send)
        self._tracker = TrackerWatch(self._topics, tracker, fail_ms=options.fail_without_tracker_ms)
        self._assignment = PartitionAssignment(
            options, self._queue, self._membership, self._group, self._run, self._cursors
        )
        self._pending = PendingRedeliveries(options, self._topics, self._assignment, self._run)
        self._replays = ReplayPlanner(options, self._assignment, self._run)
        self._unread = UnreadMessages(options, self._topics, run_id, partitions=control.redeliveries)
        self._source_acks = SourceAcks(
            options, self._assignment, self._run, self._pending, self._replays, self._unread
        )
        self._outstanding_limit = OutstandingLimit(options, self._cursors)
        self._lease_extender = LeaseExtender(self._extend, lease_ms=options.lease_ms)
        self._batch_delay = MinOffsetsDelay(options)
        self._began = False
        self._asked_for_latest = False
        self._turns = Turns()
        self.now_ms = 0  #: broker time in ms of the last plan, from its Start markers
        self._in_progress: BatchPlan | None = None
        self._beginning: SourceOffset | None = None  # the initial offset of a query that has no checkpoint
        self._origin: dict[TopicPartition, int] = {}  # the first offset of the next batch, by queue partition
        self._last_ends = SourceOffset(queue={}, redeliveries={})
        self._bound: SourceOffset | None = None

    # -- calls from Spark ----------------------------------------------------------------------------------

    def initial_offset(self) -> SourceOffset:
        """Returns the offset where a query without a checkpoint begins.

        The result is the same after a crash before the first commit: the positions of a new subscription are
        committed as its consumer group's offsets before anything is planned. The result is also the same
        within one run. Spark calls this at every trigger and again to plan the first batch. A different
        second answer would start the first batch after the redeliveries that it must contain.
        """
        if self._beginning is None:
            self._beginning = self._find_beginning()
        return self._beginning

    def latest_offset(self, start: SourceOffset, *, max_offsets: int | None) -> SourceOffset:
        """Returns the end offset of the next batch, or ``start`` if no message can be delivered."""
        self._begin(start)
        start = self._here(start)
        self._asked_for_latest = True
        self._finish_batch(start)
        if self._queue.discover():
            self._assignment.check_ownership()
            self._tracker.look()
            self._pending.count_partitions()
            self._pending.forget_ended(self._cursors)
            start = self._here(start)
        self._assignment.sync(start, wait=self._batch_delay.drain and self._bound is None)
        known = self._queue.topic_ids
        try:
            queue_ends, redelivery_ends = self._ends()
        except (TopicNotFound, TopicGone):
            self._queue.refresh()  # raises the right error if the missing topic matters
            if self._queue.topic_ids == known:
                raise
            return start
        self._queue.watch_ends(self._assignment.next, queue_ends)
        pending = self._pending.pending(start, redelivery_ends)
        origin = self._origin = self._find_origin(queue_ends)
        admitted = admit(
            pending,
            start,
            redelivery_ends,
            origin=origin,
            queue_ends=queue_ends,
            budget=max_offsets,
            room=self._outstanding_limit.left(origin),
            turns=self._turns,
            is_enough=lambda waiting: not self._batch_delay.waits_for_more(waiting),
        )
        if admitted is None:
            self._group.follow(self._assignment.next, force=True, wait=self._batch_delay.drain)
            return start
        self._queue.refresh()
        if any(self._queue.topic_ids.get(topic) != known[topic] for topic, _ in admitted.queue):
            # the topic was deleted or created again: plan from the new topic at the next trigger
            return start
        self._outstanding_limit.take(admitted.new)
        end = SourceOffset(
            queue={**start.queue, **admitted.queue},
            redeliveries=start.redeliveries,
            topic_ids={**start.topic_ids, **self._queue.topic_ids},
            redeliveries_id=self._pending.topic_id,
            laps=start.laps,
            origins=start.begun_elsewhere(origin),
        ).with_lanes(admitted.ordinary, admitted.suspects)
        # After a seek back, a batch can end at the offset where it starts. Spark runs no batch between equal
        # offsets.
        return replace(end, laps=start.laps + 1) if end == start else end

    def plan(self, start: SourceOffset, end: SourceOffset) -> list[tuple[Slice, ...]]:
        """Returns the slices of each task of a batch, after the broker has acknowledged its Start markers.

        Spark calls this once per batch, after it has logged the batch's offsets and before any row of the
        batch is read.
        """
        self._begin(start)
        start, end = self._here(start), self._here(end)
        # Start markers of a partition are written before a rebalance can take the partition away.
        with self._membership.steady():
            batch = (
                self._plan(start, end)
                if self._asked_for_latest
                else self._replays.plan(start, end, self._pending.replayed(start, end))
            )
            # Start markers are written before the rows are read. A crash in between delivers twice. In the
            # other order, a crash would lose messages.
            self._sender.send([*self._starts(batch), *_releases(batch.hand_backs, HANDED_BACK)])
            self.now_ms = max(self.now_ms, self._sender.flush() or 0)
        batch, lost = self._assignment.drop_revoked(batch)
        if lost:
            self._send(_releases(lost, STOOD_STILL))
        self._pending.planned(batch)
        self._turns.planned(alone=batch.alone)
        self._lease_extender.track(batch.deliveries)
        self._in_progress = batch
        self._batch_delay.planned()
        tasks = self._split(batch)
        self._unread.planned(tasks, self.now_ms, partitions=len(self._pending.partitions))
        return tasks

    @property
    def report_to(self) -> ReportTo | None:
        """Destination of the first task's report that it has read all; None if tasks do not report."""
        return self._unread.report_to

    def completed(self, end: SourceOffset) -> None:
        """Handles Spark's commit of the batch that ends at ``end``."""
        self._finish_batch(self._here(end))

    @property
    def outstanding(self) -> int | None:
        """Outstanding messages including the next batch. None without a limit."""
        return self._outstanding_limit.outstanding

    @property
    def tracker_silent_ms(self) -> int | None:
        """Milliseconds since a tracker last read a marker if above ``trackerTimeout``, otherwise None."""
        return self._tracker.silent_ms

    @property
    def redeliveries_kept(self) -> int:
        """Number of announcements in memory."""
        return self._pending.kept

    def bound_by_now(self) -> None:
        """Implements Trigger.AvailableNow: the next :meth:`latest_offset` fixes the end of the input."""
        self._batch_delay.drain = True

    def latest_known(self) -> SourceOffset:
        """Returns the end offsets found by the last :meth:`latest_offset`, for Spark's progress reports."""
        return self._last_ends

    def close(self) -> None:
        """Stops lease extension, leaves the group and closes the clients. Remaining leases expire."""
        self._lease_extender.stop()
        self._membership.close()
        self._sender.close()
        self._cursors.close()
        self._pending.close()
        self._unread.close()
        self._queue.close()

    # -- start of a run ------------------------------------------------------------------------------------

    def _find_beginning(self) -> SourceOffset:
        self._queue.refresh()
        self._check_rights()
        self._cursors.refresh()
        cursors = {tp: self._cursors.get(self._cell(*tp)) for tp in self._queue.partitions}
        stored = {tp: cursor.read_position for tp, cursor in cursors.items() if cursor is not None}
        known = self._group.beginning(self._queue, stored)
        remade = [tp for tp, cursor in cursors.items() if self._assignment.is_of_another(tp, cursor)]
        known |= self._queue.beginnings(remade)
        beginning = SourceOffset(
            queue=known,
            redeliveries=self._pending.ends(),
            topic_ids=dict(self._queue.topic_ids),
            redeliveries_id=self._pending.topic_id,
        )
        self._assignment.begin_at(beginning)
        self._pending.begin(beginning.redeliveries)
        self._sync_first(beginning)
        return beginning

    def _sync_first(self, start: SourceOffset) -> None:
        self._assignment.sync(start, wait=self._options.subscription_type.is_sole)

    def _begin(self, start: SourceOffset) -> None:
        if self._began:
            return
        if start.markers:
            raise MarkerFormatChanged("v1", "v2")
        self._queue.resume(start)
        if self._beginning is None:
            self._check_rights()
            # Taken before the Hello: announcements for this run are written after it.
            self._pending.begin(self._pending.ends())
        self._sync_first(start)
        self._began = True

    def _check_rights(self) -> None:
        # Covers topics that a subscribe pattern has matched.
        self._topics.check_rights(dict.fromkeys(self._queue.topic_ids, (DESCRIBE, READ)))

    # -- a batch ---------------------------------------------------------------------------------------

    def _plan(self, start: SourceOffset, end: SourceOffset) -> BatchPlan:
        held = self._assignment.still_owned(self._origin)
        own = self._pending.between(start, end)
        ends = {tp: end.queue[tp] for tp in held if tp in end.queue}
        batch = plan(
            self._options.subscription,
            start,
            replace(end, queue=ends),
            own,
            read_positions={},
            taken=self._pending.taken,
        )
        self._assignment.next |= {tp: max(at, self._origin[tp]) for tp, at in ends.items()}
        return batch

    def _split(self, batch: BatchPlan) -> list[tuple[Slice, ...]]:
        if self._options.subscription_type is SubscriptionType.KEY_SHARED:
            return split_by_key(batch.deliveries, min_partitions=self._options.min_partitions)
        return split(
            batch.deliveries,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    # -- after a batch ---------------------------------------------------------------------------------

    def _finish_batch(self, end: SourceOffset) -> None:
        """Acks a completed batch. Runs at every trigger, because Spark's commit call comes late."""
        batch, self._in_progress = self._in_progress, None
        # The leases are still extended here, because computing the markers may read the batch again.
        markers = self._source_acks.markers(batch, end, has_checkpoint=self._beginning is None)
        self._lease_extender.untrack()
        if markers:
            self._send(markers)
        if batch:
            self._group.follow(self._assignment.next)

    # -- the next batch ------------------------------------------------------------------------------------

    def _find_origin(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the first offset of the next batch by queue partition, never below the read position."""
        origin = {tp: self._assignment.next[tp] for tp in ends if tp in self._assignment.next}
        if all(origin[tp] >= ends[tp] for tp in origin):
            return origin
        if self._messages_expire():
            # Refreshed as late as possible: expired messages must be neither leased nor delivered.
            self._cursors.refresh()
        for tp, position in origin.items():
            cell = self._cell(*tp)
            cursor = self._cursors.get(cell)
            # Expiry and a skip move the read position. A Seek is handled by the next `check_ownership`.
            if cursor is not None and cursor.owner == self._run.id_of(cell):
                origin[tp] = max(position, cursor.read_position)
        return origin

    def _messages_expire(self) -> bool:
        cursors = (self._cursors.get(cell) or answer for cell, answer in self._run.answers.items())
        return any(cursor.ages.ttl_ms is not None for cursor in cursors)

    def _ends(self) -> tuple[Mapping[TopicPartition, int], Mapping[int, int]]:
        if self._bound is not None:
            return self._bound.queue, self._bound.redeliveries
        # One broker request if possible: an idle query calls this a hundred times a second.
        redeliveries = self._pending.partitions
        queue = sorted(self._assignment.next)
        if self._read_committed:
            ends = self._topics.end_offsets([*queue, *redeliveries], committed=True)
        else:
            ends = self._topics.end_offsets(queue, committed=False)
            ends |= self._topics.end_offsets(redeliveries, committed=True)
        self._last_ends = SourceOffset(
            queue={tp: ends[tp] for tp in queue},
            redeliveries={partition: ends[topic, partition] for topic, partition in redeliveries},
        )
        if self._batch_delay.drain:
            self._bound = self._last_ends
        return self._last_ends.queue, self._last_ends.redeliveries

    def _here(self, offset: SourceOffset) -> SourceOffset:
        """Returns the offset without positions of topics that were deleted or created again."""
        return self._queue.here(self._pending.here(offset))

    # -- helpers ------------------------------------------------------------------------------------------

    @property
    def _read_committed(self) -> bool:
        return self._options.isolation is Isolation.READ_COMMITTED

    def _starts(self, batch: BatchPlan) -> list[Start]:
        return [
            Start(
                cell=delivery.cell,
                offsets=delivery.offsets,
                lease_ms=self._options.lease_ms,
                delivery_count=delivery.delivery_count,
                run_id=self._run.id_of(delivery.cell),
                alone=batch.alone,
            )
            for delivery in batch.deliveries
        ]

    def _cell(self, topic: str, partition: int) -> Cell:
        return self._assignment.cell(topic, partition)

    def _extend(self, held: Sequence[Delivery]) -> None:
        lease_ms, id_of = self._options.lease_ms, self._run.id_of
        self._send(
            [
                KeepAlive(cell=one.cell, offsets=one.offsets, lease_ms=lease_ms, run_id=id_of(one.cell))
                for one in held
            ]
        )

    def _send(self, markers: Sequence[Marker]) -> None:
        """Writes markers. Returns after the broker has confirmed them."""
        self._sender.send(markers)
        self._sender.flush()


def _releases(given_back: Sequence[HandBack | Delivery], reason: str) -> list[Release]:
    return [
        Release(
            cell=one.cell,
            offsets=one.offsets,
            delivery_count=one.delivery_count,
            delay_ms=0,
            reason=reason,
        )
        for one in given_back
    ]
