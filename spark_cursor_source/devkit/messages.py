"""Sends messages to a queue topic, confirmed by its brokers, for jobs, demos and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from spark_cursor_source.errors import MessagesNotDurable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config, open_client
from spark_cursor_source.kafka.config_roles import abandon
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import error_of, shown

FLUSH_TIMEOUT_MS = 60_000
_POLL_S = 0.1


@dataclass(slots=True)
class _Unconfirmed:
    """Counts of sent and confirmed messages, and the last error."""

    sent: int = 0
    confirmed: int = 0
    why: str = ""

    def on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.confirmed += 1
        else:
            self.why = shown(error)


def ensure_topic(kafka: Mapping[str, str], topic: str, *, partitions: int) -> int:
    """Creates the topic if it does not exist. Returns its partition count."""
    topics = ClusterAdmin(client_config(kafka, "admin"))
    topics.create({topic: (partitions, {})})
    return topics.describe([topic])[topic].partitions


def send_messages(
    kafka: Mapping[str, str], topic: str, messages: Iterable[tuple[bytes | None, bytes | None]]
) -> int:
    """Appends (key, value) messages, those of one key to one partition. Returns the confirmed number.

    Raises:
        MessagesNotDurable: not all messages are confirmed.
    """
    producer = open_client(Producer, {"linger.ms": "20", **client_config(kafka, "producer")})
    unconfirmed = _Unconfirmed()
    try:
        for key, value in messages:
            _produce(producer, topic, key, value, unconfirmed)
        deadline = Deadline.after_ms(FLUSH_TIMEOUT_MS)
        while len(producer) and not deadline.over:
            producer.flush(deadline.left_s(most=1.0))
    except KafkaException as raised:
        raise _not_durable(topic, unconfirmed, shown(error_of(raised))) from raised
    finally:
        abandon(producer)
    if unconfirmed.confirmed < unconfirmed.sent:
        raise _not_durable(topic, unconfirmed, f"no answer in {FLUSH_TIMEOUT_MS} ms")
    return unconfirmed.confirmed


def _produce(
    producer: Producer, topic: str, key: bytes | None, value: bytes | None, unconfirmed: _Unconfirmed
) -> None:
    deadline = Deadline.after_ms(FLUSH_TIMEOUT_MS)
    unconfirmed.sent += 1
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=unconfirmed.on_delivery)
            producer.poll(0)
            return
        except BufferError as full:
            if deadline.over:
                raise _not_durable(topic, unconfirmed, "the producer's queue is full") from full
            producer.poll(_POLL_S)


def _not_durable(topic: str, unconfirmed: _Unconfirmed, why: str) -> MessagesNotDurable:
    return MessagesNotDurable(topic, unconfirmed.sent - unconfirmed.confirmed, unconfirmed.why or why)
