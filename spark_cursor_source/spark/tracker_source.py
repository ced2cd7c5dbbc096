"""Spark source of the tracker: reads the markers topic and folds markers on executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spark_cursor_source.core.tracker_offset import append_time
from spark_cursor_source.interop.lease_tables import LeaseTables
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.range_consumer import columns_of, read_range
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.tracker.fold import MarkerFold
from spark_cursor_source.tracker.planner import AllCursors, MarkersSlice, TrackerPlanner
from spark_cursor_source.tracker.rows import (
    FOLDED_DDL,
    cursor_rows,
    lease_table_row,
    reset_row,
    rewrite_row,
    tick_row,
)
from spark_cursor_source.wire import tracker_offset_json

POLICIES = "policies"  #: option with the digest of the policies that apply to the batches
SUBSCRIPTIONS = "subscriptions"  #: option with the settings of each subscription, as JSON


class MarkerStreamReader(DataSourceStreamReader):
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

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        config = client_config(self._options.kafka, "consumer")
        config["isolation.level"] = "read_committed"
        match partition.value:
            case AllCursors() as task:
                for number in range(task.reset):
                    yield reset_row(number)
                yield from self._resume_rows(config)
            case MarkersSlice() as task:
                yield from self._folded_rows(config, task)

    def _folded_rows(self, config: dict[str, str], task: MarkersSlice) -> Iterator[pa.RecordBatch]:
        topic = self._options.markers_topic
        if task.rewrite:
            yield rewrite_row(task.partition)
        fold = MarkerFold(task.partition, topic, self._options.reappend)
        with borrowed_consumer(config) as consumer:
            for messages in read_range(consumer, topic, task.partition, task.start, task.stop):
                places, times_ms, keys, values = columns_of(messages)
                if (between := task.read_between) is not None:
                    times_ms = [append_time(at_ms, between) for at_ms in times_ms]
                fold.add_all(places, times_ms, keys, values)
                yield from fold.ready()
        yield from fold.rows()
        yield tick_row(task.partition, task.stop, task.now_ms, task.tracker_id, task.identity)

    def _resume_rows(self, config: dict[str, str]) -> Iterator[pa.RecordBatch]:
        options = self._options
        tail = CursorTable(config, options.cursors_topic, markers_topic=options.markers_topic)
        try:
            tail.refresh()
            yield from cursor_rows(tail.all().values())
            if self._options.reappend is not None:
                tables = LeaseTables(tail, self._options.reappend.queue_topic, self._options.markers_topic)
                for partition, value in tables.values().items():
                    yield lease_table_row(partition, value)
        finally:
            tail.close()

    def _driver(self) -> TrackerPlanner:
        if self._planner is None:
            self._planner = TrackerPlanner(self._options, self._policies)
        return self._planner


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
