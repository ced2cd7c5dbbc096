"""The driver's side of the source beside a tracker, without Spark: a test asks as Spark would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from spark_cursor_source.consumer.planner import Planner
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Marker
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.spark.reader import CursorqStreamReader, LeasedSlices
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import new_control, produce, read_all
from tests.waiting import wait_until


class Desk:
    """A queue, its control topics, a tracker, and readers that are asked as Spark asks them."""

    def __init__(self, servers: str, stack: ExitStack, partitions: int, tracker: dict[str, object]) -> None:
        self.control = new_control({"bootstrap.servers": servers})
        ClusterAdmin(self.control.config).create({self.queue: (partitions, {})})
        self._stack = stack
        self._given: dict[str, object] = {
            "kafka.bootstrap.servers": servers,
            "markersTopic": self.control.markers,
            "redeliveriesTopic": self.control.redeliveries,
            "cursorsTopic": self.control.cursors,
        }
        stack.enter_context(Tracker({"trigger": "50ms", **self._given, **tracker}))
        self._tail = CursorTable(self.control.config, self.control.cursors)
        stack.callback(self._tail.close)
        partitions = (
            ClusterAdmin(self.control.config)
            .describe([self.control.markers])[self.control.markers]
            .partitions
        )
        self._sender = MarkerSender(self.control.config, self.control.markers, partitions)
        stack.callback(self._sender.close)

    @property
    def queue(self) -> str:
        return self.control.queue

    def reader(self, **more: object) -> CursorqStreamReader:
        """One run of a query."""
        reader = CursorqStreamReader(self.options(**more))
        self._stack.callback(reader.stop)
        return reader

    def planner(self, **more: object) -> Planner:
        """The same, of which a test asks more than Spark does."""
        planner = Planner(self.options(**more))
        self._stack.callback(planner.close)
        return planner

    def options(self, **more: object) -> SourceOptions:
        given = self._given | {"subscribe": self.queue, "subscription": "s", "groupIdPrefix": self.queue}
        return SourceOptions.parse({k: str(v) for k, v in (given | more).items()})

    def put(self, *values: bytes, partition: int = 0, **record: Any) -> None:
        records = [{"value": value, "partition": partition} | record for value in values]
        produce(self.control.config, self.queue, records)

    def recreate(self) -> None:
        """Delete the queue topic, and create it again."""
        topics = ClusterAdmin(self.control.config)
        was = topics.describe([self.queue])[self.queue]
        topics.delete(self.queue)
        wait_until(lambda: not topics.existing([self.queue]))
        topics.create({self.queue: (was.partitions, {})})

    def say(self, *markers: Marker) -> None:
        """Write markers as a sink does."""
        self._sender.send(markers)
        self._sender.flush()

    def markers(self, kind: type[Any]) -> list[Any]:
        found = [marker_wire.decode(m.key(), m.value()) for m in self._records()]
        return [one for one in found if isinstance(one, kind)]

    def _records(self) -> list[Any]:
        return read_all(self.control.config, self.control.markers)

    def cell(self, partition: int = 0) -> Cell:
        return Cell(subscription="s", topic=self.queue, partition=partition)

    def cursor(self, partition: int = 0) -> CursorSnapshot | None:
        self._tail.refresh()
        return self._tail.get(self.cell(partition))

    def until(self, condition: Callable[[CursorSnapshot], Any], partition: int = 0) -> None:
        """Wait until the cursor of a partition is so."""
        wait_until(lambda: (one := self.cursor(partition)) is not None and condition(one))


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
