"""Messages received from a queue. Each message is read and then settled once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

from spark_cursor_source.client.queues.ack_batcher import AckBatcher, Acks
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import MAX_LEASE_MS, KeepAlive, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import AlreadySettled, InvalidArgument, RejectRefused
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.kafka.tail_consumer import Record
from spark_cursor_source.options.arguments import check_number

GIVEN_BACK = "no consumer has received it"
_ACKED, _RELEASED, _REJECTED = "acked", "given back", "rejected"
_settling = threading.Lock()  # all messages share one lock: messages are many, and each hold is short


class Delivery:
    """Shared data of the messages that one Start delivered together."""

    __slots__ = ("acks", "batcher", "began_ms", "can_reject", "cell", "delivery_count", "lease_ms")

    def __init__(
        self,
        batcher: AckBatcher,
        cell: Cell,
        delivery_count: int,
        *,
        lease_ms: int,
        can_reject: bool = True,
        began_ms: int | None = None,
    ) -> None:
        self.batcher, self.cell, self.delivery_count = batcher, cell, delivery_count
        self.acks: Acks = batcher.acks_of(cell)
        self.lease_ms, self.can_reject = lease_ms, can_reject
        self.began_ms = began_ms  #: broker time at which the lease began, or None if unknown


class QueueMessage:
    """One delivery of a message. The consumer extends the lease until the message is settled.

    Any thread may ack, release or reject a message. Each call returns when the brokers have stored the
    settlement. If they have not, the call raises NotSettled, NotAuthorized or KafkaRefused. After the
    consumer is closed, calls raise ClientClosed. After the consumer has failed, they raise ConsumerFailed.

    Example::

        from spark_cursor_source.client import Service, ServiceConfig

        service = Service(ServiceConfig(bootstrap_servers="broker:9092", message_topic="jobs"))
        mails = service.queue("mails")
        with mails.producer() as producer, mails.consumer() as consumer:
            producer.send(b"to: you")
            message = consumer.receive(timeout_ms=20_000)
            if message is not None:
                message.ack()
    """

    __slots__ = ("_record", "_settled", "delivery")

    def __init__(self, record: Record, delivery: Delivery) -> None:
        self._record = record
        self.delivery = delivery
        self._settled: str | None = None

    @property
    def payload(self) -> bytes | None:
        """The value of the Kafka record. A tombstone has the value None."""
        return self._record.value()

    @property
    def key(self) -> bytes | None:
        """The key of the Kafka record. If queues share the topic, the key is the queue id."""
        return self._record.key()

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers of the Kafka record, in their original order."""
        return headers_of(self._record) or ()

    @property
    def topic(self) -> str:
        return self.delivery.cell.topic

    @property
    def partition(self) -> int:
        return self.delivery.cell.partition

    @property
    def offset(self) -> int:
        return self._record.offset()  # type: ignore[return-value]  # only an unsent Record has None

    @property
    def timestamp_ms(self) -> int:
        """The record timestamp in ms: CreateTime, or LogAppendTime if the topic is configured so."""
        return self._record.timestamp()[1]

    @property
    def delivery_count(self) -> int:
        """The number of deliveries of this message, this one included. The first delivery is 1."""
        return self.delivery.delivery_count

    def ack(self, timeout_ms: int | None = None) -> None:
        """Acks the message, so that it is never redelivered. Another ack has no further effect.

        Raises:
            AlreadySettled: the message was released or rejected before.
            NotSettled: the ack was not stored within ``timeout_ms`` (default: the client's timeout). The
                consumer retries the write.
        """
        self.delivery.batcher.wait_for(self.ack_async(), timeout_ms)

    def ack_async(self) -> Future[None]:
        """Acks the message without waiting. Acks of a few milliseconds are written together.

        The future completes when the brokers have stored the ack. All acks of one write share a future, so it
        cannot be cancelled. It fails with NotAuthorized or KafkaRefused if the brokers refuse the ack, and
        stays open while they are unavailable: the consumer tries again. The consumer's ``flush()`` and
        ``close()`` wait for all pending acks.

        Raises:
            AlreadySettled, ClientClosed
        """
        self._settle(_ACKED)
        delivery = self.delivery
        offset: int = self._record.offset()  # type: ignore[assignment]  # only an unsent Record has None
        return delivery.batcher.ack(delivery.acks, offset)

    def nack(
        self, delay_ms: int | None = None, *, reason: str | Exception = "", timeout_ms: int | None = None
    ) -> None:
        """Releases the message for redelivery after ``delay_ms``, or after the tracker's backoff if None.

        ``delay_ms`` is at most 12 h. A delay of 0 is kafka-mq-go's Interrupt. ``reason`` is kept for the dead
        letter; of an exception, its text. V1 trackers have no backoff: with V1 markers and None, the lease is
        left to expire.

        Raises:
            InvalidArgument: ``delay_ms`` is not a whole number of at most 12 h, or ``reason`` is not text.
            AlreadySettled: the message was acked, rejected or released before.
        """
        if delay_ms is not None:
            delay_ms = _check_ms("delay_ms", delay_ms, least=0)
        text = _text(reason)
        self._settle(_RELEASED)
        cell, offsets, count = self._named()
        release = Release(cell=cell, offsets=offsets, delivery_count=count, delay_ms=delay_ms, reason=text)
        self._write(release, timeout_ms)

    def reject(self, reason: str | Exception = "", *, timeout_ms: int | None = None) -> None:
        """Moves the message to the dead letters immediately, with the reason. This is kafka-mq-go's Nack.

        The reason of an exception is its text.

        Raises:
            InvalidArgument: ``reason`` is not text.
            AlreadySettled: the message was acked, rejected or released before.
            RejectRefused: the consumer uses V1 markers, which have no reject.
        """
        if not self.delivery.can_reject:
            raise RejectRefused
        text = _text(reason)
        self._settle(_REJECTED)
        cell, offsets, count = self._named()
        self._write(Reject(cell=cell, offsets=offsets, delivery_count=count, reason=text), timeout_ms)

    def extend(self, lease_ms: int | None = None, *, timeout_ms: int | None = None) -> None:
        """Extends the lease to ``lease_ms`` from now (default: the consumer's lease time, at most 12 h).

        Applications seldom need this method. The consumer extends each lease every third of the lease time,
        and never shortens a lease.

        Raises:
            InvalidArgument: ``lease_ms`` is not a whole number of at most 12 h.
            AlreadySettled: the message is settled and has no lease.
        """
        if lease_ms is not None:
            lease_ms = _check_ms("lease_ms", lease_ms, least=1)
        if self._settled is not None:
            raise AlreadySettled(str(self), self._settled)
        cell, offsets, count = self._named()
        keep_alive = KeepAlive(
            cell=cell, offsets=offsets, delivery_count=count, lease_ms=lease_ms or self.delivery.lease_ms
        )
        self._write(keep_alive, timeout_ms)

    def __repr__(self) -> str:
        return f"QueueMessage({self.topic}-{self.partition} offset {self.offset})"

    def _settle(self, how: str) -> None:
        with _settling:
            if self._settled is None:
                self._settled = how
            elif self._settled is not _ACKED or how is not _ACKED:
                raise AlreadySettled(str(self), self._settled)

    def _named(self) -> tuple[Cell, OffsetSet, int]:
        delivery, offset = self.delivery, self.offset
        return delivery.cell, OffsetSet.of((offset, offset + 1)), delivery.delivery_count

    def _write(self, settlement: Release | Reject | KeepAlive, timeout_ms: int | None) -> None:
        batcher = self.delivery.batcher
        batcher.wait_for(batcher.settle(settlement), timeout_ms)


def releases(messages: Iterable[QueueMessage]) -> Iterator[Release]:
    """Yields the releases of buffered messages that the application has not received.

    A first delivery is undone and does not count. A later delivery counts, as it does if a process dies.
    """
    by_delivery: dict[Delivery, list[int]] = {}
    for message in messages:
        by_delivery.setdefault(message.delivery, []).append(message.offset)
    for delivery, offsets in by_delivery.items():
        yield unreceived(
            delivery.cell,
            OffsetSet.from_offsets(offsets),
            delivery.delivery_count,
            began_ms=delivery.began_ms,
        )


def unreceived(cell: Cell, offsets: OffsetSet, delivery_count: int, *, began_ms: int | None) -> Release:
    """Returns the release of a delivery that no application has received.

    ``began_ms`` is the broker time at which the delivery began.
    """
    back = Release(cell=cell, offsets=offsets, delivery_count=delivery_count, delay_ms=0, reason=GIVEN_BACK)
    if delivery_count == 1 and began_ms is not None:
        return replace(back, delay_ms=None, due_ms=began_ms)
    return back


# The arguments are checked in the caller's thread: in the ack thread, a wrong type would fail all messages.


def _check_ms(argument: str, value: int, *, least: int) -> int:
    return check_number(argument, value, least=least, most=MAX_LEASE_MS)


def _text(reason: str | Exception) -> str:
    if isinstance(reason, BaseException):
        return str(reason)
    if not isinstance(reason, str):
        raise InvalidArgument("reason", reason, "it is neither text nor an exception")
    return reason
