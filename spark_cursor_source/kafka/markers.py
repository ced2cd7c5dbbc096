"""Markers to the markers topic, in order, and confirmed by its brokers."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from spark_cursor_source.core.marker import EndUpTo, Hello, Marker, Seek
from spark_cursor_source.errors import (
    MarkersNotDurable,
    MarkersPartitionsChanged,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.kafka.client_roles import abandon, producer_config
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.failures import (
    RETRIABLE,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    Complaints,
    error_of,
    shown,
)
from spark_cursor_source.wire import marker as wire

logger = logging.getLogger(__name__)

MAX_MARKER_BYTES = 900_000  #: a topic with Kafka's default limits takes a record of this size
FLUSH_TIMEOUT_S = PATIENCE_MS / 1000

_POLL_S = 0.05
_ONE_REQUEST_S = 10.0
_CHECK_EVERY_MS = 60_000


@dataclass(slots=True)
class _Unconfirmed:
    """What one thread has sent since its last flush; each thread answers for its own markers."""

    producer: Producer
    pending: int = 0
    failed: int = 0
    why: str = ""
    fatal: bool = False  #: the producer is of no more use
    lock: threading.Lock = field(default_factory=threading.Lock)

    def on_delivery(self, error: KafkaError | None, _: Message) -> None:
        with self.lock:
            self.pending -= 1
            if error is not None:
                self.failed += 1
                self.why = shown(error)
                self.fatal = self.fatal or error.fatal() or error.code() == KafkaError._FATAL


class MarkerSender:
    """An idempotent producer of markers. Threads may share it: a flush speaks for its own thread's markers.

    ``partitions`` is how many the markers topic had when the cells were first spread over them.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, partitions: int) -> None:
        self._complaints = Complaints()
        self._config = producer_config(
            {"message.timeout.ms": int(FLUSH_TIMEOUT_S * 1000), **config},
            {"linger.ms": 1, "error_cb": self._complaints},
        )
        self._topic = topic
        self._partitions = partitions
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._next_check: Deadline | None = None
        self._local = threading.local()

    def send(self, markers: Iterable[Marker]) -> int:
        """Hand markers to the producer, those of a cell in the order given; how many records they make.

        A set of offsets too large for a record becomes several markers, in ascending order.

        Raises:
            MarkersPartitionsChanged: the topic has another number of partitions.
            MarkersNotDurable: the producer does not take them.
            TopicNotFound, NotAuthorized
        """
        unconfirmed, records = self._unconfirmed(self._open()), 0
        for marker in markers:
            partition = marker.cell.control_partition(self._partitions)
            for value in marker_values(marker):
                self._produce(unconfirmed, marker.cell.key, value, partition)
                records += 1
        unconfirmed.producer.poll(0)
        return records

    def flush(self, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Wait until the brokers have confirmed every marker that this thread has sent.

        Raises:
            MarkersNotDurable: they have not, in time or at all. Some may be written all the same, or later.
        """
        unconfirmed: _Unconfirmed | None = getattr(self._local, "unconfirmed", None)
        if unconfirmed is None:
            return
        deadline = Deadline.after_ms(int(timeout_s * 1000))
        try:
            while unconfirmed.pending and not deadline.over:
                # In slices: what another thread sends meanwhile is none of our business.
                unconfirmed.producer.flush(deadline.left_s(most=_POLL_S))
        except KafkaException as raised:
            unconfirmed.fatal = True
            raise self._not_durable(unconfirmed, shown(error_of(raised))) from raised
        self._local.unconfirmed = None
        if unconfirmed.pending or unconfirmed.failed:
            heard = self._complaints.during(deadline)
            said = f" (the last that was heard: {shown(heard)})" if heard is not None else ""
            raise self._not_durable(unconfirmed, f"no answer in {deadline.spent_ms} ms{said}")

    def close(self) -> None:
        """End the producer; what was not flushed is lost."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            abandon(producer)

    def _unconfirmed(self, producer: Producer) -> _Unconfirmed:
        found: _Unconfirmed | None = getattr(self._local, "unconfirmed", None)
        if found is None:
            found = self._local.unconfirmed = _Unconfirmed(producer)
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
        deadline = Deadline.after_ms(int(FLUSH_TIMEOUT_S * 1000))
        while True:
            try:
                found = producer.list_topics(self._topic, timeout=deadline.left_s(most=_ONE_REQUEST_S))
                described = found.topics[self._topic]
                error = described.error
            except KafkaException as raised:
                error = error_of(raised)
            if error is None:
                break
            if error.code() in UNAUTHORIZED:
                raise NotAuthorized(self._topic, "describe markers topic")
            if error.code() in UNKNOWN_TOPIC:
                raise TopicNotFound((self._topic,))
            if error.code() not in RETRIABLE or deadline.over:
                raise MarkersNotDurable(self._topic, 0, shown(error))
            deadline.pause(_POLL_S)
        if len(described.partitions) != self._partitions:
            raise MarkersPartitionsChanged(self._topic, self._partitions, len(described.partitions))

    def _produce(self, unconfirmed: _Unconfirmed, key: bytes, value: bytes, partition: int) -> None:
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

    def _not_durable(self, unconfirmed: _Unconfirmed, why: str) -> MarkersNotDurable:
        """The error of this thread's markers, which are forgotten; after a fatal one so is the producer."""
        self._local.unconfirmed = None
        if unconfirmed.fatal:
            with self._lock:
                if self._producer is unconfirmed.producer:
                    self._producer = None
        return MarkersNotDurable(
            self._topic, unconfirmed.pending + unconfirmed.failed, unconfirmed.why or why
        )


def marker_values(marker: Marker, *, max_bytes: int = MAX_MARKER_BYTES) -> Iterator[bytes]:
    """The record values of a marker: one, or as many as its set of offsets needs, in ascending order."""
    value = wire.encode(marker)
    if len(value) <= max_bytes or isinstance(marker, (EndUpTo, Seek, Hello)) or len(marker.offsets) < 2:
        yield value
        return
    pieces = len(value) // max_bytes + 1
    for piece in marker.offsets.chunks(-(-len(marker.offsets) // pieces)):
        yield from marker_values(replace(marker, offsets=piece), max_bytes=max_bytes)


_Key = tuple[frozenset[tuple[str, str]], str, int]
_senders: dict[_Key, MarkerSender] = {}
_lost_in_fork: list[MarkerSender] = []
_senders_lock = threading.Lock()


def cached_sender(config: Mapping[str, Any], topic: str, partitions: int) -> MarkerSender:
    """The sender that this process keeps for such a configuration; tasks of a worker process share it."""
    key = (frozenset((name, str(value)) for name, value in config.items()), topic, partitions)
    with _senders_lock:
        sender = _senders.get(key)
        if sender is None:
            sender = _senders[key] = MarkerSender(config, topic, partitions)
        return sender


def _forget() -> None:
    # A forked child has the parent's producers without their threads: neither usable nor closable, and kept,
    # because even their deallocation would hang.
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
