"""Brokers that may be stopped, or that ask who is there; control topics of a test's own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from spark_cursor_source.embedded import EmbeddedKafka
from spark_cursor_source.kafka.topics import Topics
from tests.kafka.control_plane import Control, login

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USERS = f'{_PLAIN} required username="admin" password="of-admin" user_admin="of-admin" user_bob="of-bob";'


@pytest.fixture
def config(broker: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topics(config: dict[str, str]) -> Topics:
    return Topics(config)


@pytest.fixture
def control(config: dict[str, str]) -> Control:
    return new_control(config)


@pytest.fixture
def make_control() -> Callable[[dict[str, str]], Control]:
    """Control topics on another broker than the suite's."""
    return new_control


@pytest.fixture
def create_on() -> Callable[..., str]:
    """``create_on(config, partitions, cleanup_policy="compact")``: a cursors topic on another broker."""

    def create(config: dict[str, str], partitions: int, **settings: object) -> str:
        name = f"cursors-{uuid.uuid4().hex[:12]}"
        Topics(config).create(
            {name: (partitions, {key.replace("_", "."): value for key, value in settings.items()})}
        )
        return name

    return create


@pytest.fixture(scope="session")
def mortal_broker() -> Iterator[EmbeddedKafka]:
    """A broker that tests may stop, kill and pause, as long as it runs when they end."""
    with EmbeddedKafka(
        properties={"auto.create.topics.enable": False, "log.cleaner.backoff.ms": 100}
    ) as running:
        yield running


@pytest.fixture
def mortal(mortal_broker: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    yield mortal_broker.start()
    mortal_broker.start()


@pytest.fixture(scope="session")
def guarded_broker() -> Iterator[EmbeddedKafka]:
    """A broker with passwords, where only ``admin`` may do anything."""
    properties = {
        "auto.create.topics.enable": False,
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": _USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with EmbeddedKafka(properties=properties, client_config=login("admin", "of-admin")) as running:
        yield running


def new_control(config: dict[str, str]) -> Control:
    names = Control(config=config, name=uuid.uuid4().hex[:12])
    Topics(config).ensure_control(
        markers=names.markers, redeliveries=names.redeliveries, cursors=names.cursors
    )
    return names
