"""Producer of a markers topic: ordered records that the brokers confirm. All marker senders use it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaException, Producer

from spark_cursor_source.errors import (
    MarkersNotDurable,
    MarkersPartitionsChanged,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.kafka.config_roles import producer_config
from spark_cursor_source.kafka.confirmed_producer import (
    ConfirmedProducer,
    Headers,
    NotConfirmed,
    Rejected,
    Unconfirmed,
    is_fatal,
)
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.error_codes import UNAUTHORIZED, UNKNOWN_TOPIC, acl, error_of, shown
from spark_cursor_source.kafka.partition_count import partition_count
from spark_cursor_source.kafka.pool import ClientPool

FLUSH_TIMEOUT_S = PATIENCE_MS / 1000

_CHECK_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True)
class Sending:
    """Markers that one thread has sent since its last flush, and their producer."""

    producer: Producer
    unconfirmed: Unconfirmed


class MarkerProducer:
    """Idempotent producer of markers. Threads may share it. A flush covers the markers of its own thread.

    ``partitions`` is the partition count of the markers topic on which the placement of markers is based.
    ``settings`` are settings of the producer that override ``config``. ``patience_ms`` limits each wait for
    brokers, except those of :meth:`flush`.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        partitions: int,
        *,
        settings: Mapping[str, object] | None = None,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self._confirmed = ConfirmedProducer(
            producer_config(
                {"message.timeout.ms": PATIENCE_MS, **config}, {"linger.ms": 1, **(settings or {})}
            ),
            patience_ms=patience_ms,
            on_open=self._check_anew,
        )
        self._topic = topic
        self.partitions = partitions
        self._patience_ms = patience_ms
        self._lock = threading.Lock()
        self._next_check = Deadline.after_ms(0)
        self._local = threading.local()

    def connect(self) -> None:
        """Begin to connect to the brokers, and return at once. Otherwise the first marker waits for that."""
        self._confirmed.open()

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> int | None:
        """Wait until the brokers have confirmed every marker that this thread has sent.

        Returns the broker time (ms) of the last marker. None if no marker was sent or no time is known.

        Raises:
            MarkersNotDurable: a marker was not confirmed in time or at all. It may still be written.
        """
        sending: Sending | None = getattr(self._local, "sending", None)
        if sending is None:
            return None
        deadline = Deadline.after_ms(int(timeout_s * 1000))
        try:
            self._confirmed.flush_counted(sending.producer, sending.unconfirmed, deadline)
        except NotConfirmed as failed:
            raise self._not_durable(sending, failed.why) from failed
        self._local.sending = None
        return sending.unconfirmed.appended_ms

    def close(self) -> None:
        """Close the producer. Unflushed markers are lost."""
        self._confirmed.discard()

    def begin(self) -> Sending:
        """Return the unflushed markers of this thread, which :meth:`produce` takes as an argument.

        Raises:
            MarkersPartitionsChanged: the partition count of the topic has changed.
            MarkersNotDurable, TopicNotFound, NotAuthorized
        """
        producer = self._open()
        sending: Sending | None = getattr(self._local, "sending", None)
        if sending is None:
            sending = self._local.sending = Sending(producer, Unconfirmed())
        return sending

    def produce(
        self, sending: Sending, key: bytes, value: bytes, partition: int, headers: Headers = None
    ) -> None:
        """Pass a record to the producer.

        Raises:
            MarkersNotDurable: the producer rejects the record.
        """
        try:
            record = (self._topic, key, value, partition, headers)
            self._confirmed.send_counted(sending.producer, record, sending.unconfirmed)
        except Rejected as rejected:
            sending.unconfirmed.fatal = sending.unconfirmed.fatal or is_fatal(rejected.error)
            raise self._not_durable(sending, rejected.why) from rejected

    def _open(self) -> Producer:
        # Begun before the lock: who waits for the check of another thread does not wait for one more.
        deadline = Deadline.after_ms(self._patience_ms)
        with self._lock:
            producer = self._confirmed.open()
            if self._next_check.over:
                self._check_partitions(producer, deadline)
                self._next_check = Deadline.after_ms(_CHECK_EVERY_MS)
            return producer

    def _check_anew(self, _: Producer) -> None:
        self._next_check = Deadline.after_ms(0)

    def _check_partitions(self, producer: Producer, deadline: Deadline) -> None:
        try:
            partitions = partition_count(producer, self._topic, deadline)
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() in UNAUTHORIZED:
                raise NotAuthorized(
                    self._topic, "describe markers topic", (acl("Write", self._topic),)
                ) from raised
            if error.code() in UNKNOWN_TOPIC:
                raise TopicNotFound((self._topic,)) from raised
            raise MarkersNotDurable(self._topic, 0, shown(error)) from raised
        if partitions != self.partitions:
            raise MarkersPartitionsChanged(self._topic, self.partitions, partitions)

    def _not_durable(self, sending: Sending, why: str) -> MarkersNotDurable:
        """Return the error for this thread's markers and discard their state.

        The producer stays open, because other threads have markers in it. Only a fatal error discards it.
        """
        self._local.sending = None
        unconfirmed = sending.unconfirmed
        if unconfirmed.fatal:
            self._confirmed.let_go(sending.producer)
        return MarkersNotDurable(self._topic, unconfirmed.unsent, unconfirmed.why(why))


SenderT = TypeVar("SenderT", bound=MarkerProducer)


def borrowed_producer(
    kind: type[SenderT], config: Mapping[str, Any], topic: str, partitions: int
) -> AbstractContextManager[SenderT]:
    """Lend a sender from the pool of this process. Flush it before the block ends."""
    key = kind, frozenset(config.items()), topic, partitions
    return cast("AbstractContextManager[SenderT]", _idle.lend(key, lambda: kind(config, topic, partitions)))


_idle = ClientPool(MarkerProducer.close, kept=4)
