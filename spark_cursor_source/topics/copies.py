"""Copies of messages, written by an idempotent producer and confirmed before the originals are settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import CopiesNotDurable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config_roles import producer_config
from spark_cursor_source.kafka.confirmed_producer import (
    ConfirmedProducer,
    NotConfirmed,
    OnDelivery,
    Record,
    Rejected,
    Unconfirmed,
)
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.wire.original_time import original_ms

ANY_PARTITION = -1  #: the producer chooses the partition

_READ_THROUGH = 2_000  # gaps of up to this many records are read through instead of skipped by a seek
_NO_LIMIT = 1_000_000_000  # no limit in the client, because the brokers enforce their own

#: errors that concern one message, not its target topic
OF_ONE_MESSAGE = frozenset(
    {
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
)

Headers = Sequence[tuple[str, bytes | None]]
#: callback with the error of a copy, or None after the brokers have confirmed it
Told = Callable[[KafkaError | None], None]


class MessageCopier:
    """Producer of copies. It is discarded after a failure, and the next copy opens a new one."""

    def __init__(
        self, config: Mapping[str, Any], *, patience_ms: int, settings: Mapping[str, object] | None = None
    ) -> None:
        self._patience_ms = patience_ms
        own = {"linger.ms": 5, "message.max.bytes": _NO_LIMIT, "message.timeout.ms": patience_ms}
        self._confirmed = ConfirmedProducer(
            producer_config(config, own | dict(settings or {})), patience_ms=patience_ms
        )
        self._unconfirmed = Unconfirmed()

    def connect(self, topic: str, timeout_s: float) -> None:
        """Open the producer and look the topic up, so that the first copy does not wait for the brokers.

        Failures are ignored.
        """
        with suppress(KafkaException):
            self._confirmed.open().list_topics(topic, timeout_s)

    def add(
        self,
        topic: str,
        partition: int,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        told: Told | None = None,
    ) -> None:
        """Send a copy. It gets a new timestamp.

        With ``told``, the callback receives the result of the copy, and neither this method nor :meth:`flush`
        raises for that copy.

        Raises:
            CopiesNotDurable: the producer rejects the copy.
        """
        unconfirmed = self._unconfirmed
        record: Record = (topic, key, value, partition, list(headers))
        producer = self._confirmed.open()
        report = unconfirmed.on_delivery if told is None else _telling(unconfirmed, told)
        try:
            self._confirmed.send_counted(producer, record, unconfirmed, on_delivery=report)
        except Rejected as rejected:
            if told is None:
                raise _not_durable(unconfirmed, topic, rejected.why) from rejected
            unconfirmed.settle()
            told(rejected.error)

    def flush(self) -> None:
        """Wait until the brokers have confirmed every copy.

        Raises:
            CopiesNotDurable: a copy was not confirmed. Some copies may be written anyway.
        """
        producer, unconfirmed = self._confirmed.current, self._unconfirmed
        if producer is None:
            return
        try:
            self._confirmed.flush_counted(producer, unconfirmed, Deadline.after_ms(self._patience_ms))
        except NotConfirmed as failed:
            raise _not_durable(unconfirmed, "", failed.why) from failed

    def discard(self) -> None:
        """Close the producer. Unflushed copies are lost."""
        self._unconfirmed = Unconfirmed()  # late reports of the closed producer do not count here
        self._confirmed.discard()


def _telling(unconfirmed: Unconfirmed, told: Told) -> OnDelivery:
    """Return a delivery callback for a copy whose caller handles its errors."""

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        unconfirmed.settle()
        told(error)

    return on_delivery


def _not_durable(unconfirmed: Unconfirmed, topic: str, why: str) -> CopiesNotDurable:
    return CopiesNotDurable(unconfirmed.topic or topic, unconfirmed.unsent, unconfirmed.why(why))


def original_ms_of(message: Message) -> int | None:
    """Return the timestamp (ms) of the original message, also for a copy, or None if it has none."""
    kind, timestamp_ms = message.timestamp()
    return original_ms(headers_of(message), None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms)


def still_there(topics: ClusterAdmin, topic: str, wanted: Mapping[int, OffsetSet]) -> dict[int, OffsetSet]:
    """Return the wanted offsets of each partition that are in the log. Empty if the topic does not exist.

    Raises:
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    info = topics.existing([topic], wanted=[(topic, number) for number in wanted]).get(topic)
    partitions = 0 if info is None else info.partitions
    return in_log(topics, topic, {number: wanted[number] for number in wanted if number < partitions})


def in_log(topics: ClusterAdmin, topic: str, wanted: Mapping[int, OffsetSet]) -> dict[int, OffsetSet]:
    """Return the wanted offsets of each partition that are in the log. The partitions exist.

    Raises:
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    places = [(topic, number) for number in wanted]
    begins = topics.beginning_offsets(places)
    ends = topics.end_offsets(places, committed=False)
    return {
        number: offsets.starting_at(begins[topic, number]).below(ends[topic, number])
        for number, offsets in wanted.items()
    }


def reading_rounds(wanted: Mapping[int, OffsetSet]) -> Iterator[dict[int, tuple[int, int]]]:
    """Yield the ranges to read in each round, by partition. Few ranges cover all wanted offsets.

    >>> list(reading_rounds({0: OffsetSet.of((5, 6), (90, 91), (9_000, 9_001)), 1: OffsetSet.of((2, 4))}))
    [{0: (5, 91), 1: (2, 4)}, {0: (9000, 9001)}]
    """
    spans = {number: _spans(offsets) for number, offsets in wanted.items()}
    for at_once in zip_longest(*spans.values()):
        yield {number: span for number, span in zip(spans, at_once, strict=True) if span is not None}


def _spans(offsets: OffsetSet) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for start, stop in offsets.iter_ranges():
        if spans and start - spans[-1][1] <= _READ_THROUGH:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((start, stop))
    return spans
