"""Trackers of older queues, which append a message to its queue again: a backlog, and lateness.

Ours and theirs read the same markers, in turns, each in a process and from topics of its own. They are judged
by what they append to the queue. The messages that they are to append are in the queue, since some trackers
read them there.

Backlog: the time from the start of a tracker until a message at the end of each partition is in the queue
again. The same without a backlog is the start. It is not taken off, since it varies as much as a fast tracker
takes for a million markers. Lateness: how long after its lease a message is in the queue again. Other markers
go on arriving meanwhile, since they are the clock of some trackers.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass

from confluent_kafka import Producer

from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.benchmarks.common import PARTITIONS, Bench, append
from tests.benchmarks.report import Figure, Median
from tests.benchmarks.standalone import Tail, at, tracker_process

FIRST = 10_000_000  #: offset of the first message of the backlog, beyond those that are in the queue
ROUNDS = 100
ROUNDS_AFTER = 30  #: three seconds, in which markers go on arriving
LEASE_MS = 1_000
PATIENCE_S = 60

Record = tuple[int, bytes, bytes]  #: (partition of the markers topic, key, value)
Start = Callable[["Queue"], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of older queues."""

    name: str
    marker_format: str  #: the option of our tracker
    begun: Callable[[int, int, bytes, int], Record]  #: Start of (partition, offset, value, lease in ms)
    backlog: Callable[[], Iterable[Record]]  #: a Start and an End of each message
    markers: int  #: of the backlog
    shortest_lease_ms: int


def figures(here: Bench, kind: Kind, theirs: Start | None) -> list[Figure]:
    """Measure our tracker, and theirs if there is one."""
    trackers = {"ours": own_tracker(here, kind)} | ({"theirs": theirs} if theirs else {})
    seconds: dict[str, list[float]] = {name: [] for name in trackers}
    starts: dict[str, list[float]] = {name: [] for name in trackers}
    late: dict[str, list[list[float]]] = {name: [] for name in trackers}
    for _ in range(here.runs):
        for name, start in trackers.items():
            starts[name].append(back_s(Queue(here, kind), [], start))
            seconds[name].append(back_s(Queue(here, kind), kind.backlog(), start))
            late[name].append(lateness_s(Queue(here, kind), start))
    rates = {name: Median.of(found).of_count(kind.markers) for name, found in seconds.items()}
    what = f"append to the queue after the lease of a marker of {kind.name}"
    return [
        figure(f"backlog of {kind.markers:,} markers of {kind.name}, with the start", "/s", rates, kind),
        figure(f"start of a tracker for {kind.name}, until messages are back", "s", medians(starts), kind),
        *(
            figure(
                f"{what}, p{share * 100:.0f}",
                "ms",
                medians({name: [at(run, share) for run in runs] for name, runs in late.items()}),
                kind,
            )
            for share in (0.5, 0.99)
        ),
    ]


def medians(found: Mapping[str, Iterable[float]]) -> dict[str, Median]:
    return {name: Median.of(runs) for name, runs in found.items()}


def figure(what: str, unit: str, found: Mapping[str, float], kind: Kind) -> Figure:
    peer_is = f"{kind.name}'s tracker"
    return Figure(what=what, value=found["ours"], unit=unit, peer=found.get("theirs"), peer_is=peer_is)


def back_s(queue: Queue, backlog: Iterable[Record], start: Start) -> float:
    """From the start of a tracker until the messages at the end of each partition are back."""
    queue.put(backlog)
    last = [f"last of {number}".encode() for number in range(PARTITIONS)]
    for number, value in enumerate(last):
        queue.begin(number, value, queue.kind.shortest_lease_ms)
    with queue.watched() as tail:
        began = time.time()
        with start(queue):
            return max(until_back(tail, value) for value in last) - began


def lateness_s(queue: Queue, start: Start) -> list[float]:
    """From the end of each lease, in the broker's time, until the message is in the queue again."""
    with queue.watched() as tail, start(queue):
        first = [f"first of {number}".encode() for number in range(PARTITIONS)]
        for number, value in enumerate(first):
            queue.begin(number, value, queue.kind.shortest_lease_ms)
        for value in first:
            until_back(tail, value)
        appended: dict[bytes, float] = {}
        for number in range(ROUNDS + ROUNDS_AFTER):
            time.sleep(random.uniform(0.05, 0.15))
            value = b"message %d" % number
            appended[value] = queue.begin(number % PARTITIONS, value, LEASE_MS)
        measured = list(appended.items())[:ROUNDS]
        return [until_back(tail, value) - at_s - LEASE_MS / 1000 for value, at_s in measured]


def until_back(tail: Tail, value: bytes) -> float:
    """When the message was in the queue for the second time, as a time of this machine."""
    until = time.monotonic() + PATIENCE_S
    while len(found := [one for one in tail.seen if one.value == value]) < 2:
        assert time.monotonic() < until, f"{value!r} does not come back"
        time.sleep(0.005)
    return found[1].at_s


class Queue:
    """A queue topic and a markers topic of their own."""

    def __init__(self, here: Bench, kind: Kind) -> None:
        self.kind = kind
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

    def begin(self, partition: int, message: bytes, lease_ms: int) -> float:
        """Append a message and its Start marker; the broker's time of the marker, in seconds."""
        offset, _ = append(self._producer, self.name, partition, b"jobs", message)
        return append(self._producer, self.markers, *self.kind.begun(partition, offset, message, lease_ms))[1]

    @contextmanager
    def watched(self) -> Iterator[Tail]:
        """Messages of the queue, and what trackers append to it."""
        with closing(Tail(self.servers, self.name, PARTITIONS)) as tail:
            yield tail


def own_tracker(here: Bench, kind: Kind) -> Start:
    """``cursorq tracker``, for older queues."""

    def start(queue: Queue) -> AbstractContextManager[object]:
        topics = {
            "queue": queue.name,
            "markers": queue.markers,
            "redeliveries": f"{queue.name}-redeliveries",
            "cursors": f"{queue.name}-cursors",
        }
        return tracker_process(here, topics, redelivery="reappend", markerFormat=kind.marker_format)

    return start
