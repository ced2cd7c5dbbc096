"""A message as a queue's consumer receives it: read, and then settled once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from spark_cursor_source.client.queues.settler import AckBatcher, Acks
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import MAX_LEASE_MS, KeepAlive, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import AlreadySettled, InvalidArgument, RejectRefused
from spark_cursor_source.kafka.tail_consumer import Record

GIVEN_BACK = "no consumer has received it"
_ACKED, _RELEASED, _REJECTED = "acked", "given back", "rejected"
_settling = threading.Lock()  # one for all messages: it is held for a moment, and they are many


class Delivery:
    """What messages that were delivered together have in common."""

    __slots__ = ("acks", "began_ms", "can_reject", "cell", "delivery_count", "lease_ms", "settler")

    def __init__(
        self,
        settler: AckBatcher,
        cell: Cell,
        delivery_count: int,
        *,
        lease_ms: int,
        can_reject: bool = True,
        began_ms: int | None = None,
    ) -> None:
        self.settler, self.cell, self.delivery_count = settler, cell, delivery_count
        self.acks: Acks = settler.acks_of(cell)
        self.lease_ms, self.can_reject = lease_ms, can_reject
        self.began_ms = began_ms  #: broker time when the lease had begun; None where it is not known


class QueueMessage:
    """One delivery of a message. Its lease is kept until it is acked, given back or rejected.

    Any thread may settle it. A call returns when the brokers have it, and raises NotSettled, NotAuthorized or
    KafkaRefused where they do not; ClientClosed once the consumer is closed.

    >>> with service.queue("mails").consumer() as consumer:  # doctest: +SKIP
    ...     message = consumer.receive()
    ...     message.ack()
    """

    __slots__ = ("_record", "_settled", "delivery")

    def __init__(self, record: Record, delivery: Delivery) -> None:
        self._record = record
        self.delivery = delivery
        self._settled: str | None = None

    @property
    def payload(self) -> bytes | None:
        """The value of the Kafka record; None of a tombstone."""
        return self._record.value()

    @property
    def key(self) -> bytes | None:
        """The key of the record: the queue id, where queues share the topic."""
        return self._record.key()

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers of the record, in their order."""
        given: Any = self._record.headers()  # a list of pairs, or None
        return given or ()

    @property
    def topic(self) -> str:
        return self.delivery.cell.topic

    @property
    def partition(self) -> int:
        return self.delivery.cell.partition

    @property
    def offset(self) -> int:
        return self._record.offset()  # type: ignore[return-value]  # None only of a message made by hand

    @property
    def timestamp_ms(self) -> int:
        """When the record was made or, where the topic says so, appended."""
        return self._record.timestamp()[1]

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, with this time; 1 the first time."""
        return self.delivery.delivery_count

    def ack(self, timeout_ms: int | None = None) -> None:
        """It is done and never comes back. To ack it again does nothing more.

        Raises:
            AlreadySettled: it was given back or rejected before.
            NotSettled: not in ``timeout_ms``, or the client's; it is tried further.
        """
        self.delivery.settler.wait_for(self.ack_async(), timeout_ms)

    def ack_async(self) -> Future[None]:
        """The same without the wait: acks gather for a few milliseconds and are written together.

        The future is done when the brokers have it, and shared by all acks that are written with it.
        The consumer's ``flush()`` and ``close()`` wait for all of them.
        """
        self._settle(_ACKED)
        delivery = self.delivery
        offset: int = self._record.offset()  # type: ignore[assignment]  # as above
        return delivery.settler.ack(delivery.acks, offset)

    def nack(self, delay_ms: int | None = None, *, reason: str = "", timeout_ms: int | None = None) -> None:
        """Give it back, to be delivered again: after ``delay_ms``, 12 h at most, or the tracker's backoff.

        With 0 it is kafka-mq-go's Interrupt. ``reason`` is kept for the dead letters.
        With V1 markers, whose tracker knows no backoff, None leaves it to the lease it has.

        Raises:
            AlreadySettled: it was acked, rejected or given back before.
        """
        if delay_ms is not None:
            _check_ms("delay_ms", delay_ms, least=0)
        self._settle(_RELEASED)
        cell, offsets, count = self._named()
        release = Release(cell=cell, offsets=offsets, delivery_count=count, delay_ms=delay_ms, reason=reason)
        self._say(release, timeout_ms)

    def reject(self, reason: str = "", *, timeout_ms: int | None = None) -> None:
        """Send it to the dead letters, now, with the reason: kafka-mq-go's Nack.

        Raises:
            AlreadySettled: it was acked, rejected or given back before.
            RejectRefused: V1 markers have no word for it.
        """
        if not self.delivery.can_reject:
            raise RejectRefused
        self._settle(_REJECTED)
        cell, offsets, count = self._named()
        self._say(Reject(cell=cell, offsets=offsets, delivery_count=count, reason=reason), timeout_ms)

    def extend(self, lease_ms: int | None = None, *, timeout_ms: int | None = None) -> None:
        """The lease lasts ``lease_ms`` from now, or as long as it did: 12 h at most.

        It is seldom needed: the consumer does it by itself every third of a lease, and never shortens one.

        Raises:
            AlreadySettled: there is no lease any more.
        """
        if lease_ms is not None:
            _check_ms("lease_ms", lease_ms, least=1)
        if self._settled is not None:
            raise AlreadySettled(str(self), self._settled)
        cell, offsets, count = self._named()
        keep_alive = KeepAlive(
            cell=cell, offsets=offsets, delivery_count=count, lease_ms=lease_ms or self.delivery.lease_ms
        )
        self._say(keep_alive, timeout_ms)

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

    def _say(self, settlement: Release | Reject | KeepAlive, timeout_ms: int | None) -> None:
        settler = self.delivery.settler
        settler.wait_for(settler.say(settlement), timeout_ms)


def releases(messages: Iterable[QueueMessage]) -> Iterator[Release]:
    """What gives back messages that nobody has received.

    Their first delivery was none, and is taken back; any other counts, as that of a process that dies does.
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
    """What gives back a delivery that has reached nobody; ``began_ms``: broker time when it had begun."""
    back = Release(cell=cell, offsets=offsets, delivery_count=delivery_count, delay_ms=0, reason=GIVEN_BACK)
    if delivery_count == 1 and began_ms is not None:
        return replace(back, delay_ms=None, due_ms=began_ms)
    return back


def _check_ms(argument: str, value: int, *, least: int) -> None:
    if not least <= value <= MAX_LEASE_MS:
        raise InvalidArgument(argument, value, f"it is not in {least} to {MAX_LEASE_MS}, which is 12 h")
