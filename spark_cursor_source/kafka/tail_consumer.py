"""Continuous reader of the tail of a queue topic, with a read position for each assigned partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import QueueTopicEndsEarlier, TopicGone
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.consumers import reader_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import (
    RETRIABLE,
    TURNED_AWAY,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    ErrorCallback,
    error_of,
    refusal,
)
from spark_cursor_source.kafka.range_consumer import offset_of

log = logging.getLogger(__name__)

_ONE_REQUEST_S = 10.0
_DENIAL_MS = 10_000  # a broker that restarts may deny existing topics and offsets for this long
_AGAIN_S = 0.25
_OUT_OF_RANGE = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)
# a reader with assigned partitions is in no group
_OF_GROUPS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})

#: called with (partition, first removed offset, next remaining offset)
Removed = Callable[[int, int, int], None]


#: a Kafka record, for code that must not import the Kafka client: key, value, headers, offset, timestamp
Record = Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Records of a partition in ``[start, stop)``. The range may contain gaps."""

    partition: int
    start: int
    stop: int
    messages: list[Message]

    def of_queue(self, queue_id: bytes | None) -> list[Message]:
        """Return the messages of a queue id, or all messages if it is None."""
        if queue_id is None:
            return self.messages
        return [message for message in self.messages if message.key() == queue_id]


def _by_partition(messages: list[Message]) -> dict[int, list[Message]]:
    """Group messages by partition. They arrive in long runs of one partition."""
    numbers = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(messages)]
    found: dict[int, list[Message]] = {}
    for start, stop in pairwise(edges):
        found.setdefault(int(numbers[start]), []).extend(messages[start:stop])
    return found


def offsets_of(messages: Sequence[Message]) -> OffsetSet:
    """Return the offsets of messages of one partition, which are in ascending order."""
    first, last = offset_of(messages[0]), offset_of(messages[-1])
    if last - first == len(messages) - 1:
        return OffsetSet.of((first, last + 1))
    return OffsetSet.from_offsets(map(offset_of, messages))


class TailConsumer:
    """Consumer with assigned partitions and positions, outside of any group. Not thread-safe.

    ``on_removed`` is called for offsets that retention has deleted before they were read.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        topic: str,
        *,
        isolation: str,
        on_removed: Removed,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._topic, self._on_removed = topic, on_removed
        self._complaints = ErrorCallback()
        fixed = {"isolation.level": isolation, "error_cb": self._complaints}
        self._consumer: Consumer = open_client(
            Consumer, {**reader_config(config), **fixed, **(settings or {})}
        )
        self._positions: dict[int, int] = {}
        self._denials: dict[int, Deadline] = {}
        self._held: frozenset[int] = frozenset()

    def follow(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these positions, also if they were read before."""
        self._positions |= positions
        self._assign()

    def leave(self, partitions: Iterable[int]) -> None:
        """Stop reading these partitions."""
        gone = [number for number in partitions if self._positions.pop(number, None) is not None]
        for number in gone:
            self._denials.pop(number, None)
        if gone:
            self._assign()

    def pause(self, partitions: frozenset[int]) -> None:
        """Pause exactly these partitions until the next call. Their positions are kept."""
        if partitions != self._held:
            self._held = partitions
            if self._positions:
                self._assign()

    def read(self, most: int, wait_s: float) -> list[Fetched]:
        """Return the next records, at most ``most``. Empty if none arrive within ``wait_s``.

        Raises:
            TopicGone: the topic or a partition was deleted.
            QueueTopicEndsEarlier: a partition ends before its position, for example after the topic was
                recreated.
            NotAuthorized, KafkaRefused
        """
        return self._read(most, wait_s) if self._positions else []

    def _read(self, most: int, wait_s: float) -> list[Fetched]:
        # Take the available records without waiting for a full batch. With gaps it may never fill.
        messages = self._consumer.consume(most, 0) or self._consumer.consume(1, wait_s)
        if not messages:
            return []
        if any(map(Message.error, messages)):
            return self._sift(messages)
        return [self._advance(number, some) for number, some in _by_partition(messages).items()]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _advance(self, number: int, messages: list[Message]) -> Fetched:
        start, stop = self._positions[number], offset_of(messages[-1]) + 1
        self._positions[number] = stop
        self._denials.pop(number, None)
        return Fetched(partition=number, start=start, stop=stop, messages=messages)

    def _sift(self, messages: list[Message]) -> list[Fetched]:
        """Handle partition ends and errors in a list of messages, and return the records."""
        starts: dict[int, int] = {}
        records: dict[int, list[Message]] = {}
        anew = False
        for message in messages:
            number, offset, error = message.partition(), message.offset(), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                anew = self._deal_with(error, number) or anew
            elif number in self._positions and offset is not None and offset >= self._positions[number]:
                starts.setdefault(number, self._positions[number])
                if error is None:
                    records.setdefault(number, []).append(message)
                self._positions[number] = offset + (error is None)
                self._denials.pop(number, None)
        if anew:
            self._assign()
        return [
            Fetched(
                partition=number, start=start, stop=self._positions[number], messages=records.get(number, [])
            )
            for number, start in starts.items()
            if self._positions[number] > start
        ]

    def _deal_with(self, error: KafkaError, number: int | None) -> bool:
        """Handle an error. Return True if partitions must be reassigned."""
        code = error.code()
        if code in _OF_GROUPS:
            return False
        if code in UNAUTHORIZED | TURNED_AWAY or error.fatal():
            raise refusal(error, operation="read", resource=self._topic)
        log.info(
            "A fetch failed and is retried. event=fetch_retrying topic=%s partition=%s error=%s",
            self._topic,
            number,
            error.name(),
        )
        if code in _OUT_OF_RANGE and number in self._positions:
            self._leave_what_is_gone(number)
        elif code in UNKNOWN_TOPIC:
            if self._denied_for_long(-1 if number is None else number):
                raise TopicGone(self._topic, 0 if number is None else number)
        elif code not in RETRIABLE:
            raise refusal(error, operation="read", resource=self._topic)
        else:
            return False
        return True

    def _leave_what_is_gone(self, number: int) -> None:
        position = self._positions[number]
        try:
            place = TopicPartition(self._topic, number)
            low, high = self._consumer.get_watermark_offsets(place, timeout=_ONE_REQUEST_S)
        except KafkaException as unanswered:
            log.info(
                "A fetch failed and is retried. event=fetch_retrying topic=%s partition=%s error=%s",
                self._topic,
                number,
                error_of(unanswered).name(),
            )
            return
        if low > position:
            self._on_removed(number, position, low)
            self._positions[number] = low
        elif high < position and self._denied_for_long(number):
            raise QueueTopicEndsEarlier(self._topic, number, position, high)

    def _denied_for_long(self, number: int) -> bool:
        """Return True if the brokers have reported the partition as missing for too long, else wait."""
        denial = self._denials.setdefault(number, Deadline.after_ms(_DENIAL_MS))
        denial.pause(_AGAIN_S)
        return denial.over

    def _assign(self) -> None:
        self._consumer.assign(
            [
                TopicPartition(self._topic, number, at)
                for number, at in sorted(self._positions.items())
                if number not in self._held
            ]
        )
