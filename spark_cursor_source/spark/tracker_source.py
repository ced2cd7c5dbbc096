"""Spark source of the tracker: reads the markers topic and folds markers on executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import AnyConsumer, borrowed_consumer, borrowed_fastest_consumer
from spark_cursor_source.kafka.native import NativeConsumer
from spark_cursor_source.kafka.range_consumer import read_columns, read_range
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.tracker.fold import MarkerFold
from spark_cursor_source.tracker.planner import AllCursors, MarkersSlice, TrackerPlanner
from spark_cursor_source.tracker.resume import cursors_of, resume_rows
from spark_cursor_source.tracker.rows import (
    FOLDED_DDL,
    FoldedRow,
    folded_batches,
    reset_row,
    rewrite_row,
    tick_row,
)
from spark_cursor_source.wire import tracker_offset_json

POLICIES = "policies"  #: option with the digest of the policies that apply to the batches
SUBSCRIPTIONS = "subscriptions"  #: option with the settings of each subscription, as JSON


class MarkerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of folded markers: consecutive Ends of a cell become one row."""

    def __init__(self, options: TrackerOptions, policies: str | None = None) -> None:
        """Takes the digest of all policies, for ``options`` that contain only the source's settings."""
        self._options = options
        self._policies = options.policies_digest if policies is None else policies
        self._planner: TrackerPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_policies": self._policies, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:
        return tracker_offset_json.encode(self._driver().initial_offset())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = tracker_offset_json.decode(start)
        end = self._driver().latest_offset(begin)
        return start if end is begin else tracker_offset_json.encode(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        tasks = self._driver().tasks(tracker_offset_json.decode(start), tracker_offset_json.decode(end))
        return [InputPartition(task) for task in tasks]

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver().bound_by_now()

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from folded_batches(self._rows(partition.value))

    def _rows(self, task: AllCursors | MarkersSlice) -> Iterator[FoldedRow]:
        config = client_config(self._options.kafka, "consumer")
        config["isolation.level"] = "read_committed"
        if isinstance(task, AllCursors):
            yield from map(reset_row, range(task.reset))
            with closing(cursors_of(self._options)) as cursors:
                cursors.refresh()
                yield from resume_rows(self._options, cursors, task.partitions)
        else:
            yield from self._folded_rows(config, task)

    def _folded_rows(self, config: dict[str, str], task: MarkersSlice) -> Iterator[FoldedRow]:
        topic = self._options.markers_topic
        if task.rewrite:
            yield rewrite_row(task.partition)
        fold = MarkerFold(task.partition, topic, self._options.reappend)
        lend = borrowed_fastest_consumer if fold.takes_columns else borrowed_consumer
        with lend(config) as consumer:
            for _ in _added(fold, consumer, topic, task):
                yield from fold.ready()
        yield from fold.rows()
        yield tick_row(task.partition, task.stop, task.now_ms, task.tracker_id, task.identity)

    def _driver(self) -> TrackerPlanner:
        if self._planner is None:
            self._planner = TrackerPlanner(self._options, self._policies)
        return self._planner


def _added(fold: MarkerFold, consumer: AnyConsumer, topic: str, task: MarkersSlice) -> Iterator[None]:
    """Adds the markers of a task, and stops after each part of them."""
    where = topic, task.partition, task.start, task.stop
    between = task.read_between
    if isinstance(consumer, NativeConsumer):
        for batch in read_columns(consumer, *where, headers=False):
            fold.add_columns(batch, between)
            yield
        return
    for messages in read_range(consumer, *where):
        fold.add_messages(messages, between)
        yield


class MarkerDataSource(DataSource):
    """Internal data source ``cursorq-tracker``. Applications read ``view=markers`` instead."""

    @classmethod
    def name(cls) -> str:
        return "cursorq-tracker"

    def schema(self) -> str:
        return FOLDED_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options: dict[str, object] = dict(self.options)
        # All subscriptions are one JSON option: Spark lower-cases option keys, and names are case-sensitive.
        if (subscriptions := self.options.get(SUBSCRIPTIONS)) is not None:
            options[SUBSCRIPTIONS] = json.loads(subscriptions)
        policies = self.options.get(POLICIES)
        options.pop(POLICIES, None)
        return MarkerStreamReader(TrackerOptions.parse(options), policies)
