"""Redeliveries that the tracker has announced to one run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark_cursor_source.consumer.assignment import PartitionAssignment
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.core.batch import (
    BatchPlan,
    RedeliveryRecord,
    SourceOffset,
    StartedDeliveries,
    redelivered_between,
)
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.redeliveries import RedeliveryLog
from spark_cursor_source.topics.redelivery_partitions import RedeliveryPartitions

log = logging.getLogger(__name__)


class PendingRedeliveries:
    """Announcements addressed to this run, kept until a batch contains them. Others are dropped.

    An announcement is stale if this run has started a later delivery of the same messages. Stale
    announcements are dropped.
    """

    def __init__(
        self,
        options: SourceOptions,
        topics: ClusterAdmin,
        assignment: PartitionAssignment,
        run: TrackerSession,
    ) -> None:
        self._topics, self._assignment, self._run = topics, assignment, run
        self._tail = RedeliveryLog(client_config(options.kafka, "consumer"), options.redeliveries_topic)
        self._topic = options.redeliveries_topic
        self._places = RedeliveryPartitions(topics, self._topic)
        self.topic_id = self._places.topic_id
        self._told = False
        #: partitions of the redeliveries topic
        self.partitions = self._places.all
        self._pending: list[RedeliveryRecord] = []
        self._scanned: dict[int, int] = {}
        self.taken = StartedDeliveries()  #: deliveries started by the batches of this run

    def count_partitions(self) -> None:
        """Detects partitions added to the redeliveries topic. They are read from their beginning.

        Raises:
            RedeliveriesTopicRecreated: the topic was deleted and created again.
        """
        self._places.count()

    def here(self, offset: SourceOffset) -> SourceOffset:
        """Returns the offset with redeliveries positions that are valid for the present topic.

        If the redeliveries topic was created again, reading starts at its beginning. Announcements to this
        run come after its Hello, so the previous topic holds none that this run needs.
        """
        if offset.redeliveries_id in (None, self.topic_id):
            return offset
        if not self._told:
            self._told = True
            log.warning(
                "The redeliveries topic was recreated and is read from its beginning. "
                "event=redeliveries_topic_recreated topic=%s was=%s now=%s",
                self._topic,
                offset.redeliveries_id,
                self.topic_id,
            )
        anew = replace(offset, redeliveries={}, suspects={}, cuts={}, suspect_cuts={})
        return replace(anew, redeliveries_id=self.topic_id)

    def begin(self, positions: Mapping[int, int]) -> None:
        """Sets the read positions to the topic's ends before this run's Hello.

        Earlier announcements are for other runs.
        """
        self._scanned = dict(positions)

    def ends(self) -> dict[int, int]:
        """Returns the current end offsets of the redeliveries topic, by partition."""
        ends = self._topics.end_offsets(self.partitions, committed=True)
        return {partition: at for (_, partition), at in ends.items()}

    def pending(self, start: SourceOffset, ends: Mapping[int, int]) -> Sequence[RedeliveryRecord]:
        """Returns announcements below ``ends`` that no batch contains yet."""
        lanes = start.lane(alone=False), start.lane(alone=True)
        self._pending = [
            one
            for one in self._pending
            if self._is_ours(one.redeliver) and lanes[one.redeliver.alone].rest(one)
        ]
        for record in self._tail.between(self._scanned, ends):
            redeliver = record.redeliver
            if not self._is_ours(redeliver):
                continue
            if self.taken.fresh(redeliver.cell, redeliver.offsets, delivery_count=redeliver.delivery_count):
                self._pending.append(record)
        self._scanned = {number: max(end, self._scanned.get(number, 0)) for number, end in ends.items()}
        self._tail.discard(self._scanned)
        return self._pending

    def between(self, start: SourceOffset, end: SourceOffset) -> list[Redeliver]:
        """Returns the redeliveries of one batch of this run."""
        found = redelivered_between(self._pending, start, end)
        return [one.redeliver for one in found if self._is_ours(one.redeliver)]

    def replayed(self, start: SourceOffset, end: SourceOffset) -> list[RedeliveryRecord]:
        """Returns the redeliveries in a batch of an earlier run: this query's partitions, all run ids."""
        ends = {number: max(at, end.suspects.get(number, at)) for number, at in end.redeliveries.items()}
        for number in end.cuts.keys() | end.suspect_cuts.keys():
            ends[number] += 1  # the batch took a part of the record at the end
        found = self._tail.scan(_first(start), ends, self._is_of_our_cells)
        return redelivered_between(found, start, end)

    def after(self, end: SourceOffset) -> list[RedeliveryRecord]:
        """Returns announcements after ``end``: this query's partitions, all run ids."""
        now = SourceOffset(queue={}, redeliveries=self.ends())
        found = self._tail.scan(_first(end), now.redeliveries, self._is_of_our_cells)
        return redelivered_between(found, end, now)

    def planned(self, batch: BatchPlan) -> None:
        """Records the deliveries of a started batch."""
        for delivery in batch.deliveries:
            self.taken.add(delivery)

    def forget_ended(self, cursors: CursorTable) -> None:
        """Forgets started deliveries below the mark-delete position of this run's cursors."""
        for topic, partition in self._assignment.next:
            cell = self._assignment.cell(topic, partition)
            cursor = cursors.get(cell)
            if cursor is not None and cursor.owner == self._run.id_of(cell):
                self.taken.forget_below(cell, cursor.mark_delete + 1)

    @property
    def kept(self) -> int:
        """Number of announcements in memory."""
        return len(self._pending) + len(self._tail)

    def close(self) -> None:
        """Closes the consumer."""
        self._tail.close()

    def _is_ours(self, redeliver: Redeliver) -> bool:
        return redeliver.run_id == self._run.id_of(redeliver.cell) and self._is_of_our_cells(redeliver)

    def _is_of_our_cells(self, redeliver: Redeliver) -> bool:
        return self._assignment.owns(redeliver.cell)


def _first(offset: SourceOffset) -> dict[int, int]:
    """Returns the first record not taken yet, by partition: the smaller position of both lanes."""
    return {number: min(at, offset.suspects.get(number, at)) for number, at in offset.redeliveries.items()}
