"""The driver's side of the source beside a tracker, without Spark: a test asks as Spark would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_cursor_source.consumer.planner import Planner
from spark_cursor_source.core.marker import Marker
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.spark.reader import CursorqStreamReader, LeasedSlices
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import PARTITIONS, new_control, produce, read_all
from tests.kafka.queue_rig import QueueRig
from tests.waiting import wait_until


class Desk(QueueRig):
    """A queue, its control topics, a tracker, and readers that are asked as Spark asks them."""

    def __init__(self, servers: str, stack: ExitStack, partitions: int, tracker: dict[str, object]) -> None:
        super().__init__(new_control({"bootstrap.servers": servers}), partitions, stack)
        self.tracker(**tracker)
        self._sender = MarkerSender(self.control.config, self.control.markers, PARTITIONS)
        stack.callback(self._sender.close)

    @property
    def queue(self) -> str:
        return self.control.queue

    def reader(self, **more: object) -> CursorqStreamReader:
        """One run of a query."""
        reader = CursorqStreamReader(self.options(**more))
        self.stack.callback(reader.stop)
        return reader

    def planner(self, **more: object) -> Planner:
        """The same, of which a test asks more than Spark does."""
        planner = Planner(self.options(**more))
        self.stack.callback(planner.close)
        return planner

    def options(self, **more: object) -> SourceOptions:
        given = self.source_options | more
        return SourceOptions.parse({name: str(value) for name, value in given.items()})

    def put(self, *values: bytes, partition: int = 0, **record: Any) -> None:
        records = [{"value": value, "partition": partition} | record for value in values]
        produce(self.control.config, self.queue, records)

    def say(self, *markers: Marker) -> None:
        """Write markers as a sink does."""
        self._sender.send(markers)
        self._sender.flush()

    def markers(self, kind: type[Any]) -> list[Any]:
        found = [marker_wire.decode(m.key(), m.value()) for m in self._records()]
        return [one for one in found if isinstance(one, kind)]

    def _records(self) -> list[Any]:
        return read_all(self.control.config, self.control.markers)


class Query:
    """One run, batch after batch."""

    def __init__(self, reader: CursorqStreamReader, start: Any = None) -> None:
        self.reader = reader
        self.start = reader.initialOffset() if start is None else start
        self.end: Any = None

    def next(self) -> list[LeasedSlices]:
        """The tasks of the next batch, once there is one; the one before is committed then."""

        def found() -> bool:
            self.end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
            return bool(self.end != self.start)

        wait_until(found)
        tasks = self.tasks()
        self.begun, self.start = self.start, self.end
        return tasks

    def look(self) -> None:
        """Have the query begin its run and look for news. It plans no batch."""
        assert self.reader.latestOffset(self.start, ReadMaxRows(0)) == self.start

    def until_rows(self, wanted: Callable[[int, int], bool]) -> list[tuple[int, int]]:
        """The rows of the next batch that has one like this; those of the batches before are left."""
        while True:
            rows = self.rows(self.next())
            if any(wanted(*row) for row in rows):
                return rows

    def tasks(self) -> list[LeasedSlices]:
        return [one for one in self.reader.partitions(self.start, self.end) if isinstance(one, LeasedSlices)]

    def again(self) -> list[LeasedSlices]:
        """The tasks of the batch in progress, asked for once more."""
        return [one for one in self.reader.partitions(self.begun, self.end) if isinstance(one, LeasedSlices)]

    def rows(self, tasks: Sequence[LeasedSlices]) -> list[tuple[int, int]]:
        """(offset, delivery count) of all rows of the tasks."""
        batches: list[pa.RecordBatch] = [one for task in tasks for one in self.reader.read(task)]
        found = [row for one in batches for row in one.to_pylist()]
        return sorted((row["offset"], row["delivery_count"]) for row in found)


MakeDesk = Callable[..., Desk]
