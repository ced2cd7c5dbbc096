"""Acks written by the source when Spark has completed a batch (``ackMode`` batch or cumulative)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_cursor_source.consumer.batch_planner import PlannedBatch
from spark_cursor_source.consumer.replay_phase import ReplayPhase
from spark_cursor_source.consumer.run_parts import RunParts
from spark_cursor_source.core.batch import BatchPlan, Delivery, SourceOffset, offsets_by_cell
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Block, End, EndLeased, EndUpTo, Marker, Release
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.replay import orphaned_leases
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.options.source import AckMode, Ordering


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInProgress:
    """A batch whose messages are leased, until Spark has completed it."""

    content: BatchPlan
    planned: PlannedBatch
    run_ids: Mapping[Cell, str]  #: run ids in the Start markers


class SourceAcks:
    """Computes the acks of a completed batch, and those that dead runs did not write.

    Each answer of the tracker shows what was outstanding when this run acquired the cell. A run that loses a
    cell and acquires it again gets another answer.

    With ``ackMode=batch`` the tracker decides what is left to ack: the messages of the batch that its run
    still has leased, after all markers that the sink has written before Spark committed the batch.

    Messages that are not due are released if no task has read them, because no task has released them.
    """

    def __init__(self, parts: RunParts, replaying: ReplayPhase) -> None:
        self._mode, self._is_sole = parts.options.ack_mode, parts.options.subscription_type.is_sole
        self._keeps_order = parts.options.ordering is Ordering.KEY
        self._assignment, self._session, self._pending = parts.assignment, parts.session, parts.pending
        self._unread, self._replaying = parts.unread, replaying
        self._cursors, self._here = parts.cursors, parts.here
        self._seen: dict[Cell, str] = {}  # run id of the last answer that was looked at
        # outstanding messages of that answer that a cumulative ack must not end
        self._apart: dict[Cell, OffsetSet] = {}

    def markers(self, batch: BatchInProgress | None, committed: SourceOffset | None) -> list[Marker]:
        """Returns the markers to write when the batch in progress, if any, has ended.

        ``committed`` is the end of the batches that Spark had committed when this run began; None if there
        was none.
        """
        if self._mode is AckMode.INDIVIDUAL:
            return []
        deliveries = batch.content.deliveries if batch else ()
        markers = self._look_back(deliveries, committed)
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
        apart = {*early, *self._cells_apart()}
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

    def _cells_apart(self) -> list[Cell]:
        """Returns the cells with messages that a cumulative ack must not end."""
        for cell, offsets in list(self._apart.items()):
            cursor = self._cursors.get(cell)
            if cursor is not None:
                self._apart[cell] = offsets & cursor.outstanding  # what has ended does not come back
        return [cell for cell, offsets in self._apart.items() if offsets]

    def _look_back(self, deliveries: Sequence[Delivery], committed: SourceOffset | None) -> list[Marker]:
        """Looks at new answers for what dead runs left leased. Returns the acks of committed batches.

        Spark has committed these batches. The reads of those runs' tasks are unknown, so the headers of all
        these messages are examined.
        """
        id_of = self._session.id_of
        new = {c: answer for c, answer in self._session.answers.items() if self._seen.get(c) != id_of(c)}
        if not new or not self._is_sole:
            # In a shared subscription, leases of dead runs cannot be distinguished from leases of live
            # members.
            return []
        self._seen |= {cell: id_of(cell) for cell in new}
        if committed is not None:
            # With ordering=key, it is unknown which messages the tasks of dead runs held back: the messages
            # that those waited for may have ended since. All come again.
            committed = None if self._keeps_order else self._here(committed)

        def later() -> list[Redeliver]:
            records = [] if committed is None else self._pending.after(committed)
            return [record.redeliver for record in records]

        left = orphaned_leases(
            new,
            start=committed,
            later=later,
            replayed=self._replaying.held,
            delivered=offsets_by_cell(deliveries),
        )
        self._apart |= {cell: left.unsure.get(cell, EMPTY) for cell in new}
        releases: list[Release | Block] = []
        for started_ms, slices in sorted(self._leased(left.committed).items()):
            releases += self._unread.of_dead_runs(slices, started_ms)
        ends = self._ends_of_dead_runs(left.committed, offsets_by_cell(releases))
        return [*releases, *ends]

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
