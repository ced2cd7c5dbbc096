"""Copies of messages to other places, by an idempotent producer; confirmed before anything forgets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message, Producer

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import CopiesNotDurable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import abandon, producer_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import ErrorCallback, error_of, shown
from spark_cursor_source.wire.original_time import original_ms

ANY_PARTITION = -1  #: the producer chooses

_POLL_S = 0.05
_READ_THROUGH = 2_000  # so many records in between are read rather than sought over
_NO_LIMIT = 1_000_000_000  # the client's; the brokers' is what counts

#: about a message, and not about the topic that it was sent to
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
Told = Callable[[KafkaError | None], None]  #: what became of a copy; None: the brokers have confirmed it


@dataclass(slots=True)
class _Unconfirmed:
    """Copies on their way to the brokers."""

    pending: int = 0
    failed: int = 0
    topic: str = ""
    why: str = ""

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self.pending -= 1
        if error is not None:
            self.failed += 1
            self.topic, self.why = message.topic() or "", shown(error)

    def telling(self, told: Told) -> Callable[[KafkaError | None, Message], None]:
        """The same for a copy that somebody else answers for."""

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            self.pending -= 1
            told(error)

        return on_delivery


class MessageCopier:
    """A producer of copies; after a failure it is thrown away, and the next copy opens a new one."""

    def __init__(
        self, config: Mapping[str, Any], *, patience_ms: int, settings: Mapping[str, object] | None = None
    ) -> None:
        self._patience_ms = patience_ms
        self._complaints = ErrorCallback()
        self._config = producer_config(
            config,
            {
                "error_cb": self._complaints,
                "linger.ms": 5,
                "message.max.bytes": _NO_LIMIT,
                "message.timeout.ms": patience_ms,
                **(settings or {}),
            },
        )
        self._producer: Producer | None = None
        self._unconfirmed = _Unconfirmed()

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
        """Hand over a copy, whose timestamp is new.

        Whoever is ``told`` what became of it answers for it: neither this nor :meth:`flush` raises for it.

        Raises:
            CopiesNotDurable: the producer does not take it.
        """
        if self._producer is None:
            self._producer = open_client(Producer, self._config)
        unconfirmed = self._unconfirmed
        deadline = Deadline.after_ms(self._patience_ms)
        unconfirmed.pending += 1
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition=partition,
                    headers=list(headers),
                    on_delivery=unconfirmed.on_delivery if told is None else unconfirmed.telling(told),
                )
                return
            except BufferError as full:
                if deadline.over and told is not None:
                    unconfirmed.pending -= 1
                    told(KafkaError(KafkaError._QUEUE_FULL))
                    return
                if deadline.over:
                    raise self._not_durable(topic, "the producer's queue is full") from full
                self._producer.poll(_POLL_S)
            except KafkaException as raised:
                if told is not None:
                    unconfirmed.pending -= 1
                    told(error_of(raised))
                    return
                raise self._not_durable(topic, shown(error_of(raised))) from raised

    def flush(self) -> None:
        """Wait until the brokers have confirmed every copy.

        Raises:
            CopiesNotDurable: they have not; some may be written all the same.
        """
        deadline = Deadline.after_ms(self._patience_ms)
        unconfirmed = self._unconfirmed
        try:
            while self._producer is not None and unconfirmed.pending and not deadline.over:
                self._producer.flush(deadline.left_s(most=1.0))
        except KafkaException as raised:
            raise self._not_durable("", shown(error_of(raised))) from raised
        if unconfirmed.pending or unconfirmed.failed:
            heard = self._complaints.during(deadline)
            said = f" (the last that was heard: {shown(heard)})" if heard is not None else ""
            raise self._not_durable("", f"no answer in {deadline.spent_ms} ms{said}")

    def discard(self) -> None:
        """End the producer; what was not flushed is lost."""
        producer, self._producer = self._producer, None
        self._unconfirmed = _Unconfirmed()
        if producer is not None:
            abandon(producer)

    def _not_durable(self, topic: str, why: str) -> CopiesNotDurable:
        unconfirmed = self._unconfirmed
        return CopiesNotDurable(
            unconfirmed.topic or topic, unconfirmed.pending + unconfirmed.failed, unconfirmed.why or why
        )


def headers_of(message: Message) -> Headers:
    """The headers of a record; empty where it has none."""
    found: Any = message.headers()
    return found or []


def original_ms_of(message: Message) -> int | None:
    """The timestamp that the message was produced with, whatever it is a copy of; None where it has none."""
    kind, timestamp_ms = message.timestamp()
    return original_ms(headers_of(message), None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms)


def still_there(topics: ClusterAdmin, topic: str, wanted: Mapping[int, OffsetSet]) -> dict[int, OffsetSet]:
    """What is wanted of each partition, as far as it is there; empty where the topic is gone.

    Raises:
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    info = topics.existing([topic]).get(topic)
    present = {number: wanted[number] for number in wanted if info is not None and number < info.partitions}
    asked = [(topic, number) for number in present]
    begins = topics.beginning_offsets(asked)
    ends = topics.end_offsets(asked, committed=False)
    return {
        number: offsets.starting_at(begins[topic, number]).below(ends[topic, number])
        for number, offsets in present.items()
    }


def reading_rounds(wanted: Mapping[int, OffsetSet]) -> Iterator[dict[int, tuple[int, int]]]:
    """What to read at once of each partition, and what next: few ranges that hold all the offsets.

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
