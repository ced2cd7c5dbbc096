"""Redeliveries that the tracker has announced to one run."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from spark_cursor_source.consumer.assignment import Assignment
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.core.batch import (
    Delivery,
    RedeliveryRecord,
    SourceOffset,
    StartedDeliveries,
    redelivered_between,
)
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.redeliveries import RedeliveryLog
from spark_cursor_source.topics.redelivery_partitions import RedeliveryPartitions

log = logging.getLogger(__name__)


class PendingRedeliveries:
    """Announcements addressed to one run, kept until they are delivered. Others are dropped. Not thread-safe.

    An announcement is stale if this run has started a later delivery of the same messages. Stale
    announcements are dropped. The progress of a query through the list is a part of Spark's offsets
    (:class:`PlannedRedeliveries`). A plain client takes announcements off the list
    (:class:`ClientRedeliveries`).
    """

    def __init__(
        self, log: RedeliveryLog, places: RedeliveryPartitions, assignment: Assignment, run: TrackerSession
    ) -> None:
        self._log, self._places, self._assignment, self._run = log, places, assignment, run
        self._records: list[RedeliveryRecord] = []
        self._read_to: dict[int, int] | None = None
        self.topic_id = places.topic_id
        #: partitions of the redeliveries topic
        self.partitions = places.all
        self.taken = StartedDeliveries()  #: deliveries started by this run since it greeted their cells
        self._run_ids: dict[Cell, str] = {}  # run id of the deliveries in `taken`, by cell

    def count_partitions(self) -> None:
        """Detects partitions added to the redeliveries topic. They are read from their beginning.

        Raises:
            RedeliveriesTopicRecreated: the topic was deleted and created again.
        """
        self._places.count()

    def ends(self) -> dict[int, int]:
        """Returns the current end offsets of the redeliveries topic, by partition."""
        return self._places.ends()

    def begin(self, positions: Mapping[int, int]) -> None:
        """Sets the read positions to the topic's ends before this run's Hello.

        Earlier announcements are for other runs.
        """
        self._read_to = dict(positions)

    @property
    def has_begun(self) -> bool:
        """True after :meth:`begin`."""
        return self._read_to is not None

    def is_behind(self, ends: Mapping[int, int]) -> bool:
        """True if there are records below ``ends`` that were not read."""
        read_to = self._read_to or {}
        return any(end > read_to.get(number, 0) for number, end in ends.items())

    def read(self, ends: Mapping[int, int]) -> None:
        """Reads the announcements below ``ends``, and drops those of cells that this run has lost.

        The tracker announces the messages of a lost cell again to its next owner.
        """
        read_to = self._read_to or {}
        self._records = [record for record in self._records if self._is_ours(record.redeliver)]
        for record in self._log.between(read_to, ends):
            redeliver = record.redeliver
            if not self._is_ours(redeliver):
                continue
            self._forget_earlier(redeliver.cell)
            if self.taken.fresh(redeliver.cell, redeliver.offsets, delivery_count=redeliver.delivery_count):
                self._records.append(record)
        self._read_to = {number: max(end, read_to.get(number, 0)) for number, end in ends.items()}
        self._log.discard(self._read_to)

    def started(self, deliveries: Iterable[Delivery]) -> None:
        """Records started deliveries. Announcements of earlier deliveries of their messages are stale."""
        for delivery in deliveries:
            self._forget_earlier(delivery.cell)
            self.taken.add(delivery)

    def forget_ended(self, cells: Iterable[Cell], cursors: CursorTable) -> None:
        """Forgets started deliveries below the mark-delete position of these cells' cursors."""
        for cell in cells:
            cursor = cursors.get(cell)
            if cursor is not None and cursor.owner == self._run.id_of(cell):
                self._forget_earlier(cell)
                self.taken.forget_below(cell, cursor.mark_delete + 1)

    @property
    def kept(self) -> int:
        """Number of announcements in memory."""
        return len(self._records) + len(self._log)

    def close(self) -> None:
        """Closes the consumer."""
        self._log.close()

    def _forget_earlier(self, cell: Cell) -> None:
        """Forgets deliveries from before the cell's last Hello, which is written under a new run id.

        What the tracker announces after that Hello is never stale because of them. After a Seek back, the
        same message may have the same delivery count again.
        """
        run_id = self._run.id_of(cell)
        if self._run_ids.setdefault(cell, run_id) != run_id:
            self._run_ids[cell] = run_id
            self.taken.forget(cell)

    def _is_ours(self, redeliver: Redeliver) -> bool:
        return redeliver.run_id == self._run.id_of(redeliver.cell) and self._assignment.owns(redeliver.cell)


class PlannedRedeliveries(PendingRedeliveries):
    """Announcements of a query. A batch holds what its offsets say, so a later run plans the same batch."""

    _told = False  # True after the warning about a recreated topic

    def here(self, offset: SourceOffset) -> SourceOffset:
        """Returns the offset with redeliveries positions that are valid for the present topic.

        If the redeliveries topic was created again, reading starts at its beginning. Announcements to this
        run come after its Hello, so the previous topic holds none that this run needs. What dead runs have
        leased is left to their leases, because a replay does not find the redeliveries of its batch.
        """
        if offset.redeliveries_id in (None, self.topic_id):
            return offset
        if not self._told:
            self._told = True
            log.warning(
                "The redeliveries topic was recreated and is read from its beginning. "
                "event=redeliveries_topic_recreated topic=%s was=%s now=%s",
                self._places.topic,
                offset.redeliveries_id,
                self.topic_id,
            )
        anew = replace(offset, redeliveries={}, suspects={}, cuts={}, suspect_cuts={})
        return replace(anew, redeliveries_id=self.topic_id, runs=())

    def pending(self, start: SourceOffset, ends: Mapping[int, int]) -> Sequence[RedeliveryRecord]:
        """Returns announcements below ``ends`` that no batch contains yet."""
        lanes = start.lane(alone=False), start.lane(alone=True)
        self._records = [record for record in self._records if lanes[record.redeliver.alone].rest(record)]
        self.read(ends)
        return self._records

    def between(self, start: SourceOffset, end: SourceOffset) -> list[Redeliver]:
        """Returns the redeliveries of one batch of this run."""
        records = redelivered_between(self._records, start, end)
        return [record.redeliver for record in records if self._is_ours(record.redeliver)]

    def replayed(self, start: SourceOffset, end: SourceOffset) -> list[RedeliveryRecord]:
        """Returns the redeliveries in a batch of an earlier run: the batch's partitions, all run ids."""
        ends = {number: max(at, end.suspects.get(number, at)) for number, at in end.redeliveries.items()}
        for number in end.cuts.keys() | end.suspect_cuts.keys():
            ends[number] += 1  # the batch took a part of the record at the end
        records = self._log.scan(_first(start), ends, lambda one: one.cell.topic_partition in end.queue)
        return redelivered_between(records, start, end)

    def after(self, end: SourceOffset) -> list[RedeliveryRecord]:
        """Returns announcements after ``end``: this query's partitions, all run ids."""
        now = SourceOffset(queue={}, redeliveries=self.ends())
        records = self._log.scan(_first(end), now.redeliveries, self._is_of_our_cell)
        return redelivered_between(records, end, now)

    def _is_of_our_cell(self, redeliver: Redeliver) -> bool:
        return self._assignment.owns(redeliver.cell)


class ClientRedeliveries(PendingRedeliveries):
    """Announcements to a plain client, in arrival order. A client streams: what it takes leaves the list."""

    def waiting(self, paused: Collection[int], *, alone: bool) -> int:
        """Number of waiting messages in partitions that are not paused: suspects (``alone``) or others."""
        return sum(len(record.redeliver.offsets) for record in self._ready(paused, alone))

    def take(self, most: int, paused: Collection[int], *, alone: bool) -> RedeliveryRecord | None:
        """Removes and returns the next announcement, with at most ``most`` messages; None if none waits.

        ``alone`` selects suspects or others. Partitions in ``paused`` are skipped.
        """
        while most and (record := next(self._ready(paused, alone), None)) is not None:
            self._records.remove(record)
            redeliver = record.redeliver
            fresh = self.taken.fresh(
                redeliver.cell, redeliver.offsets, delivery_count=redeliver.delivery_count
            )
            if not fresh:
                continue
            piece = next(fresh.chunks(most))
            if len(piece) < len(fresh):
                self.put_back(_with(record, fresh - piece))
            return _with(record, piece)
        return None

    def put_back(self, record: RedeliveryRecord) -> None:
        """Puts an announcement back at the front of the list."""
        self._records.insert(0, record)

    def _ready(self, paused: Collection[int], alone: bool) -> Iterator[RedeliveryRecord]:
        for record in self._records:
            redeliver = record.redeliver
            if (
                redeliver.alone == alone
                and redeliver.cell.partition not in paused
                and self._is_ours(redeliver)
            ):
                yield record


def _first(offset: SourceOffset) -> dict[int, int]:
    """Returns the first record not taken yet, by partition: the smaller position of both lanes."""
    return {number: min(at, offset.suspects.get(number, at)) for number, at in offset.redeliveries.items()}


def _with(record: RedeliveryRecord, offsets: OffsetSet) -> RedeliveryRecord:
    return replace(record, redeliver=replace(record.redeliver, offsets=offsets))
