"""The stream reader that Spark pickles: options, and nothing else that would not survive the journey."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Marker, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.source_options import SourceOptions
from spark_cursor_source.errors import DataLoss
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.due import HoldBack
from spark_cursor_source.kafka.log import Missing, arrow_batches
from spark_cursor_source.kafka.markers import cached_sender
from spark_cursor_source.spark.planner import Planner
from spark_cursor_source.wire import offset_json

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeasedSlices(InputPartition):
    """What one task reads; its Start is on the broker already."""

    slices: tuple[Slice, ...]
    markers_partitions: int
    now_ms: int  #: broker time of the plan: every read of the batch judges by it what is due


class CursorqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of ``spark.readStream.format("cursorq")``.

    On the driver it asks a :class:`Planner`, born at the first question; on executors it reads slices.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:
        return offset_json.encode(self._driver().initial_offset())

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = offset_json.decode(start)
        end = self._driver().latest_offset(begin, max_offsets=most)
        return start if end is begin else offset_json.encode(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What Spark shows as ``latestOffset`` in its progress, and never reads again."""
        if self._planner is None:
            return None
        shown = offset_json.encode(self._planner.latest_known())
        most, outstanding = self._options.max_outstanding, self._planner.outstanding
        if most is not None and outstanding is not None:
            shown["outstanding"] = outstanding
            shown["maxOutstanding"] = most
            shown["maxOutstandingReached"] = outstanding >= most
        return shown

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        planner = self._driver()
        tasks = planner.plan(offset_json.decode(start), offset_json.decode(end))
        return [LeasedSlices(slices, planner.markers_partitions, planner.now_ms) for slices in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        self._driver().completed(offset_json.decode(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver().bound_by_now()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LeasedSlices):
            raise TypeError(f"a {type(partition).__name__} is no partition of cursorq")
        options = self._options
        undelivered: list[Marker] = []

        def on_missing(piece: Slice, offsets: OffsetSet, why: Missing) -> None:
            if why is Missing.RETENTION:
                self._report_loss(piece, offsets)
            undelivered.append(End(cell=self._cell(piece), offsets=offsets))

        def on_early(piece: Slice, offsets: OffsetSet, due_ms: int) -> None:
            undelivered.append(
                Release(
                    cell=self._cell(piece),
                    offsets=offsets,
                    delivery_count=piece.delivery_count,
                    due_ms=due_ms,
                )
            )

        hold_back = HoldBack(now_ms=partition.now_ms, on_early=on_early)
        config = client_config(options.kafka, "consumer")
        config["isolation.level"] = options.isolation.value
        yield from arrow_batches(
            config,
            partition.slices,
            include_headers=options.include_headers,
            queue_id=None if options.queue_id is None else options.queue_id.encode(),
            on_missing=on_missing,
            hold_back=hold_back if options.delayed_delivery else None,
        )
        if undelivered:
            # Offsets that nobody is going to ack: without an End they would stay outstanding for ever.
            sender = cached_sender(
                client_config(options.kafka, "producer"), options.markers_topic, partition.markers_partitions
            )
            sender.send(undelivered)
            sender.flush()

    def _report_loss(self, piece: Slice, offsets: OffsetSet) -> None:
        first, last = offsets.first, offsets.last
        ranges = f"{first} to {last} ({len(offsets)} of them)"
        why = "retention or a truncation removed them"
        if self._options.fail_on_data_loss:
            raise DataLoss(piece.topic, piece.partition, ranges, why)
        log.warning("data_loss topic=%s partition=%d offsets=%s", piece.topic, piece.partition, ranges)

    def _cell(self, piece: Slice) -> Cell:
        return Cell(subscription=self._options.subscription, topic=piece.topic, partition=piece.partition)

    def _driver(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner
