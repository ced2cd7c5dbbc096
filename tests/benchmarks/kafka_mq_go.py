"""(k) As tracker of kafka-mq-go's queues: how fast it reads a backlog, how late messages come back.

The peer is kafka-mq-go's own tracker, where ``KAFKA_MQ_GO`` names a checkout of it (see
``tests/interop/programs.py``). Both read the same markers, and are judged by what they append to the queue.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from confluent_kafka import Producer

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, encode_v1
from tests.benchmarks.catch_up import PAYLOAD, QUEUE_IDS, lives
from tests.benchmarks.common import PARTITIONS, Bench
from tests.benchmarks.report import Figure, Median
from tests.benchmarks.standalone import Tail, at, tracker_process
from tests.interop.programs import VARIABLE, Programs, build, configure, running

MARKERS = 1_000_000  #: of the backlog; each message has a Start and an End
ROUNDS = 100
LEASE_MS = 1_000
PATIENCE_S = 60
PEER = "kafka-mq-go's tracker"

Record = tuple[int, bytes, bytes]  #: (partition of the markers topic, key, value)
Start = Callable[["Queue"], AbstractContextManager[object]]


def run(here: Bench) -> list[Figure]:
    trackers = {"ours": own_tracker(here)}
    if checkout := os.environ.get(VARIABLE):
        trackers["theirs"] = their_tracker(here, build(Path(checkout), here.scratch / "built"))
    backlog = list(records())
    seconds: dict[str, list[float]] = {name: [] for name in trackers}
    starts: dict[str, list[float]] = {name: [] for name in trackers}
    for _ in range(here.runs):
        for name, start in trackers.items():
            starts[name].append(back_s(Queue(here), [], start))
            seconds[name].append(back_s(Queue(here), backlog, start))
    late = {name: lateness_s(Queue(here), start) for name, start in trackers.items()}
    rates = {
        name: Median.of(one - Median.of(starts[name]) for one in found).of_count(MARKERS)
        for name, found in seconds.items()
    }
    what = "append to the queue after the lease of a marker of kafka-mq-go"
    return [
        figure("backlog of markers of kafka-mq-go", "/s", rates),
        *(
            figure(f"{what}, p{share * 100:.0f}", "ms", {name: at(late[name], share) for name in late})
            for share in (0.5, 0.99)
        ),
    ]


def figure(what: str, unit: str, found: Mapping[str, float]) -> Figure:
    return Figure(what=what, value=found["ours"], unit=unit, peer=found.get("theirs"), peer_is=PEER)


def back_s(queue: Queue, backlog: Iterable[Record], start: Start) -> float:
    """From the start of a tracker until the messages at the end of each partition are back."""
    last = [f"last of {number}".encode() for number in range(PARTITIONS)]
    queue.put(backlog)
    queue.put((number, b"last", begun(number, 10**9, value, 1)) for number, value in enumerate(last))
    with queue.watched() as tail:
        began = time.time()
        with start(queue):
            return max(until_back(tail, value) for value in last) - began


def lateness_s(queue: Queue, start: Start) -> list[float]:
    """From the end of each lease, in the broker's time, until the message is in the queue again."""
    with queue.watched() as tail, start(queue):
        queue.put((number, b"first", begun(number, 10**9, b"first", 1)) for number in range(PARTITIONS))
        until_back(tail, b"first")
        appended: dict[bytes, float] = {}
        for number in range(ROUNDS):
            time.sleep(random.uniform(0.05, 0.15))
            value, partition = b"message %d" % number, number % PARTITIONS
            offset, _ = queue.send(queue.name, partition, b"jobs", value)
            _, appended[value] = queue.send(
                queue.markers, partition, b"jobs", begun(partition, offset, value, LEASE_MS)
            )
        return [until_back(tail, value, times=2) - at_s - LEASE_MS / 1000 for value, at_s in appended.items()]


def until_back(tail: Tail, value: bytes, *, times: int = 1) -> float:
    """When the message was in the queue so many times, as a time of this machine."""
    until = time.monotonic() + PATIENCE_S
    while len(found := [one for one in tail.seen if one.value == value]) < times:
        assert time.monotonic() < until, f"{value!r} does not come back"
        time.sleep(0.005)
    return found[times - 1].at_s


def records() -> Iterator[Record]:
    """The markers of a backlog, see :func:`lives`."""
    for number, kind in lives(0, MARKERS // 2):
        queue_id, partition = b"queue-%d" % (number % QUEUE_IDS), number % PARTITIONS
        is_start = kind == MarkerType.START
        marker = MarkerV1(
            queue_id=queue_id,
            type=kind,
            partition=partition,
            offset=number,
            redeliver_after_ms=MAX_LEASE_MS if is_start else 0,
            key=queue_id if is_start else b"",
            value=PAYLOAD if is_start else b"",
        )
        yield partition, queue_id, encode_v1(marker)


def begun(partition: int, offset: int, value: bytes, lease_ms: int) -> bytes:
    """A Start marker."""
    return encode_v1(
        MarkerV1(
            queue_id=b"jobs",
            type=MarkerType.START,
            partition=partition,
            offset=offset,
            redeliver_after_ms=lease_ms,
            key=b"jobs",
            value=value,
        )
    )


class Queue:
    """A queue topic and a markers topic of their own."""

    def __init__(self, here: Bench) -> None:
        self.name = f"jobs-{uuid.uuid4().hex[:8]}"
        self.markers = f"{self.name}-markers"
        self.servers = here.broker.bootstrap_servers
        config = {"bootstrap.servers": self.servers}
        self._producer = Producer({**config, "linger.ms": 0})
        topics = ClusterAdmin(config)
        topics.create({self.name: (PARTITIONS, {})})
        topics.ensure_markers(self.markers, partitions=PARTITIONS)

    def put(self, records: Iterable[Record]) -> None:
        """Append markers."""
        producer = Producer(
            {"bootstrap.servers": self.servers, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        )
        for partition, key, value in records:
            producer.produce(self.markers, value, key, partition)
            while len(producer) > 500_000:
                producer.poll(0.05)
        assert producer.flush(120) == 0

    def send(self, topic: str, partition: int, key: bytes, value: bytes) -> tuple[int, float]:
        """Append a record; its offset, and the broker's time in seconds."""
        stored: list[tuple[int, float]] = []
        self._producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=lambda _, message: stored.append(
                (message.offset() or 0, message.timestamp()[1] / 1000)
            ),
        )
        assert self._producer.flush(60) == 0
        return stored[0]

    @contextmanager
    def watched(self) -> Iterator[Tail]:
        """What trackers append to the queue."""
        with closing(Tail(self.servers, self.name, PARTITIONS)) as tail:
            yield tail


def own_tracker(here: Bench) -> Start:
    """``cursorq tracker``, for queues of kafka-mq-go."""

    def start(queue: Queue) -> AbstractContextManager[object]:
        topics = {
            "queue": queue.name,
            "markers": queue.markers,
            "redeliveries": f"{queue.name}-redeliveries",
            "cursors": f"{queue.name}-cursors",
        }
        return tracker_process(here, topics, redelivery="reappend")

    return start


def their_tracker(here: Bench, programs: Programs) -> Start:
    """The tracker that kafka-mq-go's checkout contains."""

    def start(queue: Queue) -> AbstractContextManager[object]:
        directory = here.scratch / f"theirs-{uuid.uuid4().hex}"
        directory.mkdir()
        config = configure(
            directory,
            servers=queue.servers,
            queue=queue.name,
            markers=queue.markers,
            lease_ms=LEASE_MS,
            offsets_per_commit=1_000,  # its default
        )
        return running([str(programs.tracker), "-config", str(config)], directory / "log", {})

    return start
