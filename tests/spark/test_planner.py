"""The source's driver side on a real broker with a tracker, without Spark: a test asks as Spark would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Marker, Release, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.source_options import SourceOptions
from spark_cursor_source.embedded import EmbeddedKafka
from spark_cursor_source.kafka.cursors import CursorTail
from spark_cursor_source.kafka.markers import MarkerSender
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.spark.reader import CursorqStreamReader, LeasedSlices
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import eventually, new_control, produce, read_all
from tests.kafka.tracker_thread import PlainTracker

pytestmark = pytest.mark.broker


class Desk:
    """A queue, its control topics, a tracker, and readers that are asked as Spark asks them."""

    def __init__(self, servers: str, stack: ExitStack, partitions: int, tracker: dict[str, object]) -> None:
        self.control = new_control({"bootstrap.servers": servers})
        Topics(self.control.config).create({self.queue: (partitions, {})})
        self._stack = stack
        self._given: dict[str, object] = {
            "kafka.bootstrap.servers": servers,
            "markersTopic": self.control.markers,
            "redeliveriesTopic": self.control.redeliveries,
            "cursorsTopic": self.control.cursors,
        }
        stack.enter_context(PlainTracker({"trigger": "20ms", **self._given, **tracker}))
        self._tail = CursorTail(self.control.config, self.control.cursors)
        stack.callback(self._tail.close)
        partitions = (
            Topics(self.control.config).describe([self.control.markers])[self.control.markers].partitions
        )
        self._sender = MarkerSender(self.control.config, self.control.markers, partitions)
        stack.callback(self._sender.close)

    @property
    def queue(self) -> str:
        return self.control.queue

    def reader(self, **more: object) -> CursorqStreamReader:
        """One run of a query."""
        given = self._given | {"subscribe": self.queue, "subscription": "s", "groupIdPrefix": self.queue}
        options = SourceOptions.parse({k: str(v) for k, v in (given | more).items()})
        reader = CursorqStreamReader(options)
        self._stack.callback(reader.stop)
        return reader

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

    def cell(self, partition: int = 0) -> Cell:
        return Cell(subscription="s", topic=self.queue, partition=partition)

    def cursor(self, partition: int = 0) -> CursorSnapshot | None:
        self._tail.refresh()
        return self._tail.get(self.cell(partition))

    def until(self, condition: Callable[[CursorSnapshot], Any], partition: int = 0) -> None:
        """Wait until the cursor of a partition is so."""
        eventually(lambda: (one := self.cursor(partition)) is not None and condition(one), seconds=30)


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

        eventually(found, seconds=30)
        tasks = self.tasks()
        self.begun, self.start = self.start, self.end
        return tasks

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


@pytest.fixture
def make_desk(broker: EmbeddedKafka) -> Iterator[Callable[..., Desk]]:
    with ExitStack() as stack:

        def make(partitions: int = 1, **tracker: object) -> Desk:
            return Desk(broker.bootstrap_servers, stack, partitions, tracker)

        yield make


def test_a_batch_that_is_asked_for_twice_is_planned_once(make_desk: Callable[..., Desk]) -> None:
    # S(0-1, 1) -- 0 released -- S(0, 2) and S(2, 1), asked for by both branches of a union
    desk = make_desk()
    desk.put(b"a", b"b")
    query = Query(desk.reader())
    first = query.next()
    assert query.rows(first) == query.rows(query.again()) == [(0, 1), (1, 1)]
    desk.say(Release(cell=desk.cell(), offsets=OffsetSet.of((0, 1)), delivery_count=1, delay_ms=0))
    desk.until(lambda cursor: cursor.available)
    desk.put(b"c")
    batches = [query.next()]
    while not any(offset == 0 for offset, _ in query.rows(batches[-1])):
        batches.append(query.next())
    assert query.rows(query.again()) == query.rows(batches[-1])
    starts = [one for one in desk.markers(Start) if 0 in one.offsets]
    assert [one.delivery_count for one in starts] == [1, 2]
