"""Sender of messages to queue topics for the tasks of a write. The brokers confirm each message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from spark_cursor_source.errors import (
    CursorqError,
    MessageRefused,
    MessagesNotDurable,
    NoSuchPartition,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin_requests import DENIAL_MS
from spark_cursor_source.kafka.config_roles import producer_config
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer, Rejected
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.error_codes import (
    RETRIABLE,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    acl,
    error_of,
    refusal,
    shown,
)
from spark_cursor_source.kafka.partition_count import partition_count
from spark_cursor_source.kafka.pool import ClientPool

ANY_PARTITION = -1  #: by murmur2 of the key, as in Kafka's Java producer; a random partition without a key

_DEFAULTS = {
    "message.timeout.ms": PATIENCE_MS,
    "queue.buffering.max.kbytes": 64 << 10,
    "queue.buffering.max.messages": 200_000,
}

Headers = list[tuple[str, str | bytes | None]] | None
Row = tuple[str, bytes | None, bytes | None, int, Headers]  #: topic, key, value, partition, headers


class _Failed(NamedTuple):
    """A message that was not accepted."""

    topic: str
    partition: int | None
    size: int
    error: KafkaError


class MessageSender:
    """Idempotent producer of messages, used by one task at a time.

    Keys choose partitions by murmur2, as in Kafka's Java producers and in Spark's own Kafka sink. After an
    error the sender cannot be used again.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = {
            # Without this setting, each of a million messages would cause a Python callback on success.
            "delivery.report.only.error": True,
            "on_delivery": self._on_failure,
            "partitioner": "murmur2_random",
        }
        # Without a patience: each message expires after message.timeout.ms, and its failure ends the wait.
        self._confirmed = ConfirmedProducer(
            producer_config(_DEFAULTS | dict(config), settings), check=self._check
        )
        self._producer = self._confirmed.open()
        self._partitions: dict[str, int] = {}
        self._failed: _Failed | None = None
        self._failures = 0

    def admit(self, topic: str, partition: int | None) -> None:
        """Check that messages can be sent to this topic and partition, or by key if ``partition`` is None.

        Call it once for each topic and partition before :meth:`send`.

        Raises:
            TopicNotFound: the topic does not exist and the brokers do not create it.
            NoSuchPartition: the topic has fewer partitions.
            NotAuthorized, MessagesNotDurable, KafkaRefused
        """
        count = self._partitions.get(topic)
        if count is None:
            count = self._partitions[topic] = self._count(topic)
        if partition is not None and not 0 <= partition < count:
            raise NoSuchPartition(topic, partition, count)

    def send(self, rows: Iterable[Row]) -> None:
        """Send messages to topics that :meth:`admit` has checked. The order within a partition is kept.

        Raises:
            MessageRefused, NotAuthorized, MessagesNotDurable: these messages or earlier ones failed.
        """
        try:
            self._confirmed.send(self._producer, rows)
        except Rejected as rejected:
            topic, key, value, partition, headers = rejected.record
            at = None if partition == ANY_PARTITION else partition
            failed = _Failed(topic, at, size_of(key, value, headers), rejected.error)
            raise self._error(failed) from rejected
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until the brokers have confirmed all messages.

        Raises:
            MessageRefused, NotAuthorized, MessagesNotDurable: a message failed. Some messages may be written
                anyway.
        """
        self._confirmed.flush(self._producer, self._producer)
        self._check()  # raises the errors that the last flush has received
        self._partitions.clear()  # a topic may be recreated before the next task

    def close(self) -> None:
        """Close the producer. Unflushed messages are lost."""
        self._confirmed.discard()

    def _count(self, topic: str) -> int:
        deadline, denial = Deadline.after_ms(PATIENCE_MS), Deadline.after_ms(DENIAL_MS)
        try:
            return partition_count(self._producer, topic, deadline, denial=denial)
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() in UNKNOWN_TOPIC:
                raise TopicNotFound((topic,)) from raised
            if error.code() in RETRIABLE:
                why = shown(self._confirmed.complaints.during(deadline) or error)
                raise MessagesNotDurable(topic, 0, why) from raised
            raise refusal(error, operation="write", resource=topic) from raised

    def _on_failure(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        self._failures += 1
        size = size_of(message.key(), message.value(), None)
        # Messages of one request are refused together. If any is too large, the largest one is.
        larger = error.code() == KafkaError.MSG_SIZE_TOO_LARGE and size > getattr(self._failed, "size", 0)
        if self._failed is None or larger:
            partition = message.partition()
            at = None if partition == ANY_PARTITION else partition
            self._failed = _Failed(message.topic() or "", at, size, error)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._error(self._failed)

    def _error(self, failed: _Failed) -> CursorqError:
        """Return the error with target and size of the message, but without its content."""
        error = failed.error
        if error.code() in UNAUTHORIZED:
            return NotAuthorized(failed.topic, "write", (acl("Write", failed.topic),))
        if error.code() in UNKNOWN_TOPIC:
            return TopicNotFound((failed.topic,))
        if error.code() in RETRIABLE:
            return MessagesNotDurable(failed.topic, self._failures + len(self._producer), shown(error))
        return MessageRefused(failed.topic, failed.partition, failed.size, shown(error))


def borrowed_sender(config: Mapping[str, str]) -> AbstractContextManager[MessageSender]:
    """Lend a sender of this configuration from the pool of this process. After any exception it is closed.

    Messages that are not flushed when the block ends are lost.
    """
    return _idle.lend(frozenset(config.items()), lambda: MessageSender(config))


def size_of(key: Any, value: Any, headers: Headers) -> int:
    """Return the number of bytes of a message."""
    named = sum(len(name) + len(content or b"") for name, content in headers or ())
    return len(key or b"") + len(value or b"") + named


_idle = ClientPool(MessageSender.close)
