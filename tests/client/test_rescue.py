"""Rescue before retention: what retention takes from a queue topic before it is acked is delivered anyway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.client.conftest import Rig, ids, receive
from tests.conftest import READY_S, end_clients
from tests.kafka.control_plane import new_control, read_all
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

#: retention is looked at often, and what it takes is gone at once
PROPERTIES = {
    "auto.create.topics.enable": False,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 100,
    "log.cleaner.backoff.ms": 300,
}
RETENTION_MS = 4_000
SHORT = {"retention.ms": RETENTION_MS, "segment.ms": 500, "retention.bytes": -1}
RESCUE = {"rescueBefore": "3s"}
SETTLE_S = 60.0

MakeShort = Callable[..., "ShortRig"]


class ShortRig(Rig):
    """A queue topic that keeps its messages for seconds, with a rescue topic of its own."""

    settings: dict[str, Any] = SHORT

    def __post_init__(self) -> None:
        super().__post_init__()
        self.topics.delete(self.topic)
        wait_until(lambda: not self.topics.existing([self.topic]))
        self.topics.create({self.topic: (self.partitions, dict(self.settings))})

    @property
    def rescue_topic(self) -> str:
        return f"rescue-{self.control.name}"

    def tracker(self, **options: object) -> None:
        super().tracker(**(RESCUE | {"rescueTopic": self.rescue_topic} | options))

    def service(self, **more: Any) -> Any:
        return super().service(**({"rescue_topic": self.rescue_topic} | more))

    def subscribe(self, subscription: str = "s") -> None:
        """Create a subscription and leave it."""
        with self.service().queue(None, subscription=subscription).consumer():
            wait_until(lambda: len(self.cursors(subscription)) == self.partitions)

    def begins(self) -> list[int]:
        places = [(self.topic, number) for number in range(self.partitions)]
        return list(self.topics.beginning_offsets(places).values())

    def until_removed(self, count: int) -> None:
        """Wait until retention has taken so many messages."""
        wait_until(lambda: sum(self.begins()) >= count, timeout_s=SETTLE_S)

    def copies(self) -> dict[bytes, bytes]:
        """The records of the rescue topic that are not deleted."""
        found: dict[bytes, bytes] = {}
        for record in read_all(self.control.config, self.rescue_topic):
            if record.value() is None:
                found.pop(record.key(), None)
            else:
                found[record.key()] = record.value()
        return found


@pytest.fixture(scope="module")
def short_broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=PROPERTIES, ready_timeout_s=READY_S) as running:
        yield running
        end_clients()


@pytest.fixture
def make_short(short_broker: EmbeddedKafka) -> Iterator[MakeShort]:
    with ExitStack() as stack:

        def make(partitions: int = 1, kind: type[ShortRig] = ShortRig) -> ShortRig:
            rig = kind(new_control({"bootstrap.servers": short_broker.bootstrap_servers}), partitions)
            stack.enter_context(rig.stack)
            return rig

        yield make


def test_a_stopped_subscription_gets_every_message_that_retention_has_taken(make_short: MakeShort) -> None:
    # subscribe, stop | 200 messages | retention takes all | start: 200 messages | acked: the copies are gone
    rig = make_short(2)
    rig.tracker()
    rig.subscribe()
    producer = Producer(rig.control.config)
    for number in range(200):
        producer.produce(
            rig.topic,
            key=b"key-%d" % number,
            value=None if number % 7 == 0 else b"value-%d" % number,
            headers=[("one", b"1"), ("none", None)],
            timestamp=1_000 * round(time.time()) + number,
        )
    producer.flush(30)
    rig.until_removed(200)
    consumer = rig.consumer(consumer_receive_buffer_capacity=50)
    messages = receive(consumer, 200)
    assert len(set(ids(messages))) == 200
    by_key = {message.key: message for message in messages}
    assert by_key[b"key-7"].payload is None
    assert by_key[b"key-8"].payload == b"value-8"
    assert list(by_key[b"key-8"].headers) == [("one", b"1"), ("none", None)]
    assert by_key[b"key-8"].timestamp_ms % 1_000 == 8
    assert {message.delivery_count for message in messages} == {1}
    for partition in range(2):
        offsets = [message.offset for message in messages if message.partition == partition]
        assert offsets == sorted(offsets)
    for message in messages:
        message.ack_async()
    consumer.flush()
    rig.all_acked(200)
    wait_until(lambda: not rig.copies(), "the copies are freed", timeout_s=SETTLE_S)
    assert ClusterAdmin(rig.control.config).settings(rig.rescue_topic)["cleanup.policy"] == "compact"
