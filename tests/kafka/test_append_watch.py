"""A fetch that waits: it gives notice of appends, also of open transactions, and of nothing else."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.append_watch import AppendWatch
from tests.kafka.control_plane import produce

pytestmark = pytest.mark.broker


@pytest.fixture
def config(broker: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topic(config: dict[str, str]) -> str:
    """A topic of two partitions, with a record in the first."""
    name = f"watched-{uuid.uuid4().hex[:8]}"
    ClusterAdmin(config).create({name: (2, {})})
    produce(config, name, [{"value": b"before", "partition": 0}])
    return name


@pytest.fixture
def watch(config: dict[str, str]) -> Iterator[AppendWatch]:
    made = AppendWatch(config)
    yield made
    made.close()


def test_an_append_is_noticed_and_the_records_before_are_not(
    watch: AppendWatch, config: dict[str, str], topic: str
) -> None:
    watch.begin({(topic, 0): 1, (topic, 1): 0})
    assert not watch.wait(0.7)
    produce(config, topic, [{"value": b"new", "partition": 1}])
    assert watch.wait(60)
    assert not watch.wait(0.7)
    watch.begin({(topic, 0): 1, (topic, 1): 1})  # nothing to do: it is there already
    produce(config, topic, [{"value": b"new", "partition": 0}])
    assert watch.wait(60)


def test_a_fetch_that_was_stopped_begins_at_the_ends_that_it_is_given(
    watch: AppendWatch, config: dict[str, str], topic: str
) -> None:
    watch.begin({(topic, 0): 1})
    watch.stop()
    produce(config, topic, [{"value": b"new", "partition": 0}])
    assert not watch.wait(0.2)
    watch.begin({(topic, 0): 2})
    assert not watch.wait(0.7)
    watch.begin({(topic, 0): 2, (topic, 1): 0})
    produce(config, topic, [{"value": b"new", "partition": 1}])
    assert watch.wait(60)


def test_records_and_the_end_of_a_transaction_are_noticed(
    watch: AppendWatch, config: dict[str, str], topic: str
) -> None:
    producer = Producer(config | {"transactional.id": topic})
    producer.init_transactions(20)
    watch.begin({(topic, 0): 1})
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    assert watch.wait(60)
    watch.begin({(topic, 0): 1})  # the last stable offset stands still while the transaction is open
    assert not watch.wait(0.7)
    producer.commit_transaction(20)
    assert watch.wait(60)


def test_a_notice_comes_in_milliseconds(watch: AppendWatch, config: dict[str, str], topic: str) -> None:
    watch.begin({(topic, 0): 1})
    assert not watch.wait(0.7)
    producer = Producer(config | {"linger.ms": 0})
    waits = []
    for _ in range(5):
        producer.produce(topic, b"new", partition=0)
        producer.flush()
        began = time.monotonic()
        assert watch.wait(60)
        waits.append(time.monotonic() - began)
    assert min(waits) < 0.4, "sooner than the broker answers a fetch without records"
