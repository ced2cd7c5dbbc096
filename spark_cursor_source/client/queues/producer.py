"""Sending messages to a queue."""

from __future__ import annotations

import random
import threading

from spark_cursor_source.client.streams.parts import StreamParts
from spark_cursor_source.client.streams.publish import OnAck, Outgoing
from spark_cursor_source.client.streams.receipts import Ack, AckPolicy, Headers
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.errors import ClientClosed, CursorqError, InvalidArgument, KafkaUnavailable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.rights import of_producer
from spark_cursor_source.options.client import ClientOptions
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.service import ServiceConfig


class QueueProducer(ClosedAtExit):
    """Appends messages to the queue topic under the queue's id, spread over all partitions.

    Threads may share it, forked processes may not.

    >>> with service.queue("mails").producer() as producer:  # doctest: +SKIP
    ...     producer.send(b"to: you").offset
    0
    """

    def __init__(self, config: ServiceConfig, queue_id: bytes | None) -> None:
        self._topic, self._queue_id = config.message_topic, queue_id
        self._config, self._timeout_ms = config, config.timeout_ms
        self._parts = StreamParts(
            ClientOptions(
                kafka=KafkaOptions(config.kafka),
                streams_topic=config.streams_topic,
                timeout_ms=config.timeout_ms,
            )
        )
        self._on_their_way = 0
        self._changed = threading.Condition()
        self._closed = self._met = False

    def send(
        self,
        payload: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timeout_ms: int | None = None,
    ) -> Ack:
        """Append a message and wait until every in-sync replica has it, for ``timeout_ms`` or the client's.

        The key is the queue's id; only where the queue has none, one may be given.

        Raises:
            AckTimeout: it may be there all the same, or come later.
            NoSuchStream: there is no such queue topic.
            ReadonlyPartition: the partition whose turn it was takes nothing.
            KafkaUnavailable: the brokers cannot be connected to; the first message of a producer finds out.
            NotAuthorized: names all rights that are missing.
            InvalidArgument, ClientClosed, KafkaRefused
        """
        message = self._outgoing(payload, key, headers)
        self._meet(timeout_ms)
        return self._parts.publishing.publish(message, timeout_ms=timeout_ms)

    def send_async(
        self, payload: bytes | None, *, on_ack: OnAck, key: bytes | None = None, headers: Headers = ()
    ) -> None:
        """The same without the wait: ``on_ack`` is called once, from another thread, with an Ack or an error.

        It must not take long. :meth:`flush` and :meth:`close` wait for what is on its way.
        """

        def told(outcome: Ack | CursorqError) -> None:
            try:
                on_ack(outcome)
            finally:
                self._count(-1)

        message = self._outgoing(payload, key, headers)
        self._meet(None)
        self._count(1)
        try:
            self._parts.publishing.publish_async(message, told)
        except BaseException:
            self._count(-1)
            raise

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until of all that was sent it is known what became of it.

        Raises:
            KafkaUnavailable: not in time.
        """
        deadline = Deadline.after_ms(self._timeout_ms if timeout_ms is None else timeout_ms)
        with self._changed:
            while self._on_their_way:
                if deadline.over:
                    raise KafkaUnavailable(f"write to '{self._topic}'", deadline.spent_ms, "no answer")
                self._changed.wait(deadline.left_s())

    def close(self) -> None:
        """Wait for what is on its way, for the client's timeout, and end; to close it again does nothing."""
        if not self._closed:
            self._closed = True
            self._parts.close()

    def _outgoing(self, payload: bytes | None, key: bytes | None, headers: Headers) -> Outgoing:
        if self._closed:
            raise ClientClosed
        if key is not None and self._queue_id is not None:
            raise InvalidArgument("key", key, "the key of this queue's messages is its id")
        return Outgoing(
            stream=self._topic,
            value=payload,
            key=key if self._queue_id is None else self._queue_id,
            headers=tuple(headers),
            correlation_id=None,
            partition=None,
            partitioner=_any_partition,
            ack_policy=AckPolicy.ALL,
            expected_offset=None,
        )

    def _meet(self, timeout_ms: int | None) -> None:
        """Learn before the first message whether the brokers can be connected to, and may be written to."""
        if self._met:
            return
        wait_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        topics = ClusterAdmin(client_config(self._config.kafka, "admin"), timeout_ms=wait_ms).meet()
        topics.check_rights(of_producer(streams=self._config.streams_topic, queues=[self._topic]))
        self._met = True

    def _count(self, change: int) -> None:
        with self._changed:
            self._on_their_way += change
            self._changed.notify_all()


def _any_partition(_: bytes | None, __: bytes | None, partitions: int) -> int:
    """As kafka-mq-go: the messages of a queue are spread, whatever their key."""
    return random.randrange(partitions)
