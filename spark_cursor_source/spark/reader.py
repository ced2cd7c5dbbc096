"""Stream reader of the source. Spark pickles the reader, so its pickled state is only the options."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_cursor_source.consumer.batch_planner import BatchPlanner
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.key_order import NO_KEYS, BlockedKeys
from spark_cursor_source.core.marker import Block, End, Marker, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.read_report import ReportTo
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.errors import InvalidOption
from spark_cursor_source.interop.planner import planner_for
from spark_cursor_source.kafka.collector import exempt_loaded_modules
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.source import AckMode, Ordering, SourceOptions
from spark_cursor_source.options.tracker_place import TrackerPlace
from spark_cursor_source.topics.data_loss import report_loss
from spark_cursor_source.topics.delayed import DelayFilter
from spark_cursor_source.topics.key_order import OrderFilter
from spark_cursor_source.topics.markers import write_markers
from spark_cursor_source.topics.queue import Missing, OnMissing, arrow_batches
from spark_cursor_source.topics.read_reports import report_read
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.wire import offset_json

if TYPE_CHECKING:
    from spark_cursor_source.tracker.embedded import EmbeddedTracker

log = logging.getLogger(__name__)
UNLIMITED = 2**62  #: row limit that stands for an unlimited batch


@dataclass(frozen=True)
class LeasedSlices(InputPartition):
    """Input of one task: slices whose Start is already stored."""

    slices: tuple[Slice, ...]
    markers_partitions: int
    now_ms: int  #: broker time of the plan; every read of the batch compares ``deliverAt`` with this time
    blocked: BlockedKeys = NO_KEYS  #: with ordering=key: what blocks messages of the task
    report_to: ReportTo | None = None  #: target of the task's read report, or None if no report is needed


class CursorqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of ``spark.readStream.format("cursorq")``.

    On the driver, the reader delegates to a :class:`BatchPlanner`, created on first use. On executors, the
    reader reads slices.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner: BatchPlanner | None = None
        self._tracker: EmbeddedTracker | None = None
        self._planned: tuple[object, Sequence[InputPartition]] | None = None  # the last batch, and its tasks

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_planner": None, "_tracker": None, "_planned": None}

    def initialOffset(self) -> dict[str, Any]:
        return self._encode(self._driver().initial_offset())

    def getDefaultReadLimit(self) -> ReadLimit:
        # Not ReadAllAvailable: Spark then passes that limit only for Trigger.Once, which latestOffset checks.
        most = self._options.max_offsets_per_trigger
        return ReadMaxRows(UNLIMITED if most is None else most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        once = isinstance(limit, ReadAllAvailable)
        if once and self._options.ack_mode is not AckMode.INDIVIDUAL:
            raise InvalidOption(
                "ackMode",
                self._options.ack_mode.value,
                "with Trigger.Once the query ends before the source can ack its batch",
                "use trigger(availableNow=True), or a sink that acks",
            )
        most = limit.max_rows if isinstance(limit, ReadMaxRows) and limit.max_rows < UNLIMITED else None
        begin = self._decode(start)
        if once:
            # The only batch of the query waits for its partitions, and for no more messages.
            self._driver().bound_by_now(one_batch=True)
        end = self._driver().latest_offset(begin, max_offsets=most)
        return start if end is begin else self._encode(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the ``latestOffset`` of Spark's progress reports. Spark never reads the value back."""
        if self._planner is None:
            return None
        status = self._planner.status()
        shown = offset_json.encode(status.latest) | {"subscription": self._options.subscription}
        if status.behind:
            total = sum(status.behind)
            spread = {"min": min(status.behind), "max": max(status.behind)}
            shown["offsetsBehindLatest"] = {"sum": total, **spread, "avg": total / len(status.behind)}
        most, outstanding = status.limits.max_outstanding, status.outstanding
        if outstanding is not None:
            shown["outstanding"] = outstanding
        if most is not None and outstanding is not None:
            shown["maxOutstanding"] = most
            shown["maxOutstandingReached"] = outstanding >= most
        if status.limits.rate is not None:
            shown["rateLimit"] = status.limits.rate
        if status.oldest_outstanding_ms is not None:
            shown["oldestOutstandingMs"] = status.oldest_outstanding_ms
        if status.tracker_silent_ms is not None:
            shown["trackerSilentMs"] = status.tracker_silent_ms
        return shown

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        batch = self._decode(start), self._decode(end)
        if self._planned is not None and self._planned[0] == batch:
            # A query that uses the stream twice, as in a union of two filters, requests each batch twice.
            return self._planned[1]
        planned = self._driver().plan(*batch)
        to, blocked = planned.report_to, planned.blocked or {}
        tasks = [
            LeasedSlices(
                slices,
                planned.markers_partitions,
                planned.now_ms,
                blocked.get((slices[0].topic, slices[0].partition), NO_KEYS),
                None if to is None else replace(to, task=number),
            )
            for number, slices in enumerate(planned.tasks)
        ]
        self._planned = batch, tasks
        return tasks

    def commit(self, end: dict[str, Any]) -> None:
        position = self._decode(end)
        self._driver().completed(position)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
        if self._tracker is not None:
            self._tracker.release()

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver().bound_by_now()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LeasedSlices):
            raise TypeError(f"a {type(partition).__name__} is no partition of cursorq")
        if TaskContext.get() is not None:
            exempt_loaded_modules()
        options = self._options
        if options.marker_version is MarkerVersion.V1:
            # The planner filtered queue ids when it wrote the Starts. The tracker redelivers messages from
            # its own copies, so missing records need no End.
            yield from self._rows(partition, None, _log_missing)
            return
        undelivered: list[Marker] = []

        def on_missing(piece: Slice, offsets: OffsetSet, why: Missing) -> None:
            if why in (Missing.RETENTION, Missing.TOPIC):
                report_loss(piece.topic, piece.partition, offsets, fail=options.fail_on_data_loss)
            if why is Missing.TOPIC:
                return  # an End could end a message of a topic that is created with this name
            undelivered.append(End(cell=self._cell(piece), offsets=offsets, no_message=why is Missing.GAP))

        def on_early(piece: Slice, offsets: OffsetSet, due_ms: int) -> None:
            undelivered.append(
                Release(
                    cell=self._cell(piece),
                    offsets=offsets,
                    delivery_count=piece.delivery_count,
                    due_ms=due_ms,
                )
            )

        def on_blocked(piece: Slice, offsets: OffsetSet, behind: tuple[int, ...]) -> None:
            undelivered.append(
                Block(
                    cell=self._cell(piece),
                    offsets=offsets,
                    behind=behind,
                    delivery_count=piece.delivery_count,
                )
            )

        hold_back = DelayFilter(now_ms=partition.now_ms, on_early=on_early)
        order = OrderFilter(blocked=partition.blocked, on_blocked=on_blocked)
        size = 0
        for rows in self._rows(
            partition,
            options.queue_id,
            on_missing,
            hold_back if options.delayed_delivery else None,
            order if options.ordering is Ordering.KEY else None,
            Rescue.of(options),
        ):
            size += rows.nbytes
            yield rows
        if undelivered:
            # These offsets deliver no rows and get no ack. Without an End they stay outstanding forever.
            write_markers(options.kafka, options.markers_topic, partition.markers_partitions, undelivered)
        self._report(partition, size)

    def _report(self, partition: LeasedSlices, size: int) -> None:
        """Reports to the planner that the task has released its messages that are not due.

        Small tasks do not report: the planner reads their messages at lower cost.
        """
        to, messages = partition.report_to, sum(len(one.offsets) for one in partition.slices)
        if to is not None and to.worth(messages=messages, size=size):
            config = client_config(self._options.kafka, "producer")
            report_read(config, self._options.redeliveries_topic, self._cell(partition.slices[0]), to)

    def _rows(
        self,
        partition: LeasedSlices,
        queue_id: str | None,
        on_missing: OnMissing,
        hold_back: DelayFilter | None = None,
        order: OrderFilter | None = None,
        rescue: Rescue | None = None,
    ) -> Iterator[pa.RecordBatch]:
        config = client_config(self._options.kafka, "consumer")
        config["isolation.level"] = self._options.isolation.value
        return arrow_batches(
            config,
            partition.slices,
            include_headers=self._options.include_headers,
            queue_id=None if queue_id is None else queue_id.encode(),
            on_missing=on_missing,
            hold_back=hold_back,
            order=order,
            rescue=rescue,
            skips_deleted=not self._options.fail_on_data_loss,
        )

    def _cell(self, piece: Slice) -> Cell:
        return Cell(subscription=self._options.subscription, topic=piece.topic, partition=piece.partition)

    def _encode(self, offset: SourceOffset) -> dict[str, Any]:
        return offset_json.encode(offset, self._options.checkpoint_owner)

    def _decode(self, stored: dict[str, Any]) -> SourceOffset:
        # Checked before any broker request: a query that continues from another owner's positions would skip
        # messages that it never received.
        self._options.checkpoint_owner.check(offset_json.owner_of(stored))
        return offset_json.decode(stored)

    def _driver(self) -> BatchPlanner:
        if self._planner is None:
            self._planner = planner_for(self._options)
            self._tracker = self._embedded_tracker()
        if self._tracker is not None:
            self._tracker.check()
        return self._planner

    def _embedded_tracker(self) -> EmbeddedTracker | None:
        options = self._options
        if options.tracker is not TrackerPlace.EMBEDDED:
            return None
        # Imported here: fifty queries that start together import what they need, on the same few cores.
        from spark_cursor_source.tracker.embedded import EmbeddedTracker

        return EmbeddedTracker(
            options.kafka,
            markers_topic=options.markers_topic,
            redeliveries_topic=options.redeliveries_topic,
            cursors_topic=options.cursors_topic,
        )


def _log_missing(piece: Slice, offsets: OffsetSet, why: Missing) -> None:
    log.warning(
        "Offsets without a deliverable message could not be ended and return when their "
        "leases expire. event=left_to_tracker topic=%s partition=%d messages=%d why=%s",
        *(piece.topic, piece.partition, len(offsets), why.value),
    )
