"""Producer of a queue."""

from __future__ import annotations

import random
import threading

from spark_cursor_source.client.streams.parts import StreamParts
from spark_cursor_source.client.streams.publish import OnAck, Outgoing
from spark_cursor_source.client.streams.receipts import Ack, AckPolicy, Headers
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.core.murmur2 import partition_of
from spark_cursor_source.errors import ClientClosed, CursorqError, InvalidArgument, KafkaUnavailable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.rights import of_producer
from spark_cursor_source.options.arguments import (
    call_timeout,
    check_headers,
    check_is_callable,
    check_key_and_value,
)
from spark_cursor_source.options.client import ClientOptions
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.service import ServiceConfig


class QueueProducer(ClosedAtExit):
    """Appends messages to the queue topic.

    The messages of a queue with an id have the id as key, and are spread over all partitions. In a queue
    without an id, the messages of a key are in one partition, so that their order can be kept.

    Threads may share a producer; forked processes may not.

    Example::

        from spark_cursor_source.client import Service, ServiceConfig

        service = Service(ServiceConfig(bootstrap_servers="broker:9092", message_topic="jobs"))
        with service.queue("mails").producer() as producer:
            print(producer.send(b"to: you").offset)
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
        """Appends a message and waits until every in-sync replica has stored the record.

        The wait lasts at most ``timeout_ms`` (default: the client's timeout). The record key is the queue id.
        ``key`` is accepted only if the queue has no id.

        Raises:
            AckTimeout: the timeout passed first. The message may be stored now or later.
            NoSuchStream: the queue topic does not exist.
            ReadonlyPartition: the chosen partition is read-only.
            KafkaUnavailable: the brokers are unreachable. Only the first message of a producer checks this.
            NotAuthorized: rights are missing. The error lists all of them.
            InvalidArgument, ClientClosed, KafkaRefused
        """
        message = self._outgoing(payload, key, headers)
        self._meet(timeout_ms)
        return self._parts.publishing.publish(message, timeout_ms=timeout_ms)

    def send_async(
        self, payload: bytes | None, *, on_ack: OnAck, key: bytes | None = None, headers: Headers = ()
    ) -> None:
        """Appends a message without waiting. Calls ``on_ack`` once with an Ack or an error.

        ``on_ack`` runs in another thread and must return quickly. :meth:`flush` and :meth:`close` wait for
        the messages in flight.
        """

        def told(outcome: Ack | CursorqError) -> None:
            try:
                on_ack(outcome)
            finally:
                self._count(-1)

        check_is_callable("on_ack", on_ack)
        message = self._outgoing(payload, key, headers)
        self._meet(None)
        self._count(1)
        try:
            self._parts.publishing.publish_async(message, told)
        except BaseException:
            self._count(-1)
            raise

    def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until every message sent with :meth:`send_async` has an Ack or an error.

        Raises:
            KafkaUnavailable: the timeout passed first.
        """
        deadline = Deadline.after_ms(call_timeout(timeout_ms, self._timeout_ms))
        with self._changed:
            while self._on_their_way:
                if deadline.over:
                    raise KafkaUnavailable(f"write to '{self._topic}'", deadline.spent_ms, "no answer")
                self._changed.wait(deadline.left_s())

    def close(self) -> None:
        """Waits up to the client's timeout for messages in flight, then closes. Idempotent."""
        if not self._closed:
            self._closed = True
            self._parts.close()

    def _outgoing(self, payload: bytes | None, key: bytes | None, headers: Headers) -> Outgoing:
        if self._closed:
            raise ClientClosed
        if key is not None and self._queue_id is not None:
            raise InvalidArgument("key", key, "the key of this queue's messages is its id")
        check_key_and_value(key, payload, name="payload")
        return Outgoing(
            stream=self._topic,
            value=payload,
            key=key if self._queue_id is None else self._queue_id,
            headers=check_headers(headers),
            correlation_id=None,
            partition=None,
            partitioner=_by_key if self._queue_id is None else _any_partition,
            ack_policy=AckPolicy.ALL,
            expected_offset=None,
        )

    def _meet(self, timeout_ms: int | None) -> None:
        """Checks the broker connection and the write rights before the first message."""
        if self._met:
            return
        wait_ms = call_timeout(timeout_ms, self._timeout_ms)
        topics = ClusterAdmin(client_config(self._config.kafka, "admin"), timeout_ms=wait_ms).meet()
        topics.check_rights(of_producer(streams=self._config.streams_topic, queues=[self._topic]))
        self._met = True

    def _count(self, change: int) -> None:
        with self._changed:
            self._on_their_way += change
            self._changed.notify_all()


def _any_partition(key: bytes | None, value: bytes | None, partitions: int) -> int:
    """Returns a random partition. In kafka-mq-go too, the messages of a queue id are in all partitions."""
    return random.randrange(partitions)


def _by_key(key: bytes | None, value: bytes | None, partitions: int) -> int:
    """Returns the partition of the key, which Java and Spark choose too, or a random one without a key."""
    return random.randrange(partitions) if key is None else partition_of(key, partitions)
