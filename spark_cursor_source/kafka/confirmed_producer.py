"""Producer whose records the brokers confirm: backpressure, waits and the first error. All senders use it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import ErrorCallback, error_of, shown

_FULL_S = 0.01  # short, because a producer without success reports does not wake the poll
_FLUSH_S = 0.05
_LOOK_S = 5.0

Headers = list[tuple[str, str | bytes | None]] | None
Record = tuple[str, bytes | None, bytes | None, int, Headers]  #: topic, key, value, partition, headers
OnDelivery = Callable[[KafkaError | None, Message], None]


class Rejected(KafkaException):
    """The producer did not accept a record. The record is not sent."""

    def __init__(self, error: KafkaError, record: Record) -> None:
        super().__init__(error)
        self.error = error
        self.record = record

    @property
    def why(self) -> str:
        if self.error.code() == KafkaError._QUEUE_FULL:
            return "the producer's queue is full"
        return shown(self.error)


class NotConfirmed(Exception):
    """Some records of a flush were refused, or not confirmed in time. They may still be written."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(slots=True)
class Unconfirmed:
    """Records that were sent through one producer since the last flush.

    The length is the number of pending ones. One thread sends them. Any thread can report their delivery. It
    does not refer to the producer, which refers to it until the last report and would never be closed.
    """

    pending: int = 0
    failed: int = 0
    error: KafkaError | None = None  #: the first error, because later ones are often its consequences
    topic: str = ""  #: topic of the record with the first error
    fatal: bool = False  #: the producer can no longer be used
    appended_ms: int | None = None  #: broker time (ms) of the latest confirmed record
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return self.pending

    @property
    def unsent(self) -> int:
        """Number of records that are not confirmed or were refused."""
        return self.pending + self.failed

    def why(self, otherwise: str) -> str:
        """Return the text of the first error, or ``otherwise``."""
        return otherwise if self.error is None else shown(self.error)

    def settle(self) -> None:
        """Count one record less as pending."""
        with self.lock:
            self.pending -= 1

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        kind, at_ms = message.timestamp()
        with self.lock:
            self.pending -= 1
            if error is None:
                # Broker timestamps are missing for deduplicated retries.
                if kind == TIMESTAMP_LOG_APPEND_TIME:
                    self.appended_ms = max(self.appended_ms or 0, at_ms)
                return
            self.failed += 1
            self.fatal = self.fatal or is_fatal(error)
            if self.error is None:
                self.error, self.topic = error, message.topic() or ""


class ConfirmedProducer:
    """Producer that opens on first use and after each :meth:`discard`. Threads may share it.

    ``patience_ms`` limits the wait for room in the queue for each record that is sent without a deadline.
    ``on_open`` runs for each producer that opens. ``check`` runs after each wait and may raise. ``polls`` is
    False if another thread polls, so that the delivery callbacks run there.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        patience_ms: int | None = None,
        on_open: Callable[[Producer], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
        polls: bool = True,
    ) -> None:
        self.complaints = ErrorCallback()
        self._config = {**config, "error_cb": self.complaints}
        self._patience_ms = patience_ms
        self._on_open = on_open
        self._check = check
        self._polls = polls
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    @property
    def current(self) -> Producer | None:
        """The open producer."""
        return self._producer

    def open(self) -> Producer:
        """Return the open producer. Open one if there is none."""
        with self._lock:
            if self._producer is None:
                self._producer = open_client(Producer, self._config)
                self._on_open(self._producer)
            return self._producer

    def let_go(self, producer: Producer) -> None:
        """Drop a producer after a fatal error, because it accepts no more records.

        Its records can still be reported. The next :meth:`open` opens another.
        """
        with self._lock:
            if self._producer is producer:
                self._producer = None

    def discard(self) -> None:
        """Close the producer. Unconfirmed records are lost."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            # Purged, so that it closes without a wait. Its error was reported before.
            with contextlib.suppress(KafkaException):
                producer.purge()
                producer.poll(0)

    def send(
        self,
        producer: Producer,
        records: Iterable[Record],
        *,
        on_delivery: OnDelivery | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Pass records to a producer in order. Wait while its queue is full.

        The wait for room ends at the deadline, or after the patience if no deadline is given. A partition
        that the producer does not know may be new, so the brokers are asked once for its topic.

        Raises:
            Rejected: the producer does not accept a record. Earlier ones are sent.
        """
        produce = producer.produce
        asked: frozenset[str] = frozenset()
        for topic, key, value, partition, headers in records:
            until = deadline
            while True:
                try:
                    if on_delivery is None and headers is None:  # a third faster than with keyword arguments
                        produce(topic, value, key, partition)
                    else:
                        produce(topic, value, key, partition, on_delivery=on_delivery, headers=headers)
                    break
                except BufferError:
                    record = (topic, key, value, partition, headers)
                    until = self._wait_for_room(producer, record, until)
                except KafkaException as raised:
                    error = error_of(raised)
                    if topic in asked or error.code() != KafkaError._UNKNOWN_PARTITION:
                        raise Rejected(error, (topic, key, value, partition, headers)) from raised
                    asked |= {topic}
                    _look_anew(producer, topic, until)

    def send_counted(
        self,
        producer: Producer,
        record: Record,
        unconfirmed: Unconfirmed,
        *,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Send a record and count it as pending.

        ``on_delivery`` replaces the callback of ``unconfirmed``. It calls :meth:`Unconfirmed.settle`.

        Raises:
            Rejected: the producer does not accept the record. It stays pending.
        """
        with unconfirmed.lock:
            unconfirmed.pending += 1
        report = unconfirmed.on_delivery if on_delivery is None else on_delivery
        self.send(producer, (record,), on_delivery=report)

    def flush(self, producer: Producer, pending: Sized, deadline: Deadline | None = None) -> None:
        """Wait until nothing is pending or the deadline is over.

        ``pending`` is the producer itself or some of its records.

        Raises:
            KafkaException: the producer cannot be used.
        """
        while len(pending) and not (deadline is not None and deadline.over):
            # Flush in slices, so that records of other threads do not extend the wait.
            producer.flush(_FLUSH_S if deadline is None else deadline.left_s(most=_FLUSH_S))
            self._check()

    def flush_counted(self, producer: Producer, unconfirmed: Unconfirmed, deadline: Deadline) -> None:
        """Wait until the brokers have confirmed all counted records.

        Raises:
            NotConfirmed: a record was refused or not confirmed in time, or the producer cannot be used.
        """
        try:
            self.flush(producer, unconfirmed, deadline)
        except KafkaException as raised:
            unconfirmed.fatal = True
            raise NotConfirmed(shown(error_of(raised))) from raised
        if unconfirmed.unsent:
            heard = self.complaints.during(deadline)
            said = f" (the last that was heard: {shown(heard)})" if heard is not None else ""
            raise NotConfirmed(f"no answer in {deadline.spent_ms} ms{said}")

    def _wait_for_room(self, producer: Producer, record: Record, until: Deadline | None) -> Deadline | None:
        if until is None and self._patience_ms is not None:
            until = Deadline.after_ms(self._patience_ms)
        if until is not None and until.over:
            raise Rejected(KafkaError(KafkaError._QUEUE_FULL), record)
        if self._polls:
            producer.poll(_FULL_S)
        else:
            time.sleep(_FULL_S)
        self._check()
        return until


def _look_anew(producer: Producer, topic: str, until: Deadline | None) -> None:
    """Ask the brokers for the partitions of a topic, which the producer otherwise does every five minutes."""
    timeout_s = _LOOK_S if until is None else until.left_s(most=_LOOK_S, least=_FLUSH_S)
    with contextlib.suppress(KafkaException):
        producer.list_topics(topic, timeout_s)


def is_fatal(error: KafkaError) -> bool:
    """True if the producer of the error accepts no more records."""
    return error.fatal() or error.code() == KafkaError._FATAL
