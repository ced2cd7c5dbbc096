"""(l) The operator's page: 1,000 subscriptions, ten million outstanding messages, against read_stats."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from statistics import median

import numpy as np
from confluent_kafka import Producer
from starlette.testclient import TestClient

from spark_cursor_source.admin import TopicMetrics, read_stats
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.marker import Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.control_topics import DEFAULT_PARTITIONS
from spark_cursor_source.metrics import openmetrics
from spark_cursor_source.ui import Collector, UiSettings, create_app
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.benchmarks.common import Bench
from tests.benchmarks.report import Figure

SUBSCRIPTIONS = 1_000
OUTSTANDING = 10_000  #: of each subscription
FAILURES = 100  #: markers with an error, of each subscription
REQUESTS = 30
SCRAPES = 5


def run(here: Bench) -> list[Figure]:
    few, many = _Page(here, 10), _Page(here, SUBSCRIPTIONS)
    what = f"{SUBSCRIPTIONS:,} subscriptions, {SUBSCRIPTIONS * OUTSTANDING:,} outstanding"
    found = []
    try:
        for name, path in many.paths().items():
            small, large = (sorted(page.seconds(path)) for page in (few, many))
            p50, p99 = median(large) * 1000, large[int(len(large) * 0.99)] * 1000
            of_few = median(small) * 1000
            found += [
                Figure(what=f"{name}, p50", value=p50, unit="ms", peer=of_few, peer_is="of 10 subscriptions"),
                Figure(what=f"{name}, p99", value=p99, unit="ms"),
            ]
        found.append(Figure(what=f"{what}: read_stats", value=many.stats_s))
        found.append(Figure(what=f"{what}: first snapshot", value=many.first_s))
        found.append(Figure(what=f"{what}: first scrape of the metrics", value=many.scrapes_s[0]))
        found.append(Figure(what=f"{what}: later scrape of the metrics", value=median(many.scrapes_s[1:])))
    finally:
        few.close()
        many.close()
    return found


class _Page:
    def __init__(self, here: Bench, subscriptions: int) -> None:
        name = uuid.uuid4().hex[:8]
        kafka = {"bootstrap.servers": here.broker.bootstrap_servers}
        self._topic = here.fill(OUTSTANDING * 2 + 1_000, partitions=1)
        self._settings = UiSettings(
            kafka=kafka,
            markers_topic=f"markers-{name}",
            redeliveries_topic=f"redeliveries-{name}",
            cursors_topic=f"cursors-{name}",
        )
        names = self._settings
        ClusterAdmin(kafka).ensure_control(
            markers=names.markers_topic, redeliveries=names.redeliveries_topic, cursors=names.cursors_topic
        )
        self._fill(kafka, subscriptions)
        began = time.perf_counter()
        read_stats(
            kafka,
            markers_topic=names.markers_topic,
            redeliveries_topic=names.redeliveries_topic,
            cursors_topic=names.cursors_topic,
        )
        self.stats_s = time.perf_counter() - began
        self.scrapes_s = self._scrape(kafka)
        self._collector = Collector(self._settings).start()
        began = time.perf_counter()
        _wait(lambda: bool(self._collector.snapshot.rows))
        self.first_s = time.perf_counter() - began
        app = create_app(self._collector, self._settings)
        self._client = TestClient(app, base_url="http://localhost")

    def _scrape(self, kafka: dict[str, str]) -> list[float]:
        taken = []
        with TopicMetrics(kafka, **self._settings.names) as topics:
            for _ in range(SCRAPES):
                began = time.perf_counter()
                openmetrics(topics.read())
                taken.append(time.perf_counter() - began)
        return taken

    def _fill(self, kafka: dict[str, str], subscriptions: int) -> None:
        pick = np.random.default_rng(3)
        producer = Producer(kafka | {"linger.ms": 20})
        for number in range(subscriptions):
            offsets = pick.permutation(OUTSTANDING * 2)[:OUTSTANDING].astype(np.uint64)
            cursor = CursorSnapshot(
                cell=Cell(subscription=f"subscription-{number:04}", topic=self._topic, partition=0),
                read_position=OUTSTANDING * 2,
                next_marker=0,
                leases=((Lease(2_000_000_000_000, 1 + number % 4, "run"), OffsetSet.from_offsets(offsets)),),
            )
            producer.produce(
                self._settings.cursors_topic, cursor_wire.encode(cursor), cursor.cell.key, partition=0
            )
            self._fail(producer, cursor.cell, offsets, 1 + number % 4)
            producer.poll(0)
        assert producer.flush(60) == 0

    def _fail(self, producer: Producer, cell: Cell, offsets: np.ndarray, count: int) -> None:
        for at in range(FAILURES):
            release = Release(
                cell=cell,
                offsets=OffsetSet.from_offsets(offsets[at::FAILURES]),
                delivery_count=count,
                reason=f"BankClosed: account {at}",
            )
            home = cell.control_partition(DEFAULT_PARTITIONS)
            producer.produce(
                self._settings.markers_topic, marker_wire.encode(release), cell.key, partition=home
            )
            producer.poll(0)

    def paths(self) -> dict[str, str]:
        one = f"topic={self._topic}&name=subscription-0007"
        return {
            "overview, 200 rows": "/",
            "overview, all rows": "/?rows=all",
            "a subscription with its hole map": f"/subscription?{one}",
            "zoom to messages": f"/subscription?{one}&partition=0&from=5000&to=5600",
            "oldest with last errors": "/stuck",
            "JSON of all": "/api/stats",
        }

    def seconds(self, path: str) -> list[float]:
        path = path.replace(path.partition("topic=")[2].partition("&")[0] or "\0", self._topic)
        taken = []
        for _ in range(REQUESTS):
            began = time.perf_counter()
            answer = self._client.get(path)
            taken.append(time.perf_counter() - began)
            assert answer.status_code == 200, answer.text
        return taken

    def close(self) -> None:
        self._collector.close()


def _wait(done: Callable[[], bool], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "no snapshot"
        time.sleep(0.02)
