"""A transactional producer whose brokers go away."""

from __future__ import annotations

import gc
import threading
import time
import uuid
from functools import partial

import pytest
from confluent_kafka import Producer, TopicPartition

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import KafkaRefused, KafkaUnavailable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain
from tests.conftest import READY_S, CreateTopic
from tests.kafka_version import KAFKA
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_a_producer_that_has_lost_its_only_broker_is_given_up_for_one_that_finds_it(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    # A lone broker that was fenced for a moment may be lost to a client. Here another one takes its place.
    topic, deadline = create_topic(), Deadline.after_ms(120_000)
    record = Record(topic, 0, None, b"value")
    with EmbeddedKafka(properties={"auto.create.topics.enable": False}, ready_timeout_s=READY_S) as former:
        at_former = {"bootstrap.servers": former.bootstrap_servers}
        ClusterAdmin(at_former).create({topic: (1, {})})
        lost = TransactionalProducer(at_former | {"log_level": "0"}, uuid.uuid4().hex)
        lost.open(deadline)
        assert lost.commit([record], [], deadline)
    lost._config |= config
    began = time.monotonic()
    with pytest.raises(Uncertain, match="only a new producer"):
        lost.commit([record], [], deadline)
    assert time.monotonic() - began < 20  # about 4 s; 30 s without the look
    assert not lost.is_open


def test_after_a_refused_record_and_a_paused_broker_a_producer_goes_on_and_says_what_happened_now(
    mortal: EmbeddedKafka,
) -> None:
    config, topic = {"bootstrap.servers": mortal.bootstrap_servers}, uuid.uuid4().hex
    ClusterAdmin(config).create({topic: (1, {"max.message.bytes": 1_000})})
    deadline = Deadline.after_ms(120_000)
    producer = TransactionalProducer(config | {"log_level": "0"}, topic, call_timeout_ms=5_000)
    producer.open(deadline)
    place = id(producer._confirmed.current)
    assert a_producer_is_at(place)
    with pytest.raises(KafkaRefused, match="MSG_SIZE_TOO_LARGE") as refused:
        producer.commit([Record(topic, 0, None, bytes(5_000))], [], deadline)
    # A producer that lives on with the error that is kept would fence the next one when the broker goes on.
    assert not a_producer_is_at(place), refused
    mortal.pause()
    try:
        with pytest.raises(KafkaUnavailable) as unavailable:
            producer.open(Deadline.after_ms(2_000))
    finally:
        mortal.resume()
    assert "MSG_SIZE_TOO_LARGE" not in str(unavailable.value)
    assert "PURGE" not in str(unavailable.value)
    producer.open(deadline)
    assert producer.commit([Record(topic, 0, None, b"value")], [], deadline)
    producer.discard()


@pytest.mark.skipif(KAFKA < (4, 0), reason="an abort waits for the coordinator of the group")
def test_a_coordinator_that_does_not_answer_keeps_one_producer_and_no_more() -> None:
    # offsets are committed | the coordinator of the group is paused | attempts | it goes on | an attempt
    alone = {"offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1}
    settings = alone | {"transaction.state.log.min.isr": 1}
    with EmbeddedKafka(brokers=3, properties=settings, ready_timeout_s=READY_S) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap_servers}
        group, topic = uuid.uuid4().hex, uuid.uuid4().hex
        topics = ClusterAdmin(config)
        topics.create_new(topic, 3, {}, replication=1)
        topics.commit(group, {(topic, 0): 0})
        away = cluster.coordinator(group)
        assert away is not None
        number = next(number for number, (leader, _, _) in topics.placements(topic).items() if leader != away)

        def attempt(producer: TransactionalProducer) -> str:
            """Return the error of an attempt to commit, or an empty text."""
            deadline = Deadline.after_ms(60_000)
            try:
                producer.open(deadline)
                record = Record(topic, number, None, b"value")
                assert producer.commit([record], [TopicPartition(topic, 0, 1)], deadline)
            except Uncertain as failed:
                return str(failed)
            return ""

        def commits(producer: TransactionalProducer) -> bool:
            return not attempt(producer)

        while True:
            name = uuid.uuid4().hex
            producer = TransactionalProducer(
                config | {"log_level": "0"}, group, transactional_id=name, call_timeout_ms=2_000
            )
            wait_until(partial(commits, producer))
            if cluster.transaction_coordinator(name) != away:
                break
            producer.discard()
        cluster.pause(away)
        try:
            for _ in range(3):
                wait_until(lambda: "the group's coordinator does not answer" in attempt(producer))
        finally:
            cluster.resume(away)
        assert sum(one.name == "cursorq-transaction" for one in threading.enumerate()) <= 1
        wait_until(partial(commits, producer))
        producer.discard()


def test_a_producer_ends_with_a_transaction_whose_check_fails(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    deadline = Deadline.after_ms(120_000)
    producer = TransactionalProducer(config, uuid.uuid4().hex)
    producer.open(deadline)
    place = id(producer._confirmed.current)
    with pytest.raises(ZeroDivisionError) as kept:
        producer.commit([Record(create_topic(), 0, None, b"v")], [], deadline, inspect=lambda _: bool(1 / 0))
    assert not a_producer_is_at(place), kept
    assert not producer.is_open


def a_producer_is_at(place: int) -> bool:
    """Whether a producer lives at this address."""
    return any(id(one) == place and isinstance(one, Producer) for one in gc.get_objects())
