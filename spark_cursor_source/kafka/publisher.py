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
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import abandon, producer_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, ErrorCallback, error_of, refusal, unavailable

_ALL_REPLICAS = ("all", "-1")  # Kafka's two spellings of one value
_POLL_S = 0.1
_FULL_S = 0.01


class Publisher:
    """Producer for all threads of a client. A background thread polls the delivery reports.

    The producer is idempotent if all in-sync replicas confirm, which is the default. Other values of ``acks``
    turn idempotence off.
    """

    def __init__(self, config: Mapping[str, Any], *, timeout_ms: int, acks: str = "all") -> None:
        self._complaints = ErrorCallback()
        self._timeout_ms = timeout_ms
        self._config = producer_config(
            {"linger.ms": 0, **config},
            {
                "acks": acks,
                "enable.idempotence": acks in _ALL_REPLICAS,
                "error_cb": self._complaints,
                "message.timeout.ms": timeout_ms,
            },
        )
        self._lock = threading.Lock()
        self._producer: Producer | None = None
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
            raise unavailable(operation, deadline, None, self._complaints) from None
        except KafkaException as raised:
            error = error_of(raised)
            if error.code() in RETRIABLE:
                raise unavailable(operation, deadline, error, self._complaints) from raised
            raise refusal(error, operation="write", resource=topic) from raised

    def close(self) -> None:
        """Wait for pending records, at most for the timeout, and close the producer."""
        with self._lock:
            producer, self._producer = self._producer, None
            self._closed = True
        if producer is None:
            return
        deadline = Deadline.after_ms(self._timeout_ms)
        while len(producer) and not deadline.over:
            producer.flush(deadline.left_s(most=_POLL_S))
        abandon(producer)

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
        while True:
            try:
                producer.produce(
                    topic, value, key, partition=partition, headers=list(headers), on_delivery=report
                )
                return confirmed
            except BufferError:
                if deadline.over:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT_QUEUE)) from None
                deadline.pause(_FULL_S)
            except KafkaException as raised:
                self._let_go(producer, error_of(raised))
                raise

    def _open(self) -> Producer:
        with self._lock:
            if self._closed:
                raise ClientClosed
            if self._producer is None:
                self._producer = open_client(Producer, self._config)
                listen = partial(self._listen, self._producer)
                threading.Thread(target=listen, daemon=True, name="cursorq-publisher").start()
            return self._producer

    def _listen(self, producer: Producer) -> None:
        while self._producer is producer or len(producer):
            producer.poll(_POLL_S)

    def _on_delivery(
        self, producer: Producer, confirmed: Future[Message], error: KafkaError | None, message: Message
    ) -> None:
        if error is None:
            confirmed.set_result(message)
            return
        self._let_go(producer, error)
        confirmed.set_exception(KafkaException(error))

    def _let_go(self, producer: Producer, error: KafkaError) -> None:
        """Drop the producer after a fatal error, because it accepts no more records.

        The next record opens another.
        """
        if not error.fatal() and error.code() != KafkaError._FATAL:
            return
        with self._lock:
            if self._producer is producer:
                self._producer = None
