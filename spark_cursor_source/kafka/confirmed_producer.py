"""Producer of a markers topic: ordered records that the brokers confirm. All marker senders use it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from spark_cursor_source.errors import (
    MarkersNotDurable,
    MarkersPartitionsChanged,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import abandon, producer_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.error_codes import (
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    ErrorCallback,
    acl,
    error_of,
    shown,
)
from spark_cursor_source.kafka.partition_count import partition_count

FLUSH_TIMEOUT_S = PATIENCE_MS / 1000

_POLL_S = 0.05
_CHECK_EVERY_MS = 60_000


@dataclass(slots=True)
class Unconfirmed:
    """Records that one thread has sent since its last flush.

    Each thread is responsible for its own markers.
    """

    producer: Producer
    pending: int = 0
    failed: int = 0
    why: str = ""
    fatal: bool = False  #: the producer can no longer be used
    appended_ms: int | None = None  #: broker time (ms) of the latest confirmed record
    lock: threading.Lock = field(default_factory=threading.Lock)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        kind, at_ms = message.timestamp()
        with self.lock:
            self.pending -= 1
            if error is None:
                # Broker timestamps are missing for deduplicated retries.
                if kind == TIMESTAMP_LOG_APPEND_TIME:
                    self.appended_ms = max(self.appended_ms or 0, at_ms)
            else:
                self.failed += 1
                self.why = shown(error)
                self.fatal = self.fatal or error.fatal() or error.code() == KafkaError._FATAL


class ConfirmedProducer:
    """Idempotent producer of markers. Threads may share it. A flush covers the markers of its own thread.

    ``partitions`` is the partition count of the markers topic on which the placement of markers is based.
    ``settings`` are settings of the producer that override ``config``.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        partitions: int,
        *,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._complaints = ErrorCallback()
        self._config = producer_config(
            {"message.timeout.ms": int(FLUSH_TIMEOUT_S * 1000), **config},
            {"linger.ms": 1, "error_cb": self._complaints, **(settings or {})},
        )
        self._topic = topic
        self._partitions = partitions
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._next_check: Deadline | None = None
        self._local = threading.local()

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> int | None:
        """Wait until the brokers have confirmed every marker that this thread has sent.

        Returns the broker time (ms) of the last marker. None if no marker was sent or no time is known.

        Raises:
            MarkersNotDurable: a marker was not confirmed in time or at all. It may still be written.
        """
        unconfirmed: Unconfirmed | None = getattr(self._local, "unconfirmed", None)
        if unconfirmed is None:
            return None
        deadline = Deadline.after_ms(int(timeout_s * 1000))
        try:
            while unconfirmed.pending and not deadline.over:
                # Flush in slices, so that records of other threads do not extend the wait.
                unconfirmed.producer.flush(deadline.left_s(most=_POLL_S))
        except KafkaException as raised:
            unconfirmed.fatal = True
            raise self._not_durable(unconfirmed, shown(error_of(raised))) from raised
        self._local.unconfirmed = None
        if unconfirmed.pending or unconfirmed.failed:
            heard = self._complaints.during(deadline)
            said = f" (the last that was heard: {shown(heard)})" if heard is not None else ""
            raise self._not_durable(unconfirmed, f"no answer in {deadline.spent_ms} ms{said}")
        return unconfirmed.appended_ms

    def close(self) -> None:
        """Close the producer. Unflushed markers are lost."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            abandon(producer)

    def begin(self) -> Unconfirmed:
        """Return the unconfirmed records of this thread, which :meth:`produce` takes as an argument.

        Raises:
            MarkersPartitionsChanged: the partition count of the topic has changed.
            MarkersNotDurable, TopicNotFound, NotAuthorized
        """
        producer = self._open()
        found: Unconfirmed | None = getattr(self._local, "unconfirmed", None)
        if found is None:
            found = self._local.unconfirmed = Unconfirmed(producer)
        return found

    def _open(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = open_client(Producer, self._config)
                self._next_check = None
            if self._next_check is None or self._next_check.over:
                self._check_partitions(self._producer)
                self._next_check = Deadline.after_ms(_CHECK_EVERY_MS)
            return self._producer

    def _check_partitions(self, producer: Producer) -> None:
        try:
            found = partition_count(producer, self._topic, Deadline.after_ms(int(FLUSH_TIMEOUT_S * 1000)))
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() in UNAUTHORIZED:
                raise NotAuthorized(
                    self._topic, "describe markers topic", (acl("Write", self._topic),)
                ) from raised
            if error.code() in UNKNOWN_TOPIC:
                raise TopicNotFound((self._topic,)) from raised
            raise MarkersNotDurable(self._topic, 0, shown(error)) from raised
        if found != self._partitions:
            raise MarkersPartitionsChanged(self._topic, self._partitions, found)

    def produce(self, unconfirmed: Unconfirmed, key: bytes, value: bytes, partition: int) -> None:
        """Pass a record to the producer.

        Raises:
            MarkersNotDurable: the producer rejects the record.
        """
        deadline = Deadline.after_ms(int(FLUSH_TIMEOUT_S * 1000))
        with unconfirmed.lock:
            unconfirmed.pending += 1
        while True:
            try:
                unconfirmed.producer.produce(
                    self._topic, value, key, partition=partition, on_delivery=unconfirmed.on_delivery
                )
                return
            except BufferError as full:
                if deadline.over:
                    raise self._not_durable(unconfirmed, "the producer's queue is full") from full
                unconfirmed.producer.poll(_POLL_S)
            except KafkaException as raised:
                unconfirmed.fatal = error_of(raised).code() == KafkaError._FATAL
                raise self._not_durable(unconfirmed, shown(error_of(raised))) from raised

    def _not_durable(self, unconfirmed: Unconfirmed, why: str) -> MarkersNotDurable:
        """Return the error for this thread's markers and discard their state.

        A fatal error discards the producer too.
        """
        self._local.unconfirmed = None
        if unconfirmed.fatal:
            with self._lock:
                if self._producer is unconfirmed.producer:
                    self._producer = None
        return MarkersNotDurable(
            self._topic, unconfirmed.pending + unconfirmed.failed, unconfirmed.why or why
        )


SenderT = TypeVar("SenderT", bound=ConfirmedProducer)
_Key = tuple[type[ConfirmedProducer], frozenset[tuple[str, str]], str, int]
_senders: dict[_Key, ConfirmedProducer] = {}
_lost_in_fork: list[ConfirmedProducer] = []
_senders_lock = threading.Lock()


def cached(kind: type[SenderT], config: Mapping[str, Any], topic: str, partitions: int) -> SenderT:
    """Return the sender that this process keeps for a configuration. Tasks of a worker process share it."""
    key = (kind, frozenset((name, str(value)) for name, value in config.items()), topic, partitions)
    with _senders_lock:
        sender = _senders.get(key)
        if sender is None:
            sender = _senders[key] = kind(config, topic, partitions)
        assert isinstance(sender, kind)
        return sender


def _forget() -> None:
    # A forked child has the parent's producers without their threads. It can neither use nor close them. They
    # are kept, because even their deallocation would hang.
    global _senders_lock
    _senders_lock = threading.Lock()
    _lost_in_fork.extend(_senders.values())
    _senders.clear()


@atexit.register
def _close_senders() -> None:
    for sender in _senders.values():
        sender.close()
    _senders.clear()


os.register_at_fork(after_in_child=_forget)
