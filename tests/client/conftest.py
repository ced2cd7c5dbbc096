"""What the tests of the client share: clients, and queues with a tracker that needs no JVM."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from spark_cursor_source.client import Client, QueueConsumer, QueueMessage, Service, ServiceConfig
from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.kafka.control_plane import new_control
from tests.kafka.queue_rig import QueueRig
from tests.waiting import PATIENCE_S, wait_until

OpenClient = Callable[..., Client]
Id = tuple[int, int]  #: partition and offset


@pytest.fixture(scope="module")
def config(broker: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture(scope="module")
def streams_topic() -> str:
    """The name of a streams topic that is not there yet."""
    return f"streams-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def open_client(config: dict[str, str], streams_topic: str) -> Iterator[OpenClient]:
    """``open_client(clientTimeout="1s")``: one more client of the session's broker."""
    made: list[Client] = []

    def make(**options: str) -> Client:
        servers = {"kafka.bootstrap.servers": config["bootstrap.servers"]}
        made.append(Client({**servers, "streamsTopic": streams_topic, **options}))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="module")
def client(open_client: OpenClient) -> Client:
    """One for all tests of a module: a new one takes a second to publish for the first time."""
    return open_client()


@pytest.fixture
def stream(client: Client) -> str:
    """A stream of three partitions."""
    name = f"stream-{uuid.uuid4().hex[:12]}"
    client.create_stream(name, 3)
    return name


class Rig(QueueRig):
    """A queue and its clients."""

    def service(self, **more: Any) -> Service:
        settings: dict[str, Any] = {
            "bootstrap_servers": self.control.config["bootstrap.servers"],
            "message_topic": self.topic,
            "marker_topic": self.control.markers,
            "redeliveries_topic": self.control.redeliveries,
            "cursors_topic": self.control.cursors,
            "consumer_receive_buffer_capacity": 10,
            "session_timeout_ms": 6_000,
            **self.control.groups,
        }
        return Service(ServiceConfig(**(settings | more)))

    def consumer(self, id: str | None = None, subscription: str = "s", **more: Any) -> QueueConsumer:
        queue = self.service(**more).queue(id, subscription=subscription)
        return self.stack.enter_context(queue.consumer())

    def send(self, *payloads: bytes, id: str | None = None) -> list[Id]:
        """Send messages and say where they are."""
        with self.service().queue(id, subscription="s").producer() as producer:
            acks = [producer.send(payload) for payload in payloads]
        return [(ack.partition, ack.offset or 0) for ack in acks]


def receive(consumer: QueueConsumer, count: int, *, seconds: float = PATIENCE_S) -> list[QueueMessage]:
    """So many messages, or an error that says how many came."""
    found: list[QueueMessage] = []

    def done() -> bool:
        message = consumer.receive(500)
        if message is not None:
            found.append(message)
        return len(found) >= count

    wait_until(done, timeout_s=seconds)
    return found


def until_paused(consumer: QueueConsumer, topic: str, *partitions: int) -> None:
    """Wait until the consumer knows of the pause of these partitions: from then on it starts none of them."""
    wait_until(lambda: consumer._feed._states.view.paused_in(topic) == set(partitions))


def ids(messages: Sequence[QueueMessage]) -> list[Id]:
    return sorted((message.partition, message.offset) for message in messages)


def in_turn(count: int) -> list[dict[str, Any]]:
    """Records for the partitions 0 and 1 in turn."""
    return [{"value": b"%d" % number, "partition": number % 2} for number in range(count)]


def counts(messages: Sequence[QueueMessage]) -> Counter[int]:
    return Counter(message.delivery_count for message in messages)


@pytest.fixture
def make_rig(broker: EmbeddedKafka) -> Iterator[Callable[..., Rig]]:
    """``make_rig(partitions=1, config=None)``: a queue without a tracker."""
    with ExitStack() as stack:

        def make(partitions: int = 1, config: dict[str, str] | None = None) -> Rig:
            rig = Rig(new_control(config or {"bootstrap.servers": broker.bootstrap_servers}), partitions)
            stack.enter_context(rig.stack)
            return rig

        yield make


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """A queue of two partitions whose tracker runs."""
    made = make_rig(2)
    made.tracker()
    return made


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"
