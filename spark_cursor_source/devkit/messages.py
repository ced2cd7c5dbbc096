"""Sends messages to a queue topic, confirmed by its brokers, for jobs, demos and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaException

from spark_cursor_source.core.names import MAX_PARTITIONS
from spark_cursor_source.errors import MessagesNotDurable
from spark_cursor_source.kafka.admin import ClusterAdmin, meet_brokers
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer, Rejected, Unconfirmed
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import error_of, shown
from spark_cursor_source.options.arguments import check_headers, check_number, check_topic
from spark_cursor_source.topics.message_sender import ANY_PARTITION

FLUSH_TIMEOUT_MS = 60_000


def ensure_topic(kafka: Mapping[str, str], topic: str, *, partitions: int) -> int:
    """Creates the topic if it does not exist. Returns its partition count.

    A new topic has ``partitions`` partitions, and three replicas where there are three brokers. An existing
    topic is not changed.

    Example::

        from spark_cursor_source.devkit import ensure_topic, send_messages

        kafka = {"bootstrap.servers": "broker:9092"}
        ensure_topic(kafka, "orders", partitions=2)
        send_messages(kafka, "orders", [(b"customer-1", b"an order")])

    Raises:
        InvalidArgument: Kafka has no topic of this name, or of so many partitions.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    check_topic("topic", topic)
    check_number("partitions", partitions, least=1, most=MAX_PARTITIONS)
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    topics.create({topic: (partitions, {})})
    return topics.describe([topic])[topic].partitions


def send_messages(
    kafka: Mapping[str, str],
    topic: str,
    messages: Iterable[tuple[bytes | None, bytes | None]],
    *,
    headers: Sequence[tuple[str, str | bytes | None]] = (),
) -> int:
    """Appends (key, value) messages, those of one key to one partition. Returns the confirmed number.

    Each message gets the ``headers``.

    Raises:
        InvalidArgument: Kafka has no topic of this name, or the name of a header has no UTF-8 bytes.
        KafkaUnavailable: no broker answers the first call of this process. The error comes after seconds.
        MessagesNotDurable: not all messages are confirmed within 60 s.
    """
    check_topic("topic", topic)
    own_headers = list(check_headers(headers)) or None
    meet_brokers(kafka)
    confirmed = ConfirmedProducer(
        {"linger.ms": "20", **client_config(kafka, "producer")}, patience_ms=FLUSH_TIMEOUT_MS
    )
    producer, unconfirmed, sent = confirmed.open(), Unconfirmed(), 0
    try:
        for key, value in messages:
            confirmed.send_counted(producer, (topic, key, value, ANY_PARTITION, own_headers), unconfirmed)
            producer.poll(0)
            sent += 1
        confirmed.flush(producer, unconfirmed, Deadline.after_ms(FLUSH_TIMEOUT_MS))
        if unconfirmed.unsent:
            raise _not_durable(topic, unconfirmed, f"no answer in {FLUSH_TIMEOUT_MS} ms")
    except Rejected as rejected:
        raise _not_durable(topic, unconfirmed, rejected.why) from rejected
    except KafkaException as raised:
        raise _not_durable(topic, unconfirmed, shown(error_of(raised))) from raised
    finally:
        confirmed.discard()
    return sent


def _not_durable(topic: str, unconfirmed: Unconfirmed, why: str) -> MessagesNotDurable:
    return MessagesNotDurable(topic, unconfirmed.unsent, unconfirmed.why(why))
