"""Producer with a separate confirmation for each record."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from spark_cursor_source.errors import ClientClosed
from spark_cursor_source.kafka.config_roles import producer_config
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer, Record, Rejected, is_fatal
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, error_of, refusal, unavailable

_ALL_REPLICAS = ("all", "-1")  # Kafka's two spellings of one value
_POLL_S = 0.1


class Publisher:
    """Producer for all threads of a client. A background thread polls the delivery reports.

    The producer is idempotent if all in-sync replicas confirm, which is the default. Other values of ``acks``
    turn idempotence off.
    """

    def __init__(self, config: Mapping[str, Any], *, timeout_ms: int, acks: str = "all") -> None:
        self._timeout_ms = timeout_ms
        self._confirmed = ConfirmedProducer(
            producer_config(
                {"linger.ms": 0, **config},
                {
                    "acks": acks,
                    "enable.idempotence": acks in _ALL_REPLICAS,
                    "message.timeout.ms": timeout_ms,
                },
            ),
            on_open=self._start_listener,
            polls=False,  # a sender does not run the callbacks of other threads' futures
        )
        self._lock = threading.Lock()
        self._closed = False

    def put(self, topic: str, partition: int, *, key: bytes, value: bytes, deadline: Deadline) -> int:
        """Append a record, wait until every in-sync replica has it, and return its offset.

        Raises:
            as :meth:`put_all`.
        """
        (message,) = self.put_all(topic, [(partition, key, value)], deadline)
        offset = message.offset()
        assert offset is not None
        return offset

    def put_all(
        self, topic: str, records: Iterable[tuple[int, bytes, bytes | None]], deadline: Deadline
    ) -> list[Message]:
        """Append (partition, key, value) records and wait until every in-sync replica has them.

        Raises:
            ClientClosed
            KafkaUnavailable: no response in time. The records may still be appended, now or later.
            NotAuthorized, KafkaRefused
        """
        operation = f"write to '{topic}'"
        try:
            sent = [
                self.send(topic, partition, key=key, value=value, deadline=deadline)
                for partition, key, value in records
            ]
            return [future.result(deadline.left_s(least=0.05)) for future in sent]
        except FutureTimeout:
            raise unavailable(operation, deadline, None, self._confirmed.complaints) from None
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() in RETRIABLE:
                raise unavailable(operation, deadline, error, self._confirmed.complaints) from raised
            raise refusal(error, operation="write", resource=topic) from raised

    def close(self) -> None:
        """Wait for pending records, at most for the timeout, and close the producer."""
        with self._lock:
            self._closed = True
        producer = self._confirmed.current
        try:
            if producer is not None:
                self._confirmed.flush(producer, producer, Deadline.after_ms(self._timeout_ms))
        finally:
            self._confirmed.discard()  # also after an interrupt: the listener runs as long as its producer

    def send(
        self,
        topic: str,
        partition: int,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        deadline: Deadline,
    ) -> Future[Message]:
        """Send a record. The future returns the confirmed message or raises a KafkaException.

        Raises:
            ClientClosed
            KafkaException: the producer rejects the record.
        """
        producer = self._open()
        confirmed: Future[Message] = Future()
        report = partial(self._on_delivery, producer, confirmed)
        record: Record = (topic, key, value, partition, list(headers))
        try:
            self._confirmed.send(producer, (record,), on_delivery=report, deadline=deadline)
        except Rejected as rejected:
            self._drop_if_fatal(producer, rejected.error)
            if rejected.error.code() == KafkaError._QUEUE_FULL:
                # the callers' deadline is over, which is a temporary error for them
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT_QUEUE)) from None
            raise
        return confirmed

    def _open(self) -> Producer:
        with self._lock:
            if self._closed:
                raise ClientClosed
            return self._confirmed.open()

    def _start_listener(self, producer: Producer) -> None:
        listen = partial(self._listen, producer)
        threading.Thread(target=listen, daemon=True, name="cursorq-publisher").start()

    def _listen(self, producer: Producer) -> None:
        while self._confirmed.current is producer or len(producer):
            producer.poll(_POLL_S)

    def _on_delivery(
        self, producer: Producer, confirmed: Future[Message], error: KafkaError | None, message: Message
    ) -> None:
        if error is None:
            confirmed.set_result(message)
            return
        self._drop_if_fatal(producer, error)
        confirmed.set_exception(KafkaException(error))

    def _drop_if_fatal(self, producer: Producer, error: KafkaError) -> None:
        """Drop the producer after a fatal error. The next record opens another."""
        if is_fatal(error):
            self._confirmed.let_go(producer)
