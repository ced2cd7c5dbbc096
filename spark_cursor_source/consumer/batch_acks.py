"""Acks written by the source when Spark has completed a batch (``ackMode`` batch or cumulative)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_cursor_source.consumer.batch_planner import PlannedBatch
from spark_cursor_source.consumer.replay_phase import ReplayPhase
from spark_cursor_source.consumer.run_parts import RunParts
from spark_cursor_source.core.batch import BatchPlan, Delivery, SourceOffset, offsets_by_cell
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.lease_groups import START_GRAIN_MS
from spark_cursor_source.core.marker import Block, End, EndLeased, EndUpTo, Marker, Release
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.replay import orphaned_leases
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.options.source import AckMode


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInProgress:
    """A batch whose messages are leased, until Spark has completed it."""

    content: BatchPlan
    planned: PlannedBatch
    run_ids: Mapping[Cell, str]  #: run ids in the Start markers


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeadRuns:
    """Leases that dead runs have left, by the tracker's first answers to this run."""

    acks: Sequence[Marker] = ()  # of messages in batches that Spark has committed
    apart: frozenset[Cell] = frozenset()  # cells with messages that a cumulative ack must not end


class SourceAcks:
    """Computes the acks of a completed batch, and once per run those that dead runs did not write.

    With ``ackMode=batch`` the tracker decides what is left to ack: the messages of the batch that its run
    still has leased, after all markers that the sink has written before Spark committed the batch.

    Messages that are not due are released if no task has read them, because no task has released them.
    """

    def __init__(self, parts: RunParts, replaying: ReplayPhase) -> None:
        self._mode, self._is_sole = parts.options.ack_mode, parts.options.subscription_type.is_sole
        self._assignment, self._session, self._pending = parts.assignment, parts.session, parts.pending
        self._unread, self._replaying = parts.unread, replaying
        self._dead_runs: _DeadRuns | None = None  # None: the tracker has not answered

    def markers(
        self, batch: BatchInProgress | None, end: SourceOffset, *, has_checkpoint: bool
    ) -> list[Marker]:
        """Returns the markers to write when the batch in progress, if any, ends at ``end``.

        ``has_checkpoint`` is False if the query had no checkpoint, so that no earlier batch was committed.
        """
        if self._mode is AckMode.INDIVIDUAL:
            return []
        deliveries = batch.content.deliveries if batch else ()
        markers: list[Marker] = []
        if self._dead_runs is None and self._session.answers:
            self._dead_runs = self._look_back(deliveries, end, has_checkpoint=has_checkpoint)
            markers += self._dead_runs.acks
        if batch:
            releases = self._unread.releases(batch.planned)
            markers += releases
            early = offsets_by_cell(releases)
            markers += (
                self._ends(batch, early) if self._mode is AckMode.BATCH else self._ends_up_to(batch, early)
            )
        return markers

    def _ends(self, batch: BatchInProgress, early: Mapping[Cell, OffsetSet]) -> list[Marker]:
        """Returns the acks of a completed batch. Messages in ``early`` are not due and are released."""
        return [
            EndLeased(
                cell=delivery.cell,
                offsets=offsets,
                # The session has another run id if the group took the partition and gave it back.
                run_id=batch.run_ids[delivery.cell],
                delivery_count=delivery.delivery_count,
            )
            for delivery in batch.content.deliveries
            if (offsets := delivery.offsets - early.get(delivery.cell, EMPTY))
        ]

    def _ends_up_to(self, batch: BatchInProgress, early: Mapping[Cell, OffsetSet]) -> list[Marker]:
        """Returns the cumulative acks of a completed batch.

        A cumulative ack would also end other outstanding messages, so cells with such messages are acked one
        by one.
        """
        apart = {*early, *(self._dead_runs.apart if self._dead_runs else ())}
        markers: list[Marker] = [
            # Marker order alone does not protect the released messages, because a Release has no effect after
            # its lease has expired.
            End(cell=delivery.cell, offsets=offsets, run_id=self._session.id_of(delivery.cell))
            for delivery in batch.content.deliveries
            if delivery.cell in apart and (offsets := delivery.offsets - early.get(delivery.cell, EMPTY))
        ]
        cells = {self._assignment.cell(*tp): position for tp, position in self._assignment.next.items()}
        markers += [
            EndUpTo(cell=cell, position=position, run_id=self._session.id_of(cell))
            for cell, position in cells.items()
            if position and cell not in apart
        ]
        return markers

    def _look_back(
        self, deliveries: Sequence[Delivery], end: SourceOffset, *, has_checkpoint: bool
    ) -> _DeadRuns:
        """Finds the messages that dead runs left leased, and the acks of those in committed batches.

        Spark has committed these batches. The reads of those runs' tasks are unknown, so the headers of all
        these messages are examined.
        """
        if not self._is_sole:
            # In a shared subscription, leases of dead runs cannot be distinguished from leases of live
            # members.
            return _DeadRuns()
        left = orphaned_leases(
            self._session.answers,
            run_id=self._session.run_id,
            end=end if has_checkpoint else None,
            later=[record.redeliver for record in self._pending.after(end)],
            replayed=self._replaying.held,
            delivered=offsets_by_cell(deliveries),
        )
        releases: list[Release | Block] = []
        for started_ms, slices in sorted(self._leased(left.committed).items()):
            # Judged by the time of the Start marker: a message that became due later was not delivered
            # either.
            releases += self._unread.not_due(slices, started_ms - START_GRAIN_MS)
        ends = self._ends_of_dead_runs(left.committed, offsets_by_cell(releases))
        return _DeadRuns(acks=[*releases, *ends], apart=left.unsure)

    def _ends_of_dead_runs(
        self, committed: Mapping[Cell, OffsetSet], early: Mapping[Cell, OffsetSet]
    ) -> list[Marker]:
        """Returns the acks of messages that dead runs left leased. Messages in ``early`` are released."""
        due = {cell: offsets - early.get(cell, EMPTY) for cell, offsets in committed.items()}
        if self._mode is AckMode.CUMULATIVE:
            return [End(cell=cell, offsets=offsets) for cell, offsets in due.items() if offsets]
        return [
            EndLeased(cell=cell, offsets=held, run_id=lease.run_id, delivery_count=lease.delivery_count)
            for cell, offsets in due.items()
            for lease, leased in self._session.answers[cell].leases
            if (held := leased & offsets)
        ]

    def _leased(self, offsets: Mapping[Cell, OffsetSet]) -> dict[int, list[Slice]]:
        """Returns the leased part of the offsets as slices, by the time of their Start markers."""
        found: dict[int, list[Slice]] = {}
        for cell, wanted in offsets.items():
            for lease, held in self._session.answers[cell].leases:
                if some := held & wanted:
                    piece = Slice(
                        topic=cell.topic,
                        partition=cell.partition,
                        offsets=some,
                        delivery_count=lease.delivery_count,
                    )
                    found.setdefault(lease.started_ms, []).append(piece)
        return found
