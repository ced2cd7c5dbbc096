"""Control topics of a test's own: cursors and markers are written there directly, with no tracker at work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Marker
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.consumers import borrowed_consumer, close_idle_consumers
from spark_cursor_source.kafka.range_consumer import read_range
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka import control_plane

PARTITIONS = 2


class Control:
    """A test's cluster: queue topics, control topics that nobody else writes to, and the views of them."""

    def __init__(self, spark: SparkSession, servers: str, create_topic: Callable[..., str]) -> None:
        cursorq.register(spark)
        self.spark = spark
        self.create_topic = create_topic
        self.config = {"bootstrap.servers": servers}
        self.topics = ClusterAdmin(self.config)
        self._control = control_plane.Control(self.config).create(PARTITIONS)
        self.names = self._control.names
        self._producer = control_plane.ordered_producer(self.config)
        self._sender = MarkerSender(self.config, self.names["markersTopic"], PARTITIONS)

    def close(self) -> None:
        self._sender.close()
        close_idle_consumers()

    def options(self, **more: object) -> dict[str, str]:
        """Options of a view, a source or a write; names in ``more`` are Spark's."""
        return self._control.options(**{name: str(value) for name, value in more.items()})

    def view(self, view: str, **more: object) -> DataFrame:
        return self.spark.read.format("cursorq").options(**self.options(view=view, **more)).load()

    def know(self, *topics: str, partitions: int = 4, subscription: str = "s") -> None:
        """Write cursors of these topics, so that their messages may be acked; there need be none."""
        cells = [cell(topic, number, subscription) for topic in topics for number in range(partitions)]
        self.put(*(CursorSnapshot(cell=one, read_position=0, next_marker=0) for one in cells))

    def write(self, df: DataFrame, mode: str = "append", **more: object) -> None:
        options = self.options(**{"subscription": "s", **more})
        df.write.format("cursorq").options(**options).mode(mode).save()

    def frame(self, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
        """A DataFrame to compare with; a TIMESTAMP is given as milliseconds."""
        columns = [column.strip().rsplit(" ", 1) for column in schema.split(", ")]
        as_read = ", ".join(f"{name} {'BIGINT' if of == 'TIMESTAMP' else of}" for name, of in columns)
        df = self.spark.createDataFrame(list(rows), as_read)
        return df.selectExpr(
            *(f"timestamp_millis({name}) {name}" if of == "TIMESTAMP" else name for name, of in columns)
        )

    def produce(self, topic: str, *records: Any, partition: int = 0, **record: Any) -> None:
        """Write records: values, or dicts of what ``Producer.produce`` takes."""
        for each in records:
            given = each if isinstance(each, dict) else {"value": each}
            self._producer.produce(topic, **({"partition": partition} | record | given))
        assert self._producer.flush(30) == 0

    def put(self, *cursors: CursorSnapshot, max_bytes: int = 900_000) -> None:
        """Write cursors as the tracker does, but for the transaction."""
        for cursor in cursors:
            partition = cursor.cell.control_partition(PARTITIONS)
            whole = cursor_wire.encode(cursor)
            for key, value in cursor_wire.to_records(cursor.cell.key, whole, max_bytes=max_bytes):
                self.produce(self.names["cursorsTopic"], {"key": key, "value": value}, partition=partition)

    def send(self, *markers: Marker) -> None:
        self._sender.send(markers)
        self._sender.flush()

    def marked(self) -> list[Marker | marker_wire.MarkerV1]:
        """All markers there are, those of a cell in their order."""
        topic, found = self.names["markersTopic"], []
        with borrowed_consumer(self.config) as consumer:
            for partition, stop in self.ends(topic).items():
                for messages in read_range(consumer, topic, partition, 0, stop):
                    found += [marker_wire.decode(one.key(), one.value()) for one in messages]
        return found

    def ends(self, topic: str) -> Mapping[int, int]:
        """The log end of each partition."""
        numbers: Iterable[int] = range(self.topics.describe([topic])[topic].partitions)
        found = self.topics.end_offsets([(topic, number) for number in numbers], committed=True)
        return {number: at for (_, number), at in found.items()}


def cell(topic: str, partition: int = 0, subscription: str = "s") -> Cell:
    return Cell(subscription=subscription, topic=topic, partition=partition)
