"""Planner for queries with kafka-mq-go's tracker: V1 markers, one for each message.

That tracker takes over a message with its Start, including the value. When the lease expires, it appends the
message to the queue topic again. So this planner needs no information about outstanding messages. Its duty is
to write at most one Start for each message: after a second Start, the tracker would deliver a message again
although it has ended.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_cursor_source.consumer.batch_delay import MinOffsetsDelay
from spark_cursor_source.consumer.lease_extender import LeaseExtender
from spark_cursor_source.consumer.progress import GroupProgress, group_config
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.admission import admit_queue
from spark_cursor_source.core.batch import Delivery, SourceOffset, TopicPartition, paused_queue_ends
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.read_report import ReportTo
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.task_split import split
from spark_cursor_source.errors import MarkerFormatChanged
from spark_cursor_source.interop.sender import MarkerSenderV1
from spark_cursor_source.interop.starts import Range, StartWriter, started_in
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.rights import of_consumer_v1
from spark_cursor_source.options.source import AckMode, Isolation, SourceOptions
from spark_cursor_source.topics.data_loss import report_loss
from spark_cursor_source.wire.marker import MarkerType, MarkerV1

log = logging.getLogger(__name__)
_PIECE = 100_000  # number of offsets started before their leases join the lease extension


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Messages of one queue id and partition, started by the batch in progress."""

    queue_id: bytes
    partition: int
    offsets: OffsetSet


class PlannerV1:
    """One run of a query, from Spark's first call to its last."""

    now_ms = 0  #: unknown; a message with a delayed-delivery header is delivered immediately
    outstanding = None  #: unknown
    tracker_silent_ms = None  #: unknown; kafka-mq-go's tracker is not monitored

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topics = ClusterAdmin(client_config(options.kafka, "admin"), timeout_ms=PATIENCE_MS).meet()
        self._topics.check_rights(
            of_consumer_v1(
                markers=options.markers_topic, streams=options.streams_topic, queues=options.topics.names
            ),
            group=options.group,
        )
        self.markers_partitions = self._topics.ensure_markers(options.markers_topic)
        self._markers = [(options.markers_topic, number) for number in range(self.markers_partitions)]
        self._sender = MarkerSenderV1(
            client_config(options.kafka, "producer"), options.markers_topic, self.markers_partitions
        )
        reading = client_config(options.kafka, "consumer")
        self._starts = StartWriter(
            reading | {"isolation.level": options.isolation.value},
            self._sender,
            queue_id=None if options.queue_id is None else options.queue_id.encode(),
            lease_ms=options.lease_ms,
        )
        self._queue = SourceTopics(options, self._topics, may_be_recreated=False)
        self._membership = group_config(options, self._topics, uuid.uuid4().hex)
        self._group = GroupProgress(self._topics, self._membership, options.group)
        self._lease_extender: LeaseExtender[Started] = LeaseExtender(self._extend, lease_ms=options.lease_ms)
        self._batch_delay = MinOffsetsDelay(options)
        self._began = False
        self._next: dict[TopicPartition, int] = {}  # next offset to plan, by partition
        # offsets at or above the next offset that already have a Start, by partition
        self._started: dict[int, OffsetSet] = {}
        self._asked_for_latest = False
        self._beginning: SourceOffset | None = None
        self._in_progress: list[Started] = []
        self._last_ends: Mapping[TopicPartition, int] = {}
        self._bound: Mapping[TopicPartition, int] | None = None

    report_to: ReportTo | None = None  #: tasks do not report their reads

    # -- calls from Spark ----------------------------------------------------------------------------------

    def initial_offset(self) -> SourceOffset:
        """Returns the offset where a query without a checkpoint begins, the same in this run and the next."""
        if self._beginning is None:
            self._queue.refresh()
            held = self._membership.wait_for_assignment(self._queue.partitions)
            positions = self._group.beginning(self._queue, {})
            if held:
                self._group.keep(positions)
            self._beginning = self._offset(positions)
        return self._beginning

    def latest_offset(self, start: SourceOffset, *, max_offsets: int | None) -> SourceOffset:
        """Returns the end offset of the next batch, or ``start`` if no message can be delivered."""
        self._begin(start)
        self._asked_for_latest = True
        self.completed(start)
        self._queue.discover()
        if not self._sync(start):
            return start
        ends = self._ends()
        self._queue.watch_ends(self._next, ends)
        origin = {tp: self._next[tp] for tp in ends}
        queue = admit_queue(origin, paused_queue_ends(ends, origin, self._queue.paused), budget=max_offsets)
        waiting = sum(queue[tp] - origin[tp] for tp in queue)
        if not waiting or self._batch_delay.waits_for_more(waiting):
            return start
        self._queue.refresh()
        return self._offset({**start.queue, **queue}, start.topic_ids, start.begun_elsewhere(origin))

    def plan(self, start: SourceOffset, end: SourceOffset) -> list[tuple[Slice, ...]]:
        """Returns the slices of each task of a batch, after the broker has acknowledged all Starts.

        Each message has one Start. Spark calls this once per batch, after it has logged the batch's offsets
        and before any row of the batch is read. Messages started by a dead run are excluded: the tracker owns
        them and redelivers them.
        """
        self._begin(start)
        held = self._sync(start)
        is_replay = not self._asked_for_latest
        batch = {
            tp: (first, past)
            for tp, past in sorted(end.queue.items())
            if held and (first := end.origin(tp, start) if is_replay else self._next.get(tp, past)) < past
        }
        if is_replay:
            self._started = self._started_in(batch, since=end.markers)
            self._pass_over_started({tp: first for tp, (first, _) in batch.items()}, start)
        counts: dict[tuple[TopicPartition, int], list[OffsetSet]] = {}
        for tp, within in batch.items():
            for count, offsets in self._start(tp, within, self._started.get(tp[1], EMPTY)):
                counts.setdefault((tp, count), []).append(offsets)
        # Start markers are written before the rows are read. A crash in between delivers twice. In the other
        # order, a crash would lose messages.
        self._sender.flush()
        # As in kafka-mq-go, a Start removes a message from the queue. Committed positions prevent a second
        # Start even if the checkpoint is lost.
        positions = {tp: past for tp, (_, past) in batch.items()}
        self._next |= positions
        self._group.keep(positions)
        self._batch_delay.planned()
        return split(
            [
                Delivery(cell=self._cell(*tp), offsets=OffsetSet.union(pieces), delivery_count=count)
                for (tp, count), pieces in counts.items()
            ],
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def completed(self, end: SourceOffset) -> None:
        """Handles Spark's commit of a batch.

        Also called at every trigger, because Spark's commit call comes late.
        """
        self._lease_extender.untrack()
        batch, self._in_progress = self._in_progress, []
        if batch and self._options.ack_mode is AckMode.BATCH:
            self._send(_markers(batch, MarkerType.END))

    def bound_by_now(self) -> None:
        """Implements Trigger.AvailableNow: the next :meth:`latest_offset` fixes the end of the input."""
        self._batch_delay.drain = True

    def latest_known(self) -> SourceOffset:
        """Returns the end offsets found by the last :meth:`latest_offset`, for Spark's progress reports."""
        return SourceOffset(queue=self._last_ends, redeliveries={})

    def close(self) -> None:
        """Stops lease extension and closes the clients. Remaining leases expire."""
        self._lease_extender.stop()
        self._membership.close()
        self._sender.close()
        self._queue.close()

    # -- a batch ---------------------------------------------------------------------------------------

    def _start(
        self, tp: TopicPartition, within: Range, without: OffsetSet
    ) -> Iterator[tuple[int, OffsetSet]]:
        """Starts a range in pieces and extends their leases. Yields (delivery count, offsets)."""
        topic, partition = tp
        without_key = 0

        def on_removed(first: int, past: int) -> None:
            removed = OffsetSet.of((first, past)) - without
            if removed:
                report_loss(topic, partition, removed, fail=self._options.fail_on_data_loss)

        for piece in OffsetSet.of(within).chunks(_PIECE):
            (bounds,) = piece.ranges
            started = self._starts.start(topic, partition, bounds, without=without, on_removed=on_removed)
            without_key += started.without_key
            self._in_progress += [
                Started(queue_id=queue_id, partition=partition, offsets=offsets)
                for queue_id, offsets in started.by_queue.items()
            ]
            self._lease_extender.track(self._in_progress)
            yield from started.by_count.items()
        if without_key:
            log.warning(
                "Messages without a key cannot be tracked by V1 markers and are skipped. "
                "event=messages_without_key topic=%s partition=%d first=%d last=%d skipped=%d",
                *(topic, partition, within[0], within[1] - 1, without_key),
            )

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

    def _started_in(
        self, batch: Mapping[TopicPartition, Range], *, since: Mapping[int, int]
    ) -> dict[int, OffsetSet]:
        """Returns the messages of these ranges that have a Start, by partition.

        ``since`` are the first offsets to read in the markers topic.
        """
        ranges = {p: (since.get(p, 0), at) for p, at in self._markers_ends().items()}
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

    # -- helpers ------------------------------------------------------------------------------------------

    def _begin(self, start: SourceOffset) -> None:
        if self._began:
            return
        if not start.markers:
            raise MarkerFormatChanged("v2", "v1")
        self._queue.resume(start)
        self._membership.wait_for_assignment(self._queue.partitions)
        self._began = True

    def _sync(self, start: SourceOffset) -> bool:
        """True if the query holds the subscription. New partitions continue at committed offsets."""
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

    def _offset(
        self,
        queue: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str] | None = None,
        origins: Mapping[TopicPartition, int] | None = None,
    ) -> SourceOffset:
        return SourceOffset(
            queue=queue,
            redeliveries={},
            topic_ids={**(topic_ids or {}), **self._queue.topic_ids},
            markers=self._markers_ends(),
            origins=origins or {},
        )

    def _ends(self) -> Mapping[TopicPartition, int]:
        if self._bound is not None:
            return self._bound
        committed = self._options.isolation is Isolation.READ_COMMITTED
        self._last_ends = self._topics.end_offsets(list(self._queue.partitions), committed=committed)
        if self._batch_delay.drain:
            self._bound = self._last_ends
        return self._last_ends

    def _markers_ends(self) -> dict[int, int]:
        # Uncommitted ends: an open transaction of another producer would hide this query's Starts.
        ends = self._topics.end_offsets(self._markers, committed=False)
        return {number: at for (_, number), at in ends.items()}

    def _cell(self, topic: str, partition: int) -> Cell:
        return Cell(subscription=self._options.subscription, topic=topic, partition=partition)

    def _extend(self, held: Sequence[Started]) -> None:
        self._send(_markers(held, MarkerType.KEEP_ALIVE, lease_ms=self._options.lease_ms))

    def _send(self, markers: Iterator[MarkerV1]) -> None:
        """Writes markers. Returns after the broker has confirmed them."""
        self._sender.send(markers)
        self._sender.flush()


def _markers(batch: Sequence[Started], kind: MarkerType, *, lease_ms: int = 0) -> Iterator[MarkerV1]:
    for one in batch:
        for offset in one.offsets:
            yield MarkerV1(
                queue_id=one.queue_id,
                type=kind,
                partition=one.partition,
                offset=offset,
                redeliver_after_ms=lease_ms,
            )
