"""Producer of a markers topic: ordered records that the brokers confirm. All marker senders use it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer

from spark_cursor_source.errors import (
    MarkersNotDurable,
    MarkersPartitionsChanged,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.kafka.config_roles import producer_config
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer, Rejected, Unconfirmed, is_fatal
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.error_codes import UNAUTHORIZED, UNKNOWN_TOPIC, acl, error_of, shown
from spark_cursor_source.kafka.partition_count import partition_count

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
        self._confirmed = ConfirmedProducer(
            producer_config(
                {"message.timeout.ms": PATIENCE_MS, **config}, {"linger.ms": 1, **(settings or {})}
            ),
            patience_ms=PATIENCE_MS,
            on_open=self._check_anew,
        )
        self._topic = topic
        self._partitions = partitions
        self._lock = threading.Lock()
        self._next_check = Deadline.after_ms(0)
        self._local = threading.local()

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> int | None:
        """Wait until the brokers have confirmed every marker that this thread has sent.

        Returns the broker time (ms) of the last marker. None if no marker was sent or no time is known.

        Raises:
            MarkersNotDurable: a marker was not confirmed in time or at all. It may still be written.
        """
        sending: Sending | None = getattr(self._local, "sending", None)
        if sending is None:
            return None
        deadline, unconfirmed = Deadline.after_ms(int(timeout_s * 1000)), sending.unconfirmed
        try:
            self._confirmed.flush(sending.producer, unconfirmed, deadline)
        except KafkaException as raised:
            unconfirmed.fatal = True
            raise self._not_durable(sending, shown(error_of(raised))) from raised
        self._local.sending = None
        if unconfirmed.unsent:
            raise self._not_durable(sending, self._confirmed.no_answer(deadline))
        return unconfirmed.appended_ms

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
        found: Sending | None = getattr(self._local, "sending", None)
        if found is None:
            found = self._local.sending = Sending(producer, Unconfirmed())
        return found

    def produce(self, sending: Sending, key: bytes, value: bytes, partition: int) -> None:
        """Pass a record to the producer.

        Raises:
            MarkersNotDurable: the producer rejects the record.
        """
        try:
            record = (self._topic, key, value, partition, None)
            self._confirmed.send_counted(sending.producer, record, sending.unconfirmed)
        except Rejected as rejected:
            sending.unconfirmed.fatal = sending.unconfirmed.fatal or is_fatal(rejected.error)
            raise self._not_durable(sending, rejected.why) from rejected

    def _open(self) -> Producer:
        with self._lock:
            producer = self._confirmed.open()
            if self._next_check.over:
                self._check_partitions(producer)
                self._next_check = Deadline.after_ms(_CHECK_EVERY_MS)
            return producer

    def _check_anew(self, _: Producer) -> None:
        self._next_check = Deadline.after_ms(0)

    def _check_partitions(self, producer: Producer) -> None:
        try:
            found = partition_count(producer, self._topic, Deadline.after_ms(PATIENCE_MS))
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
_Key = tuple[type[MarkerProducer], frozenset[tuple[str, str]], str, int]
_senders: dict[_Key, MarkerProducer] = {}
_lost_in_fork: list[MarkerProducer] = []
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
