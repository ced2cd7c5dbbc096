"""Messages in the unread part of a batch that are not due, or that wait behind another one.

A task holds such messages back when it reads them. If the source acks, it acks the whole committed batch,
including messages that no task read. For those, the planner reads headers and keys itself before it acks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from spark_cursor_source.consumer.batch_planner import PlannedBatch
from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.core.cell import Cell, control_partition
from spark_cursor_source.core.key_order import NO_KEYS, BlockedKeys
from spark_cursor_source.core.lease_groups import START_GRAIN_MS
from spark_cursor_source.core.marker import Block, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.read_report import ReportTo
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.rights import WRITE
from spark_cursor_source.options.source import AckMode, Ordering, SourceOptions
from spark_cursor_source.topics.delayed import DelayFilter
from spark_cursor_source.topics.key_order import OrderFilter
from spark_cursor_source.topics.queue import arrow_batches
from spark_cursor_source.topics.read_reports import ReportReader
from spark_cursor_source.topics.rescue import Rescue

log = logging.getLogger(__name__)


class UnreadMessages:
    """Tracks which tasks have read all their messages, and reads the messages of the other tasks."""

    def __init__(self, options: SourceOptions, topics: ClusterAdmin, run_id: str, *, partitions: int) -> None:
        self._options, self._topics, self._run_id = options, topics, run_id
        self._topic = options.redeliveries_topic
        holds_back = options.delayed_delivery or options.ordering is Ordering.KEY
        self._is_wanted = holds_back and options.ack_mode is not AckMode.INDIVIDUAL
        self._is_delayed = options.delayed_delivery
        self._reader: ReportReader | None = None
        self._batches = 0
        self._read_up_to = 0  # next offset to read in the partition of this run's reports
        self._partition = control_partition(run_id.encode(), partitions)
        if self._is_wanted:
            self._open()

    def _open(self) -> None:
        if missing := self._topics.missing_rights({self._topic: (WRITE,)}):
            log.info(
                "Tasks cannot report the messages that they read, so the driver reads each batch "
                "again. event=reads_not_reported missing=%s",
                missing,
            )
            return
        self._reader = ReportReader(client_config(self._options.kafka, "consumer"), self._topic)
        self._read_up_to = self._end()

    def report_to(self, tasks: Sequence[tuple[Slice, ...]], *, partitions: int) -> ReportTo | None:
        """Returns the destination of the first task's report for a new batch; None if no task reports.

        ``partitions`` is the partition count of the redeliveries topic.
        """
        if self._reader is None or not tasks:
            return None
        self._batches += 1
        batch = f"{self._run_id}#{self._batches}"
        return ReportTo(batch=batch, task=0, partition=self._partition, partitions=partitions)

    def releases(self, batch: PlannedBatch) -> list[Release | Block]:
        """Returns the markers that hold back unread messages of a completed batch.

        Raises the errors of reading the queue topics.
        """
        if not self._is_wanted:
            return []
        reported = self._reported(batch.report_to)
        # Tasks that share the keys of a slice need only one read of it.
        unread = dict.fromkeys(
            replace(piece, share=None)
            for number, slices in enumerate(batch.tasks)
            if number not in reported
            for piece in slices
        )
        now_ms = batch.now_ms if self._is_delayed else None
        if self._options.ordering is not Ordering.KEY:
            return self._held_back(list(unread), now_ms, None)
        of_places: dict[TopicPartition, list[Slice]] = {}
        for piece in unread:
            of_places.setdefault((piece.topic, piece.partition), []).append(piece)
        blocked = batch.blocked or {}
        return [
            marker
            for place, pieces in of_places.items()
            for marker in self._held_back(pieces, now_ms, blocked.get(place, NO_KEYS))
        ]

    def of_dead_runs(self, slices: Iterable[Slice], started_ms: int) -> list[Release | Block]:
        """Returns the markers that release messages that were not due when a dead run leased them.

        ``started_ms`` is the time of their leases. The dead run may have held them back even if this run
        ignores delivery times. This run then releases them for immediate delivery.
        """
        # A message that became due later was not delivered either.
        found = self._held_back(list(slices), started_ms - START_GRAIN_MS, None)
        if self._is_delayed:
            return found
        return [replace(one, due_ms=started_ms) if isinstance(one, Release) else one for one in found]

    def _held_back(
        self, pieces: list[Slice], now_ms: int | None, blocked: BlockedKeys | None
    ) -> list[Release | Block]:
        """Returns the markers of messages that are not due at ``now_ms``, or that wait for another message.

        With ``blocked``, the slices are of one partition, in offset order.
        """
        if not pieces:
            return []
        releases: list[Release | Block] = []

        def on_blocked(piece: Slice, offsets: OffsetSet, behind: tuple[int, ...]) -> None:
            count = piece.delivery_count
            releases.append(
                Block(cell=self._cell(piece), offsets=offsets, behind=behind, delivery_count=count)
            )

        def on_early(piece: Slice, offsets: OffsetSet, due_ms: int) -> None:
            cell = self._cell(piece)
            releases.append(
                Release(cell=cell, offsets=offsets, delivery_count=piece.delivery_count, due_ms=due_ms)
            )

        config = client_config(self._options.kafka, "consumer")
        config["isolation.level"] = self._options.isolation.value
        queue_id = self._options.queue_id
        rows = arrow_batches(
            config,
            pieces,
            include_headers=False,
            queue_id=None if queue_id is None else queue_id.encode(),
            on_missing=_ignore,
            hold_back=None if now_ms is None else DelayFilter(now_ms=now_ms, on_early=on_early),
            order=None if blocked is None else OrderFilter(blocked=blocked, on_blocked=on_blocked),
            rescue=Rescue.of(self._options),
            skips_deleted=not self._options.fail_on_data_loss,
        )
        for _ in rows:  # only the headers matter; at most one batch of rows is in memory
            pass
        return releases

    def _cell(self, piece: Slice) -> Cell:
        return Cell(subscription=self._options.subscription, topic=piece.topic, partition=piece.partition)

    def close(self) -> None:
        """Closes the consumer of reports."""
        if self._reader is not None:
            self._reader.close()

    def _reported(self, to: ReportTo | None) -> frozenset[int]:
        if to is None or self._reader is None:
            return frozenset()
        start, self._read_up_to = self._read_up_to, self._end()
        return self._reader.tasks_of(to.batch, to.partition, start, self._read_up_to)

    def _end(self) -> int:
        place = self._topic, self._partition
        return self._topics.end_offsets([place], committed=False)[place]


def _ignore(*_: object) -> None:
    """Ignores missing offsets, because the End marker of the batch covers them."""
