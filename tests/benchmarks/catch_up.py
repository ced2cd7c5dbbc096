"""(f) Behind kafka-mq-go: a backlog of V1 markers, and the state of a million open messages.

The peer is the plain way: one process, one marker at a time, decoded as strictly, into a dict.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop.lease_tables import LeaseTables
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, encode_v1
from tests.benchmarks.common import PARTITIONS, Bench, spark_session
from tests.benchmarks.report import Figure, Median, rate

MARKERS = 1_000_000
QUEUE_IDS = 16
PAYLOAD = b"x" * 100
TRIGGER_S = 20  # longer than it takes to write a backlog

Record = tuple[bytes, bytes]


def run(here: Bench) -> list[Figure]:
    load = V1Load(here, queue_ids=QUEUE_IDS)
    with spark_session(here, peer=False) as spark:
        load.append(load.lives(0, 1_000))
        load.start(spark)
        load.folded()  # the first batch starts Python workers
        load.plain_seconds()
        ours, plain = [], []
        for number in range(1, here.runs + 1):
            load.append(load.lives(number * MARKERS, MARKERS // 2))
            ours.append(load.folded())
            plain.append(load.plain_seconds())
        load.stop()
        load.append(load.lives(10**8, MARKERS // 2))
        load.start(spark)
        restarted = load.folded()
        load.append(load.starts(10**9, MARKERS))
        opening = load.folded()
        open_leases, state_bytes = load.state()
        load.stop()
    mib = state_bytes / 2**20
    behind, one_by_one = rate(MARKERS, Median.of(ours)), rate(MARKERS, Median.of(plain))
    loop = "one by one into a dict"
    return [
        Figure(what="backlog of V1 markers", value=behind, unit="/s", peer=one_by_one, peer_is=loop),
        Figure(what="the first batch after a restart", value=MARKERS / restarted, unit="/s"),
        Figure(what=f"{open_leases:,} open leases: state", value=mib, unit="MiB", goal=32),
        Figure(what="the trigger that opened them", value=opening),
    ]


def lives(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Start and End of each message, as its number and the type; Ends come a thousand messages later."""
    for number in range(first, first + count + 1_000):
        if number < first + count:
            yield number, MarkerType.START
        if number >= first + 1_000:
            yield number - 1_000, MarkerType.END


class V1Load:
    """A pair of topics of kafka-mq-go, and a tracker that looks seldom, so that the markers pile up."""

    def __init__(self, here: Bench, *, queue_ids: int) -> None:
        self._here = here
        self._ids = [b"queue-%d" % number for number in range(queue_ids)]
        self._config = {"bootstrap.servers": here.broker.bootstrap_servers}
        self._checkpoint = here.checkpoint()
        self._topics = ClusterAdmin(self._config)
        self._topics.create({"jobs": (PARTITIONS, {})})
        self._topics.ensure_control(
            markers="jobs-markers", redeliveries="jobs-redeliveries", cursors="jobs-cursors"
        )
        self._read: dict[int, int] = {}
        self._tracker: StreamingQuery | None = None
        self._batches = -1  # of the tracker that were looked at

    def lives(self, first: int, count: int) -> Iterator[Record]:
        """The markers of these messages, see :func:`lives`."""
        return (self._record(number, kind) for number, kind in lives(first, count))

    def starts(self, first: int, count: int) -> Iterator[Record]:
        return (self._record(number, MarkerType.START) for number in range(first, first + count))

    def ends(self, numbers: Iterator[int]) -> Iterator[Record]:
        return (self._record(number, MarkerType.END) for number in numbers)

    def _record(self, number: int, kind: int) -> Record:
        queue_id = self._ids[number % len(self._ids)]
        is_start = kind == MarkerType.START
        marker = MarkerV1(
            queue_id=queue_id,
            type=kind,
            partition=number % 16,
            offset=number,
            redeliver_after_ms=MAX_LEASE_MS if is_start else 0,
            key=queue_id if is_start else b"",
            value=PAYLOAD if is_start else b"",
        )
        return queue_id, encode_v1(marker)

    def append(self, records: Iterator[Record]) -> None:
        """Write markers, those of a queue id to the partition that Java's producer chooses."""
        producer = Producer(
            self._config
            | {"linger.ms": 50, "partitioner": "murmur2_random", "queue.buffering.max.messages": 1_000_000}
        )
        for key, value in records:
            producer.produce("jobs-markers", value, key)
            if len(producer) > 500_000:
                producer.poll(0.05)
        assert producer.flush(120) == 0

    def start(self, spark: SparkSession) -> None:
        """Start the tracker, or start it again."""
        self._tracker = cursorq.start_tracker(
            spark,
            {
                "kafka.bootstrap.servers": self._here.broker.bootstrap_servers,
                "checkpointLocation": self._checkpoint,
                "trigger": f"{TRIGGER_S}s",
                "redelivery": "reappend",
                "queueTopic": "jobs",
                "markersTopic": "jobs-markers",
                "redeliveriesTopic": "jobs-redeliveries",
                "cursorsTopic": "jobs-cursors",
            },
        )

    def stop(self) -> None:
        assert self._tracker is not None
        self._tracker.stop()

    def folded(self) -> float:
        """Seconds of the triggers, one or two, that have read what was appended."""
        tracker = self._tracker
        assert tracker is not None
        until = time.monotonic() + 300
        while not self._all_read():
            if (problem := tracker.exception()) is not None:
                raise problem
            assert time.monotonic() < until, "the tracker does not keep up"
            time.sleep(0.5)
        time.sleep(1.5)  # its progress is reported after its work is done
        done = [p for p in tracker.recentProgress if p["batchId"] > self._batches and p["numInputRows"]]
        self._batches = max(p["batchId"] for p in done)
        return sum(float(p["durationMs"]["triggerExecution"]) / 1000 for p in done)

    def plain_seconds(self) -> float:
        """Seconds of a loop over what was appended since the last time."""
        ends = self._ends()
        consumer = Consumer(self._config | {"group.id": "plain", "fetch.queue.backoff.ms": 2})
        consumer.assign([TopicPartition("jobs-markers", p, self._read.get(p, 0)) for p in ends])
        left = sum(ends.values()) - sum(self._read.get(p, 0) for p in ends)
        leases: dict[tuple[int, int], tuple[int, int]] = {}
        began = time.perf_counter()
        while left:
            for message in consumer.consume(10_000, 1.0):
                left -= 1
                marker = marker_wire.decode(message.key(), message.value())
                assert isinstance(marker, MarkerV1)
                place = (marker.partition, marker.offset)
                if marker.type == MarkerType.END:
                    leases.pop(place, None)
                else:
                    leases[place] = (
                        message.timestamp()[1] + marker.redeliver_after_ms,
                        message.offset() or 0,
                    )
        seconds = time.perf_counter() - began
        consumer.close()
        self._read = ends
        return seconds

    def state(self) -> tuple[int, int]:
        """Open leases, and the bytes that they take."""
        values = self._tables()
        return sum(len(table_wire.decode(value)) for value in values), sum(map(len, values))

    def _all_read(self) -> bool:
        """Whether the tables hold all markers there are."""
        ends = self._ends()
        return sum(table_wire.decode(value).next_marker for value in self._tables()) == sum(
            end for end in ends.values()
        )

    def _tables(self) -> list[bytes]:
        tail = CursorTable(self._config, "jobs-cursors")
        try:
            tail.refresh()
            return list(LeaseTables(tail, "jobs", "jobs-markers").values().values())
        finally:
            tail.close()

    def _ends(self) -> dict[int, int]:
        partitions = self._topics.describe(["jobs-markers"])["jobs-markers"].partitions
        asked = [("jobs-markers", p) for p in range(partitions)]
        return {p: end for (_, p), end in self._topics.end_offsets(asked, committed=True).items()}
