"""The redeliveries that the tracker has addressed to one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_cursor_source.core.planning import BatchPlan, RedeliveryRecord, SourceOffset, Taken
from spark_cursor_source.core.source_options import SourceOptions
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.redeliveries import RedeliveryTail
from spark_cursor_source.kafka.run import Run
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.spark.holdings import Holdings


class Inbox:
    """What is announced to this run, kept until a batch holds it.

    An announcement of an earlier delivery than a batch of this run has started is stale, and not kept.
    """

    def __init__(
        self, options: SourceOptions, topics: Topics, partitions: range, holdings: Holdings, run: Run
    ) -> None:
        self._topics, self._holdings, self._run = topics, holdings, run
        self._tail = RedeliveryTail(client_config(options.kafka, "consumer"), options.redeliveries_topic)
        self._topic = options.redeliveries_topic
        #: of the redeliveries topic
        self.partitions = [(self._topic, partition) for partition in partitions]
        self._pending: list[RedeliveryRecord] = []
        self._scanned: dict[int, int] = {}
        self.taken = Taken()  #: by the batches of this run

    def count_partitions(self) -> None:
        """Read partitions that the redeliveries topic was given since, from their beginning."""
        topic = self._topic
        count = self._topics.describe([topic])[topic].partitions
        self.partitions += [(topic, number) for number in range(len(self.partitions), count)]

    def begin(self, start: SourceOffset) -> None:
        """Read on from where the query's first batch begins."""
        self._scanned = dict(start.redeliveries)

    def ends(self) -> dict[int, int]:
        """The ends of the redeliveries topic, as of now."""
        ends = self._topics.end_offsets(self.partitions, committed=True)
        return {partition: at for (_, partition), at in ends.items()}

    def pending(self, start: SourceOffset, ends: Mapping[int, int]) -> Sequence[RedeliveryRecord]:
        """What no batch has held, of what was announced up to the ends."""
        self._tail.poll(ends)
        self._pending = [
            one
            for one in self._pending
            if one.offset >= start.redeliveries.get(one.partition, 0) and self._is_ours(one.redeliver)
        ]
        for record in self._tail.between(self._scanned, ends):
            redeliver = record.redeliver
            if not self._is_ours(redeliver):
                continue
            if self.taken.fresh(redeliver.cell, redeliver.offsets, delivery_count=redeliver.delivery_count):
                self._pending.append(record)
        self._scanned = dict(ends)
        return self._pending

    def between(self, start: SourceOffset, end: SourceOffset) -> list[RedeliveryRecord]:
        """Everything that was announced there, to any run."""
        return self._tail.between(start.redeliveries, end.redeliveries)

    def after(self, end: SourceOffset) -> list[RedeliveryRecord]:
        """Everything that was announced since, to any run."""
        return self._tail.between(end.redeliveries, self.ends())

    def ours(self, records: Sequence[RedeliveryRecord]) -> list[Redeliver]:
        """What of them is for this run."""
        return [record.redeliver for record in records if self._is_ours(record.redeliver)]

    def planned(self, batch: BatchPlan, end: SourceOffset) -> None:
        """A batch that ends here was started."""
        for delivery in batch.deliveries:
            self.taken.add(delivery)
        self._tail.discard(end.redeliveries)

    def close(self) -> None:
        """End the consumer."""
        self._tail.close()

    def _is_ours(self, redeliver: Redeliver) -> bool:
        cell = redeliver.cell
        return redeliver.run_id == self._run.id_of(cell) and self._holdings.holds(cell)
