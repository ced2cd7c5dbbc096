"""Acks written by the source when Spark has completed a batch (``ackMode`` batch or cumulative)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_cursor_source.consumer.assignment import PartitionAssignment
from spark_cursor_source.consumer.pending import PendingRedeliveries
from spark_cursor_source.consumer.replays import ReplayPlanner
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.consumer.unread import UnreadMessages
from spark_cursor_source.core.batch import BatchPlan, SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, EndUpTo, Marker, Release
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.replay import orphaned_leases
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.tracker import DEADLINE_GRAIN_MS
from spark_cursor_source.options.source import AckMode, SourceOptions


class SourceAcks:
    """Computes the acks of a completed batch, and once per run those that dead runs did not write.

    Messages that are not due are released if no task has read them, because no task has released them.
    """

    def __init__(
        self,
        options: SourceOptions,
        assignment: PartitionAssignment,
        run: TrackerSession,
        pending: PendingRedeliveries,
        replays: ReplayPlanner,
        unread: UnreadMessages,
    ) -> None:
        self._mode, self._is_sole = options.ack_mode, options.subscription_type.is_sole
        self._assignment, self._run, self._pending, self._replays = assignment, run, pending, replays
        self._unread = unread
        self._looked_back = False  # True after the check for leases of dead runs
        self._apart: set[Cell] = set()  # cells with messages that a cumulative ack must not end

    def markers(self, batch: BatchPlan | None, end: SourceOffset, *, has_checkpoint: bool) -> list[Marker]:
        """Returns the markers to write when the batch in progress, if any, ends at ``end``.

        ``has_checkpoint`` is False if the query had no checkpoint, so that no earlier batch was committed.
        """
        if self._mode is AckMode.INDIVIDUAL:
            return []
        markers = self._ends_of_the_dead(batch, end if has_checkpoint else None, end)
        releases = self._unread.releases() if batch else []
        # The releases are also removed from the Ends. Marker order alone does not protect them, because a
        # Release has no effect after its lease has expired.
        early = _offsets_of(releases)
        markers += releases
        for delivery in batch.deliveries if batch else ():
            if self._mode is AckMode.BATCH or delivery.cell in self._apart or delivery.cell in early:
                cell, offsets = delivery.cell, delivery.offsets - early.get(delivery.cell, EMPTY)
                if offsets:
                    markers.append(End(cell=cell, offsets=offsets, run_id=self._run.id_of(cell)))
        if batch and self._mode is AckMode.CUMULATIVE:
            # A cumulative ack would also end other outstanding messages, so such cells are excluded.
            cells = {self._assignment.cell(*tp): position for tp, position in self._assignment.next.items()}
            markers += [
                EndUpTo(cell=cell, position=position, run_id=self._run.id_of(cell))
                for cell, position in cells.items()
                if position and cell not in self._apart and cell not in early
            ]
        return markers

    def _ends_of_the_dead(
        self, batch: BatchPlan | None, committed: SourceOffset | None, end: SourceOffset
    ) -> list[Marker]:
        """Returns, once per run, acks of messages that dead runs left leased in committed batches.

        Spark has committed these batches. The reads of those runs' tasks are unknown, so the headers of all
        these messages are examined.
        """
        if self._looked_back or not self._run.answers or not self._is_sole:
            # In a shared subscription, leases of dead runs cannot be distinguished from leases of live
            # members.
            return []
        self._looked_back = True
        delivered: dict[Cell, OffsetSet] = {}
        for delivery in batch.deliveries if batch else ():
            delivered[delivery.cell] = delivered.get(delivery.cell, EMPTY) | delivery.offsets
        left = orphaned_leases(
            self._run.answers,
            run_id=self._run.run_id,
            end=committed,
            later=[record.redeliver for record in self._pending.after(end)],
            replayed=self._replays.held,
            delivered=delivered,
        )
        self._apart |= left.unsure
        releases: list[Release] = []
        for started_ms, slices in sorted(self._leased(left.committed).items()):
            # Judged by the time of the Start marker: a message that became due later was not delivered
            # either.
            releases += self._unread.not_due(slices, started_ms - DEADLINE_GRAIN_MS)
        early = _offsets_of(releases)
        ends = [
            End(cell=cell, offsets=rest)
            for cell, offsets in left.committed.items()
            if (rest := offsets - early.get(cell, EMPTY))
        ]
        return [*releases, *ends]

    def _leased(self, offsets: Mapping[Cell, OffsetSet]) -> dict[int, list[Slice]]:
        """Returns the leased part of the offsets as slices, by the time of their Start markers."""
        found: dict[int, list[Slice]] = {}
        for cell, wanted in offsets.items():
            for lease, held in self._run.answers[cell].leases:
                if some := held & wanted:
                    piece = Slice(
                        topic=cell.topic,
                        partition=cell.partition,
                        offsets=some,
                        delivery_count=lease.delivery_count,
                    )
                    found.setdefault(lease.started_ms, []).append(piece)
        return found


def _offsets_of(releases: Iterable[Release]) -> dict[Cell, OffsetSet]:
    found: dict[Cell, OffsetSet] = {}
    for one in releases:
        found[one.cell] = found.get(one.cell, EMPTY) | one.offsets
    return found
