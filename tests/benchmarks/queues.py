"""(i) A queue of the plain client, an ack of each message, against a bare loop of the Kafka client.

The loop does the least that a consumer can: it takes a thousand at once, looks at each value, and commits a
position asynchronously, so that of a thousand messages it can ack all or none.
"""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.synchronize import Event

from confluent_kafka import Consumer

from spark_cursor_source.client import QueueConsumer, Service, ServiceConfig
from spark_cursor_source.kafka.config_roles import reader_config
from spark_cursor_source.tracker import Tracker
from tests.benchmarks.common import Bench, medians
from tests.benchmarks.report import Figure

MESSAGES = 1_000_000
BLOCKING = 2_000
BUFFER = 20_000  #: messages that wait to be received, and that share a Start at most
POLLED = 1_000


def run(here: Bench) -> list[Figure]:
    servers = here.broker.bootstrap_servers
    topic = here.fill(MESSAGES)
    suffix = uuid.uuid4().hex[:8]
    names = {part: f"{part}-{suffix}" for part in ("markers", "redeliveries", "cursors")}
    tracker = {f"{part}Topic": name for part, name in names.items()}

    def queue(count: int, work: Callable[[QueueConsumer], None], buffer: int = BUFFER) -> float:
        config = ServiceConfig(
            bootstrap_servers=servers,
            message_topic=topic,
            marker_topic=names["markers"],
            redeliveries_topic=names["redeliveries"],
            cursors_topic=names["cursors"],
            consumer_receive_buffer_capacity=buffer,
            consumer_max_messages_per_commit=buffer,
        )
        subscription = f"s-{uuid.uuid4().hex[:8]}"
        with Service(config).queue(subscription=subscription).consumer() as consumer:
            first = None
            while first is None:
                first = consumer.receive()
            began = time.perf_counter()
            first.ack()
            work(consumer)
            return count / (time.perf_counter() - began)

    def each_later(consumer: QueueConsumer) -> None:
        left = MESSAGES - 1
        while left:
            message = consumer.receive()
            if message is not None and message.payload:
                message.ack_async()
                left -= 1
        consumer.flush()

    def each_now(consumer: QueueConsumer) -> None:
        for _ in range(BLOCKING):
            message = consumer.receive()
            if message is not None and message.payload:
                message.ack()

    with _tracker({"kafka.bootstrap.servers": servers, **tracker}):
        later, bare, polled, tuned = medians(
            here,
            lambda: queue(MESSAGES, each_later),
            lambda: _bare(servers, topic, POLLED),
            lambda: _bare(servers, topic, 1),
            lambda: _bare(servers, topic, POLLED, tuned=True),
        )
        now, synced = medians(
            here,
            lambda: queue(BLOCKING, each_now),
            lambda: _bare(servers, topic, 1, messages=BLOCKING, wait=True),
        )
    loop, each = "bare loop: consume(1000), value, commit", "bare loop: consume(1), value, commit of each"
    return [
        Figure(what="receive, payload, ack_async of each", value=later, unit="/s", peer=bare, peer_is=loop),
        Figure(what="receive, payload, ack of each", value=now, unit="/s", peer=synced, peer_is=each),
        Figure(what="bare loop: consume(1)", value=polled, unit="/s", peer=bare, peer_is=loop),
        Figure(what="bare loop, settings of our reader", value=tuned, unit="/s", peer=bare, peer_is=loop),
    ]


@contextmanager
def _tracker(options: Mapping[str, object]) -> Iterator[None]:
    """One in a process of its own, as trackers are: in ours it would take turns with the consumer."""
    spawning = multiprocessing.get_context("spawn")
    enough = spawning.Event()
    process = spawning.Process(target=_track, args=(options, enough))
    process.start()
    try:
        yield
    finally:
        enough.set()
        process.join()


def _track(options: Mapping[str, object], enough: Event) -> None:
    with Tracker(options):
        enough.wait()


def _bare(
    servers: str,
    topic: str,
    at_once: int,
    *,
    tuned: bool = False,
    messages: int = MESSAGES,
    wait: bool = False,
) -> float:
    """Messages a second, from the first one to the last and its commit."""
    settings = reader_config({}) | {"enable.partition.eof": "false"} if tuned else {}
    consumer = Consumer(
        settings
        | {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": True,  # what commit() commits
        }
    )
    consumer.subscribe([topic])
    began, count, uncommitted = None, 0, 0
    while count < messages:
        found = consumer.consume(at_once, 1.0)
        began = began or (time.perf_counter() if found else None)
        for message in found:
            if message.value():
                count += 1
                uncommitted += 1
        if found and wait:
            consumer.commit(asynchronous=False)
        elif uncommitted >= POLLED:
            consumer.commit(asynchronous=True)
            uncommitted = 0
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
    taken = time.perf_counter() - (began or 0)
    consumer.close()
    return messages / taken
