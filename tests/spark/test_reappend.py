"""The tracker behind consumers of kafka-mq-go and of kmq, which this library did not write."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop.lease_tables import LeaseTables
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire.marker import MarkerV1
from tests.kafka.control_plane import read_all
from tests.spark.harness import start_patiently, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PARTITIONS = 2
LEASE_MS = 2_000


@dataclass
class World:
    """A queue topic, its markers, and a tracker that can be started and stopped."""

    spark: SparkSession
    servers: str
    path: Path
    queue: str
    markers: str
    checkpoints: Iterator[int] = field(default_factory=itertools.count)
    running: list[StreamingQuery] = field(default_factory=list)

    @property
    def config(self) -> dict[str, str]:
        return {"bootstrap.servers": self.servers}

    def track(self, **options: object) -> StreamingQuery:
        """A tracker with a checkpoint of its own."""
        named = {
            "kafka.bootstrap.servers": self.servers,
            "checkpointLocation": str(self.path / f"tracker-{next(self.checkpoints)}"),
            "trigger": "300ms",
            "redelivery": "reappend",
            "queueTopic": self.queue,
            "markersTopic": self.markers,
            "redeliveriesTopic": f"{self.markers}-redeliveries",
            "cursorsTopic": f"{self.markers}-cursors",
            **options,
        }
        self.running.append(start_patiently(lambda: cursorq.start_tracker(self.spark, named)))
        return self.running[-1]

    def open_leases(self) -> int:
        """How many are in the tables that the cursors topic has now."""
        tail = CursorTable(self.config, f"{self.markers}-cursors")
        try:
            tail.refresh()
            values = LeaseTables(tail, self.queue, self.markers).values().values()
            return sum(len(table_wire.decode(value)) for value in values)
        finally:
            tail.close()

    def send(
        self, topic: str, *records: tuple[bytes | None, bytes | None], partition: int | None = None
    ) -> None:
        producer = Producer({**self.config, "partitioner": "murmur2_random"})
        for key, value in records:
            more = {} if partition is None else {"partition": partition}
            producer.produce(topic, value, key, **more)
        assert producer.flush(20) == 0

    def mark(self, kind: int, *messages: Message, lease_ms: int = LEASE_MS) -> None:
        """Markers of these messages, as a consumer of kafka-mq-go writes them."""
        for message in messages:
            partition, offset, key = message.partition(), message.offset(), message.key() or b""
            assert partition is not None
            assert offset is not None
            is_start = kind == marker_wire.MarkerType.START
            marker = MarkerV1(
                queue_id=key,
                type=kind,
                partition=partition,
                offset=offset,
                redeliver_after_ms=0 if kind == marker_wire.MarkerType.END else lease_ms,
                key=key if is_start else b"",
                value=(message.value() or b"") if is_start else b"",
            )
            self.send(self.markers, (key, marker_wire.encode_v1(marker)))

    def messages(self) -> list[Message]:
        return read_all(self.config, self.queue)

    def copies(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(m.key(), m.value()) for m in self.messages() if m.headers()]

    def until_copies(self, count: int) -> list[Message]:
        def there() -> list[Message] | None:
            found = [m for m in self.messages() if m.headers()]
            return found if len(found) >= count else None

        found: list[Message] = wait_until(there, f"{count} copies", queries=self.running[-1:])
        return found

    def ends(self) -> list[tuple[bytes, int, int]]:
        """Of the Ends in the markers topic: queue id, partition, offset."""
        found = []
        for message in read_all(self.config, self.markers):
            try:
                marker = marker_wire.decode(message.key(), message.value())
            except InvalidMarker:
                continue
            if isinstance(marker, MarkerV1) and marker.type == marker_wire.MarkerType.END:
                found.append((marker.queue_id, marker.partition, marker.offset))
        return found


@pytest.fixture
def world(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, create_topic: Callable[..., str]
) -> Iterator[World]:
    queue = create_topic(PARTITIONS)
    markers = create_topic(PARTITIONS, f"{queue}-markers", message_timestamp_type="LogAppendTime")
    made = World(spark, broker.bootstrap_servers, tmp_path, queue, markers)
    yield made
    for query in made.running:
        query.stop()


def test_what_a_consumer_of_kafka_mq_go_does_not_end_comes_back_at_the_tail(world: World) -> None:
    # started: a (ended), b (left), c (kept alive, then ended); the tracker comes later than any lease but c's
    world.send(world.queue, (b"q1", b"a"), (b"q1", b"b"), (b"q2", b"c"))
    by_value = {m.value(): m for m in world.messages()}
    a, b, c = by_value[b"a"], by_value[b"b"], by_value[b"c"]
    world.mark(marker_wire.MarkerType.START, a, b, c)
    world.mark(marker_wire.MarkerType.KEEP_ALIVE, c, lease_ms=600_000)
    world.send(world.markers, (b"q1", b"\xff no marker"))
    world.mark(marker_wire.MarkerType.END, a)
    tracker = world.track()
    (copy,) = world.until_copies(1)
    assert (copy.key(), copy.value()) == (b"q1", b"b")
    wait_until(lambda: (b"q1", b.partition(), b.offset()) in world.ends(), "the End of the old id")
    # The copy is a message like any other: started, left, and back again with a higher count.
    world.mark(marker_wire.MarkerType.START, copy)
    copies = world.until_copies(2)
    counts = sorted(dict(m.headers() or [])["cursorq-redelivery-count"] for m in copies)
    assert counts == [b"1", b"2"]
    world.mark(marker_wire.MarkerType.END, c)

    # A tracker whose checkpoint is lost goes on from the table that the first one left.
    again = max(copies, key=lambda m: dict(m.headers() or [])["cursorq-redelivery-count"])
    world.mark(marker_wire.MarkerType.START, again, lease_ms=20_000)
    wait_until(lambda: world.open_leases() == 1, "the lease in the table", queries=[tracker])
    tracker.stop()
    assert world.copies() == [(b"q1", b"b")] * 2
    third = world.track(takeOver=True, maxDeliveries=3)
    last = (b"q1", again.partition(), again.offset())
    wait_until(lambda: last in world.ends(), "the End of the last copy", queries=[third])
    letters = read_all(world.config, f"{world.queue}-kafka-mq-go-DLQ")
    assert [(m.key(), m.value()) for m in letters] == [(b"q1", b"b")]
    assert world.copies() == [(b"q1", b"b")] * 2


def test_what_a_client_of_kmq_does_not_end_comes_back_to_its_partition(world: World) -> None:
    world.send(world.queue, (None, b"a"), (None, b"b"), partition=1)

    def mark(offset: int, value: bytes) -> None:
        key = (1).to_bytes(4, "big") + offset.to_bytes(8, "big")
        world.send(world.markers, (key, value), partition=1)

    start = b"\x01" + LEASE_MS.to_bytes(8, "big")
    mark(0, start)
    mark(1, start)
    mark(0, b"\x00")
    mark(1, b"\x02")  # kmq takes it for an acknowledgement
    world.track(markerFormat="kmq")
    (copy,) = world.until_copies(1)
    assert (copy.partition(), copy.value()) == (1, b"b")
    assert dict(copy.headers() or [])["kmq-redelivery-count"] == b"\x01"
    last = (1).to_bytes(4, "big") + (1).to_bytes(8, "big"), b"\x00"
    wait_until(
        lambda: (lambda m: (m.key(), m.value()))(read_all(world.config, world.markers)[-1]) == last,
        "the End of the old id",
    )
