"""The planner: the driver side of a streaming query.

A planner decides which messages each batch delivers, writes their leases, and acks completed batches. One
planner is one run of the query. Its memory is a cache: a second planner built from the same checkpoint and
the same topics plans the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_cursor_source.consumer.batch_acks import BatchInProgress, SourceAcks
from spark_cursor_source.consumer.batch_planner import PlannedBatch, PlannerStatus
from spark_cursor_source.consumer.lease_extender import LeaseExtender
from spark_cursor_source.consumer.leases import Leased, keep_alives
from spark_cursor_source.consumer.replay_phase import ReplayPhase
from spark_cursor_source.consumer.run_parts import RunParts
from spark_cursor_source.consumer.running_phase import RunningPhase
from spark_cursor_source.consumer.start_phase import StartPhase
from spark_cursor_source.consumer.starts import start_markers
from spark_cursor_source.core.batch import BatchPlan, Delivery, SourceOffset
from spark_cursor_source.core.marker import Release
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.task_split import split, split_by_key
from spark_cursor_source.options.source import SourceOptions

HANDED_BACK = "the run that held it died"
STOOD_STILL = "it went to another query before its rows went out"


class Planner:
    """One run of a query beside this library's tracker. Implements :class:`BatchPlanner`.

    A run has three phases: :class:`StartPhase` until Spark names the start of a batch, :class:`ReplayPhase`
    until Spark asks for a new batch, then :class:`RunningPhase`.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Raises the errors of :meth:`RunParts.of`."""
        self._options = options
        self._parts = parts = RunParts.of(options)
        self._running = RunningPhase(parts)
        replaying = ReplayPhase(parts, self._running)
        self._beginning = StartPhase(parts, replaying)
        self._phase: StartPhase | ReplayPhase | RunningPhase = self._beginning
        self._source_acks = SourceAcks(parts, replaying)
        self._lease_extender: LeaseExtender[str] = LeaseExtender(self._extend, lease_ms=options.lease_ms)
        self._in_progress: BatchInProgress | None = None
        self._now_ms = 0  # broker time in ms of the last plan, from its Start markers

    # -- calls from Spark ----------------------------------------------------------------------------------

    def initial_offset(self) -> SourceOffset:
        """Returns the offset where a query without a checkpoint begins."""
        return self._beginning.initial_offset()

    def latest_offset(self, start: SourceOffset, *, max_offsets: int | None) -> SourceOffset:
        """Returns the end offset of the next batch, or ``start`` if no message can be delivered."""
        running = self._phase = self._phase.begin(start).run()
        self._finish_batch()
        return running.next_end(start, max_offsets=max_offsets)

    def plan(self, start: SourceOffset, end: SourceOffset) -> PlannedBatch:
        """Returns the batch between two offsets, after the broker has acknowledged its Start markers.

        Spark calls this once per batch, after it has logged the batch's offsets and before any row of the
        batch is read.
        """
        parts = self._parts
        phase = self._phase = self._phase.begin(start)
        start, end = parts.here(start), parts.here(end)
        # Start markers of a partition are written before a rebalance can take the partition away.
        with parts.membership.steady():
            content = phase.content(start, end)
            # Start markers are written before the rows are read. A crash in between delivers twice. In the
            # other order, a crash would lose messages.
            starts = start_markers(
                content.deliveries,
                parts.session.id_of,
                lease_ms=self._options.lease_ms,
                alone=content.alone,
            )
            releases = _releases(content.hand_backs, HANDED_BACK)
            self._now_ms = max(self._now_ms, parts.markers.write([*starts, *releases, *content.leaves]) or 0)
            self._running.view.at(self._now_ms)
        content, lost = parts.assignment.drop_revoked(content)
        order = parts.key_order
        if order is not None:
            content, unanswered = order.answered(content)
            lost = [*lost, *unanswered]
        blocked = None if order is None else order.blocked(content, parts.pending.taken)
        if lost:
            parts.markers.write(_releases(lost, STOOD_STILL))
        parts.pending.started(content.deliveries)
        self._running.planned(content)
        run_id_of = parts.session.id_of
        self._lease_extender.track(
            Leased(cell=delivery.cell, holder=run_id_of(delivery.cell), offsets=delivery.offsets)
            for delivery in content.deliveries
        )
        tasks = self._split(content)
        planned = PlannedBatch(
            tasks=tasks,
            markers_partitions=parts.markers.partitions,
            now_ms=self._now_ms,
            blocked=blocked,
            report_to=parts.unread.report_to(tasks, partitions=len(parts.pending.partitions)),
        )
        run_ids = {start.cell: start.run_id for start in starts}
        self._in_progress = BatchInProgress(content=content, planned=planned, run_ids=run_ids)
        return planned

    def completed(self, end: SourceOffset) -> None:
        """Handles Spark's commit of the batch that ends at ``end``."""
        self._finish_batch()

    def bound_by_now(self, *, one_batch: bool = False) -> None:
        """Implements Trigger.AvailableNow and Once: the next :meth:`latest_offset` fixes the input's end."""
        self._running.ends.bound_by_now(one_batch=one_batch)

    def status(self) -> PlannerStatus:
        """Returns the state at the last :meth:`latest_offset`."""
        return PlannerStatus(
            latest=self._running.ends.latest,
            outstanding=self._running.outstanding,
            oldest_outstanding_ms=self._running.view.oldest_ms(),
            behind=self._running.behind,
            tracker_silent_ms=self._parts.tracker.silent_ms,
            redeliveries_kept=self._parts.pending.kept,
            limits=self._running.limits.present,
        )

    def close(self) -> None:
        """Stops lease extension, leaves the group and closes the clients. Remaining leases expire."""
        self._lease_extender.stop()
        self._parts.close()

    # -- a batch ---------------------------------------------------------------------------------------

    def _split(self, batch: BatchPlan) -> list[tuple[Slice, ...]]:
        if self._options.keeps_keys_together:
            return split_by_key(batch.deliveries, min_partitions=self._options.min_partitions)
        return split(
            batch.deliveries,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def _extend(self, due: Sequence[Leased[str]]) -> None:
        self._parts.markers.write(keep_alives(due, lease_ms=self._options.lease_ms))

    def _finish_batch(self) -> None:
        """Acks a completed batch. Runs at every trigger, because Spark's commit call comes late."""
        batch, self._in_progress = self._in_progress, None
        # The leases are still extended here, because computing the markers may read the batch again.
        markers = self._source_acks.markers(batch, self._beginning.committed)
        self._lease_extender.untrack()
        if markers:
            self._parts.markers.write(markers)
        if batch:
            self._parts.group.follow(self._parts.assignment.next)


def _releases(given_back: Sequence[Delivery], reason: str) -> list[Release]:
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
