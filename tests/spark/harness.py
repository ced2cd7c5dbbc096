"""What the tests of running queries share: topics, queries, cursors, markers, dead letters in one place."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire import offset_json
from tests import waiting
from tests.kafka.control_plane import Control, of_worker, ordered_producer
from tests.kafka.topic_records import TopicRecords
from tests.spark.plain_query import PlainQuery

TIMEOUT_S = 240.0
#: subscriptions whose messages the suite's tracker treats in a way of their own; all others have its defaults
POLICIES = {
    "one-delivery": {"maxDeliveries": 1},
    "two-deliveries": {"maxDeliveries": 2},
    "backoff": {"maxDeliveries": 3, "backoff": ["2s", "1s"]},
    "unlimited": {"maxDeliveries": 0},
    "short-lived": {"messageTtl": "3s"},
    "short-lived-kept": {"messageTtl": "3s", "expiredTo": "dead-letters"},
    "guarded": {"breaker": "2/1m", "breakerPause": "none"},
}


def suite_control(servers: str) -> Control:
    """The control topics that the tests of running queries share."""
    return Control(config={"bootstrap.servers": servers}, name=of_worker("suite"))


def wait_until(
    condition: Callable[[], Any], what: str, *, timeout_s: float = TIMEOUT_S, queries: Sequence[Any] = ()
) -> Any:
    """The first truthy answer of ``condition``; a query that fails meanwhile is the error."""

    def check_queries() -> None:
        for query in queries:
            if (failure := query.exception()) is not None:
                raise failure

    return waiting.wait_until(condition, what, timeout_s=timeout_s, between=check_queries)


def logged(offset: SourceOffset) -> SourceOffset:
    """What a later run reads in Spark's offset log."""
    return offset_json.decode(offset_json.encode(offset))


def start_patiently(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query whose planner has a process.

    Spark gives it ten seconds to come up, which a machine at its limits may not; that says nothing of ours.
    """
    while True:
        query = start()
        wait_until(
            lambda q=query: q.exception() is not None or "Initializing" not in q.status["message"],
            "the query is initialized",
        )
        if "failed to connect back" not in str(query.exception()):
            return query


@dataclass(frozen=True, slots=True)
class Marked:
    """A record of the markers topic."""

    partition: int
    offset: int
    at_ms: int
    marker: Marker


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of a dead-letter topic; ``headers`` as they are, ours are also in ``facts``."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]

    @property
    def facts(self) -> dict[str, str]:
        """The headers that say where it comes from and why, without their prefix."""
        return {
            name.removeprefix("cursorq-"): (value or b"").decode()
            for name, value in self.headers
            if name.startswith("cursorq-")
        }


class Seen:
    """A foreachBatch function that remembers the rows of every batch, and when each came."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []
        self.times: list[float] = []

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows = batch.collect()
        if rows:
            self.times.append(time.monotonic())
            self.batches.append(rows)

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.batches for row in rows]

    def ids(self, delivery_count: int | None = None) -> list[tuple[int, int]]:
        """(partition, offset) of each row, of one delivery count or of all, sorted."""
        return sorted(
            (row.partition, row.offset) for row in self.rows if delivery_count in (None, row.delivery_count)
        )

    def when(self, delivery_count: int) -> float:
        """When the first row of this delivery count came, on the monotonic clock."""
        return next(
            at
            for at, rows in zip(self.times, self.batches, strict=False)
            if any(row.delivery_count == delivery_count for row in rows)
        )


@dataclass
class Bench:
    """A test's view of the cluster and of the session; its queries end with it."""

    spark: Any  #: a SparkSession; none where all queries are plain
    servers: str
    directory: Path
    create_topic: Callable[..., str]
    queries: list[StreamingQuery | PlainQuery] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.control = suite_control(self.servers)
        # Of its own: in a group with a member of a moment ago, the next one waits until that one is given up.
        self.group_prefix = f"cursorq-{uuid.uuid4().hex[:12]}"
        self.topics = ClusterAdmin(self.control.config)
        self._cursors = CursorTable(self.control.config, self.control.cursors)
        self._records = TopicRecords(self.control.config, self.topics)
        self._lock = threading.Lock()

    def close(self) -> None:
        for query in self.queries:
            query.stop()
        self._cursors.close()
        self._records.close()

    # -- queues ----------------------------------------------------------------------------------------

    def options(self, topic: str | None, subscription: str = "s", **more: object) -> dict[str, str]:
        """Options of a source and its sink; names in ``more`` are Spark's."""
        named = {"subscribe": topic} if topic is not None else {}
        given = self.control.options(
            subscription=subscription, groupIdPrefix=self.group_prefix, leaseTimeout="60s"
        )
        return given | named | {name: str(value) for name, value in more.items()}

    def recreate(self, topic: str) -> str:
        """Delete a topic and create it again with one partition. Return its new id."""
        self.topics.delete(topic)
        self.topics.create({topic: (1, {})})
        return self.topics.describe([topic])[topic].topic_id

    def produce(self, topic: str, records: Iterable[Any], *, partition: int = 0) -> None:
        """Write records: values, or dicts of what ``Producer.produce`` takes."""
        producer = ordered_producer(self.control.config)
        for record in records:
            given = record if isinstance(record, dict) else {"value": record}
            producer.produce(topic, **({"partition": partition} | given))
        assert producer.flush(30) == 0

    def ends(self, topic: str) -> dict[int, int]:
        """The log end offset of each partition."""
        count = self.topics.describe([topic])[topic].partitions
        found = self.topics.end_offsets([(topic, number) for number in range(count)], committed=False)
        return {number: at for (_, number), at in found.items()}

    def group(self, topic: str, subscription: str = "s", partition: int = 0) -> int | None:
        """What the subscription's consumer group has committed."""
        return self.topics.committed(f"{self.group_prefix}-{subscription}", [(topic, partition)]).get(
            (topic, partition)
        )

    # -- queries ---------------------------------------------------------------------------------------

    def read(self, options: Mapping[str, str]) -> DataFrame:
        cursorq.register(self.spark)
        return self.spark.readStream.format("cursorq").options(**options).load()

    def start(
        self,
        options: Mapping[str, str],
        sink: Callable[[DataFrame, int], object],
        *,
        checkpoint: str = "checkpoint",
        trigger: str = "100 milliseconds",
    ) -> StreamingQuery:
        """A running query from the queue to ``sink``."""
        writer = self.read(options).writeStream.foreachBatch(sink).trigger(processingTime=trigger)
        return self.begin(writer, checkpoint)

    def drain(
        self,
        options: Mapping[str, str],
        sink: Callable[[DataFrame, int], object],
        *,
        checkpoint: str = "checkpoint",
    ) -> StreamingQuery:
        """A query that takes what is there and has ended when this returns."""
        writer = self.read(options).writeStream.foreachBatch(sink).trigger(availableNow=True)
        query = self.begin(writer, checkpoint)
        assert query.awaitTermination(TIMEOUT_S), "the query did not end"
        return query

    def plain(
        self,
        options: Mapping[str, str],
        fn: Callable[[Any], Any] | None = None,
        *,
        checkpoint: str = "checkpoint",
    ) -> PlainQuery:
        """A running query without Spark, which acks what ``fn`` acks, or all."""
        query = PlainQuery(options, self.directory / checkpoint, fn)
        self.queries.append(query)
        return query

    def begin(self, writer: Any, checkpoint: str = "checkpoint") -> StreamingQuery:
        """Start a query of any sink; it ends with the test."""
        writer = writer.option("checkpointLocation", str(self.directory / checkpoint))
        query = start_patiently(writer.start)
        self.queries.append(query)
        return query

    def until(self, condition: Callable[[], Any], what: str, *, timeout_s: float = TIMEOUT_S) -> Any:
        """:func:`wait_until`, and a query of this bench that fails is the error."""
        return wait_until(condition, what, timeout_s=timeout_s, queries=self.queries)

    def failure(self, query: StreamingQuery | PlainQuery, *, timeout_s: float = TIMEOUT_S) -> str:
        """The text of the error that ends the query, as it is meant to."""
        self.queries.remove(query)
        return str(wait_until(query.exception, "the query fails", timeout_s=timeout_s))

    def frame(self, topic: str, rows: Iterable[tuple[int, int, int]]) -> DataFrame:
        """A DataFrame of (partition, offset, delivery_count) that names messages."""
        schema = "topic STRING, partition INT, offset BIGINT, delivery_count INT"
        return self.spark.createDataFrame([(topic, *row) for row in rows], schema)

    # -- control topics --------------------------------------------------------------------------------

    def cursor(self, topic: str, subscription: str = "s", partition: int = 0) -> CursorSnapshot | None:
        """The cursor of a cell as it is now."""
        with self._lock:
            self._cursors.refresh()
            return self._cursors.get(Cell(subscription=subscription, topic=topic, partition=partition))

    def until_acked(self, topic: str, upto: Mapping[int, int] | int, subscription: str = "s") -> None:
        """Wait until nothing is outstanding and the read position of each partition is as given."""
        wanted = {0: upto} if isinstance(upto, int) else upto

        def all_acked() -> bool:
            cursors = {number: self.cursor(topic, subscription, number) for number in wanted}
            return all(
                one is not None
                and one.mark_delete == wanted[number] - 1
                and one.read_position >= wanted[number]
                for number, one in cursors.items()
            )

        self.until(all_acked, f"everything of {topic} up to {wanted} is acked")

    def markers(self, topic: str, subscription: str | None = None, kind: type[Any] = object) -> list[Marked]:
        """The markers of a topic's cells, in the order of their log."""
        found = []
        for message in self.records(self.control.markers):
            try:
                marker = marker_wire.decode(message.key(), message.value())
            except marker_wire.InvalidMarker:
                continue
            if isinstance(marker, marker_wire.MarkerV1) or marker.cell.topic != topic:
                continue
            if subscription in (None, marker.cell.subscription) and isinstance(marker, kind):
                at = message.partition(), message.offset(), message.timestamp()[1]
                found.append(Marked(*at, marker))
        return found

    def records(self, topic: str) -> list[Message]:
        """Every committed record of a topic, by partition and offset."""
        return self._records.of(topic)

    def started(self, topic: str, subscription: str = "s", partition: int = 0) -> OffsetSet:
        """All offsets of a cell that a Start names."""
        return OffsetSet.union(
            one.marker.offsets
            for one in self.markers(topic, subscription, Start)
            if one.marker.cell.partition == partition
        )

    def dead_letters(self, topic: str, subscription: str = "s") -> list[DeadLetter]:
        """What is in the dead-letter topic of a subscription, by partition; nothing if there is none."""
        name = f"{topic}-{subscription}-DLQ"
        letters = []
        for message in self.records(name):
            kind, timestamp_ms = message.timestamp()
            assert kind != TIMESTAMP_NOT_AVAILABLE
            letters.append(
                DeadLetter(
                    message.partition(), message.key(), message.value(), timestamp_ms, message.headers() or []
                )
            )
        return letters
