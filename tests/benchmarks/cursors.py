"""(h) Cursors of the plain client, set and fetched one by one, against a bare produce and flush."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from statistics import median

from confluent_kafka import Producer

from spark_cursor_source.client import Client
from tests.benchmarks.common import Bench
from tests.benchmarks.report import Figure

CALLS = 1_000
STREAM_PARTITIONS = 20


def run(here: Bench) -> list[Figure]:
    servers = here.broker.bootstrap_servers
    topic = here.fill(4)
    cursors = f"cursors-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "enable.idempotence": True})
    options = {"kafka.bootstrap.servers": servers, "cursorsTopic": cursors}
    with Client(options) as client, Client(options) as other:

        def bare(number: int) -> None:
            producer.produce(topic, b"x" * 20, b"mailer,orders,%d" % number, partition=number % 4)
            assert producer.flush(10) == 0

        calls: dict[str, Callable[[int], object]] = {
            "bare produce and flush": bare,
            "set_cursor": lambda n: client.set_cursor("mailer", "orders", n % STREAM_PARTITIONS, n),
            "fetch_cursor, nothing new": lambda n: client.fetch_cursor("mailer", "orders", n % 20),
            "set_cursor, and fetch_cursor of another client": lambda n: _there_and_back(client, other, n),
        }
        took: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(here.runs + 1):
            for name, call in calls.items():
                found = _seconds(call)
                if number:  # the first run of each warms up
                    took[name] += found
    bare_ms, *_ = (median(figures) * 1000 for figures in took.values())
    return [
        Figure(
            what=f"{name}, p50",
            value=median(figures) * 1000,
            unit="ms",
            peer=None if name.startswith("bare") else bare_ms,
            peer_is="" if name.startswith("bare") else "bare produce and flush",
        )
        for name, figures in took.items()
    ]


def _there_and_back(client: Client, other: Client, number: int) -> None:
    client.set_cursor("mailer", "orders", 0, number)
    assert other.fetch_cursor("mailer", "orders", 0) == number


def _seconds(call: Callable[[int], object]) -> list[float]:
    taken = []
    for number in range(CALLS):
        began = time.perf_counter()
        call(number)
        taken.append(time.perf_counter() - began)
    return taken
