"""The redeliveries that the tracker has addressed to one run."""

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
    """What is announced to this run, kept until a batch holds it. What is for others is dropped.

    An announcement of an earlier delivery than a batch of this run has started is stale, and not kept.
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
        #: of the redeliveries topic
        self.partitions = self._places.all
        self._pending: list[RedeliveryRecord] = []
        self._scanned: dict[int, int] = {}
        self.taken = StartedDeliveries()  #: by the batches of this run

    def count_partitions(self) -> None:
        """Read partitions that the redeliveries topic was given since, from their beginning.

        Raises:
            RedeliveriesTopicRecreated: it is another topic by now.
        """
        self._places.count()

    def here(self, offset: SourceOffset) -> SourceOffset:
        """The offset, where its redeliveries positions are of this topic; else one that begins it anew.

        What is announced to this run comes after its Hello, so nothing that it needs is in the other topic.
        """
        if offset.redeliveries_id in (None, self.topic_id):
            return offset
        if not self._told:
            self._told = True
            log.warning(
                "redeliveries_topic_recreated topic=%s was=%s now=%s: it is read from its beginning",
                self._topic,
                offset.redeliveries_id,
                self.topic_id,
            )
        anew = replace(offset, redeliveries={}, suspects={}, cuts={}, suspect_cuts={})
        return replace(anew, redeliveries_id=self.topic_id)

    def begin(self, positions: Mapping[int, int]) -> None:
        """Read on from where the topic ended before this run said Hello: nothing before that is for it."""
        self._scanned = dict(positions)

    def ends(self) -> dict[int, int]:
        """The ends of the redeliveries topic, as of now."""
        ends = self._topics.end_offsets(self.partitions, committed=True)
        return {partition: at for (_, partition), at in ends.items()}

    def pending(self, start: SourceOffset, ends: Mapping[int, int]) -> Sequence[RedeliveryRecord]:
        """What no batch has held, of what was announced up to the ends."""
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
        """What of it a batch of this run holds."""
        found = redelivered_between(self._pending, start, end)
        return [one.redeliver for one in found if self._is_ours(one.redeliver)]

    def replayed(self, start: SourceOffset, end: SourceOffset) -> list[RedeliveryRecord]:
        """What a batch of a run before this one held of this query's partitions, for whatever run it was."""
        ends = {number: max(at, end.suspects.get(number, at)) for number, at in end.redeliveries.items()}
        for number in end.cuts.keys() | end.suspect_cuts.keys():
            ends[number] += 1  # a part of the record at the end was taken
        found = self._tail.scan(_first(start), ends, self._is_of_our_cells)
        return redelivered_between(found, start, end)

    def after(self, end: SourceOffset) -> list[RedeliveryRecord]:
        """What was announced since of this query's partitions, to whatever run it was."""
        now = SourceOffset(queue={}, redeliveries=self.ends())
        found = self._tail.scan(_first(end), now.redeliveries, self._is_of_our_cells)
        return redelivered_between(found, end, now)

    def planned(self, batch: BatchPlan) -> None:
        """A batch was started."""
        for delivery in batch.deliveries:
            self.taken.add(delivery)

    def forget_ended(self, cursors: CursorTable) -> None:
        """What has ended by the cursors is not to be known any more, nor to be delivered."""
        for topic, partition in self._assignment.next:
            cell = self._assignment.cell(topic, partition)
            cursor = cursors.get(cell)
            if cursor is not None and cursor.owner == self._run.id_of(cell):
                self.taken.forget_below(cell, cursor.mark_delete + 1)

    @property
    def kept(self) -> int:
        """How many announcements are in memory."""
        return len(self._pending) + len(self._tail)

    def close(self) -> None:
        """End the consumer."""
        self._tail.close()

    def _is_ours(self, redeliver: Redeliver) -> bool:
        return redeliver.run_id == self._run.id_of(redeliver.cell) and self._is_of_our_cells(redeliver)

    def _is_of_our_cells(self, redeliver: Redeliver) -> bool:
        return self._assignment.owns(redeliver.cell)


def _first(offset: SourceOffset) -> dict[int, int]:
    """The first records that are not taken, of whichever kind."""
    return {number: min(at, offset.suspects.get(number, at)) for number, at in offset.redeliveries.items()}
