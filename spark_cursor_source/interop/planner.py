"""Planner for queries with kafka-mq-go's tracker: V1 markers, one for each message.

That tracker takes over a message with its Start, including the value. When the lease expires, it appends the
message to the queue topic again. So this planner needs no information about outstanding messages. Its duty is
to write at most one Start for each message: after a second Start, the tracker would deliver a message again
although it has ended.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence

from spark_cursor_source.consumer.batch_planner import BatchPlanner, PlannedBatch, PlannerStatus
from spark_cursor_source.consumer.lease_extender import LeaseExtender
from spark_cursor_source.consumer.leases import Leased
from spark_cursor_source.consumer.planner import Planner
from spark_cursor_source.consumer.progress import GroupProgress, group_config
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import Delivery, SourceOffset, TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.task_split import split
from spark_cursor_source.interop.phases import PositionsV1, ReplayPhaseV1, RunningPhaseV1, StartPhaseV1
from spark_cursor_source.interop.sender import MarkerSenderV1, one_for_each
from spark_cursor_source.interop.starts import Range, StartWriter
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.append_watch import AppendWatch
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.rights import of_consumer_v1
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.source import AckMode, SourceOptions
from spark_cursor_source.topics.data_loss import report_loss
from spark_cursor_source.wire.marker import MarkerType, MarkerV1

log = logging.getLogger(__name__)
_PIECE = 100_000  # number of offsets started before their leases join the lease extension


def planner_for(options: SourceOptions) -> BatchPlanner:
    """Returns a new run of a query, for the tracker that its marker format names. Asks the brokers.

    Raises:
        NotAuthorized: a right is missing that the query needs.
        KafkaUnavailable, KafkaRefused, TopicNotFound
    """
    return PlannerV1(options) if options.marker_version is MarkerVersion.V1 else Planner(options)


class PlannerV1:
    """One run of a query beside kafka-mq-go's tracker. Implements :class:`BatchPlanner`.

    Outstanding messages, delivery times and the tracker's liveness are unknown to it.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Raises the errors of :func:`planner_for`."""
        self._options = options
        topics = ClusterAdmin(client_config(options.kafka, "admin"), timeout_ms=PATIENCE_MS).meet()
        topics.check_rights(
            of_consumer_v1(
                markers=options.markers_topic, streams=options.streams_topic, queues=options.topics.names
            ),
            group=options.group,
        )
        self._markers_partitions = topics.ensure_markers(options.markers_topic)
        self._sender = MarkerSenderV1(
            client_config(options.kafka, "producer"), options.markers_topic, self._markers_partitions
        )
        reading = client_config(options.kafka, "consumer")
        self._starts = StartWriter(
            reading | {"isolation.level": options.isolation.value},
            self._sender,
            queue_id=None if options.queue_id is None else options.queue_id.encode(),
            lease_ms=options.lease_ms,
        )
        self._queue = SourceTopics(options, topics, begins_anew=False)
        self._membership = group_config(options, topics, uuid.uuid4().hex)
        group = GroupProgress(topics, self._membership, options.group)
        self._positions = PositionsV1(
            options, topics, self._queue, self._membership, group, self._markers_partitions
        )
        self._appends = AppendWatch(reading)
        self._running = RunningPhaseV1(options, topics, self._queue, self._positions, self._appends)
        replaying = ReplayPhaseV1(self._positions, self._running)
        self._beginning = StartPhaseV1(self._queue, self._membership, group, self._positions, replaying)
        self._phase: StartPhaseV1 | ReplayPhaseV1 | RunningPhaseV1 = self._beginning
        self._lease_extender: LeaseExtender[bytes] = LeaseExtender(self._extend, lease_ms=options.lease_ms)
        self._in_progress: list[Leased[bytes]] = []

    # -- calls from Spark ----------------------------------------------------------------------------------

    def initial_offset(self) -> SourceOffset:
        """Returns the offset where a query without a checkpoint begins, the same in this run and the next."""
        return self._beginning.initial_offset()

    def latest_offset(self, start: SourceOffset, *, max_offsets: int | None) -> SourceOffset:
        """Returns the end offset of the next batch, or ``start`` if no message can be delivered."""
        running = self._phase = self._phase.begin(start).run()
        self.completed(start)
        return running.next_end(start, max_offsets=max_offsets)

    def plan(self, start: SourceOffset, end: SourceOffset) -> PlannedBatch:
        """Returns the batch between two offsets, after the broker has acknowledged all Starts.

        Each message has one Start. Spark calls this once per batch, after it has logged the batch's offsets
        and before any row of the batch is read. Messages started by a dead run are excluded: the tracker owns
        them and redelivers them.
        """
        phase = self._phase = self._phase.begin(start)
        batch = phase.content(start, end)
        counts: dict[tuple[TopicPartition, int], list[OffsetSet]] = {}
        for tp, within in batch.items():
            for count, offsets in self._start(tp, within, self._positions.started(tp)):
                counts.setdefault((tp, count), []).append(offsets)
        # Start markers are written before the rows are read. A crash in between delivers twice. In the other
        # order, a crash would lose messages.
        self._sender.flush()
        self._positions.advance({tp: past for tp, (_, past) in batch.items()})
        self._running.delay.planned()
        tasks = split(
            [
                Delivery(cell=self._cell(*tp), offsets=OffsetSet.union(pieces), delivery_count=count)
                for (tp, count), pieces in counts.items()
            ],
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )
        return PlannedBatch(tasks=tasks, markers_partitions=self._markers_partitions)

    def completed(self, end: SourceOffset) -> None:
        """Handles Spark's commit of a batch.

        Also called at every trigger, because Spark's commit call comes late.
        """
        self._lease_extender.untrack()
        batch, self._in_progress = self._in_progress, []
        if batch and self._options.ack_mode is AckMode.BATCH:
            self._sender.write(_markers(batch, MarkerType.END))

    def bound_by_now(self, *, one_batch: bool = False) -> None:
        """Implements Trigger.AvailableNow and Once: the next :meth:`latest_offset` fixes the input's end."""
        self._running.ends.bound_by_now(one_batch=one_batch)

    def status(self) -> PlannerStatus:
        """Returns the end offsets found by the last :meth:`latest_offset`. Nothing else is known."""
        return PlannerStatus(latest=self._running.ends.latest)

    def close(self) -> None:
        """Stops lease extension and closes the clients. Remaining leases expire."""
        self._lease_extender.stop()
        self._membership.close()
        self._appends.close()
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
            leases = [
                Leased(cell=self._cell(topic, partition), holder=queue_id, offsets=offsets)
                for queue_id, offsets in started.by_queue.items()
            ]
            self._in_progress += leases
            self._lease_extender.track(leases)
            yield from started.by_count.items()
        if without_key:
            log.warning(
                "Messages without a key cannot be tracked by V1 markers and are skipped. "
                "event=messages_without_key topic=%s partition=%d first=%d last=%d skipped=%d",
                *(topic, partition, within[0], within[1] - 1, without_key),
            )

    def _cell(self, topic: str, partition: int) -> Cell:
        return Cell(subscription=self._options.subscription, topic=topic, partition=partition)

    def _extend(self, held: Sequence[Leased[bytes]]) -> None:
        self._sender.write(_markers(held, MarkerType.KEEP_ALIVE, lease_ms=self._options.lease_ms))


def _markers(batch: Sequence[Leased[bytes]], kind: MarkerType, *, lease_ms: int = 0) -> Iterator[MarkerV1]:
    for leased in batch:
        yield from one_for_each(leased.offsets, kind, leased.holder, leased.cell.partition, lease_ms)
