"""Reader of offset ranges of several partitions of a topic, for infrequent reads."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_cursor_source.errors import TopicNotFound
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import consumer_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.error_codes import (
    RETRIABLE,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    ErrorCallback,
    error_of,
    refusal,
    unavailable,
)

log = logging.getLogger(__name__)

_AT_ONCE = 500
_WAIT_S = 0.1
_ONE_REQUEST_S = 10.0
_LOOK_MS = 2_000
_DENIAL_MS = 10_000  # a broker that restarts may deny existing topics and offsets for this long
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
# Errors about groups, which do not concern a reader with assigned partitions.
_OF_GROUPS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})


class RangeReader:
    """Consumer for many short reads. It does not fetch between them.

    With ``committed``, records of open and aborted transactions are skipped.
    """

    def __init__(
        self, config: Mapping[str, Any], *, committed: bool, stall_timeout_ms: int = PATIENCE_MS
    ) -> None:
        self._stall_timeout_ms = stall_timeout_ms
        self._complaints = ErrorCallback()
        self._consumer: Consumer = open_client(
            Consumer,
            consumer_config(
                config,
                {
                    "error_cb": self._complaints,
                    "isolation.level": "read_committed" if committed else "read_uncommitted",
                    "fetch.queue.backoff.ms": 2,
                    "fetch.wait.max.ms": 5,  # delay of the report of a partition end
                },
            ),
        )

    def read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Generator[Message]:
        """Yield the records of ``{partition: (start, stop)}``, in order within a partition.

        Records that retention has deleted are skipped. A partition that stays shorter than its range, for
        example after the topic was recreated, is read to its end.

        Raises:
            KafkaUnavailable: no progress for the stall timeout.
            TopicNotFound, NotAuthorized, KafkaRefused
        """
        reading = _Reading(self._consumer, self._complaints, topic, ranges, self._stall_timeout_ms)
        try:
            reading.assign()
            while reading.unfinished:
                yield from reading.next_records()
        except KafkaException as raised:
            raise refusal(error_of(raised), operation="read", resource=topic) from raised
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


class _Reading:
    def __init__(
        self,
        consumer: Consumer,
        complaints: ErrorCallback,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        stall_timeout_ms: int,
    ) -> None:
        self._consumer, self._complaints = consumer, complaints
        self._topic, self._stall_timeout_ms = topic, stall_timeout_ms
        self._positions = {number: start for number, (start, _) in ranges.items()}
        self._stops = {number: stop for number, (_, stop) in ranges.items()}
        self.unfinished = {number for number, (start, stop) in ranges.items() if start < stop}
        self._short: set[int] = set()  # partitions whose end was below the stop at the last read
        self._denial: Deadline | None = None
        self._last: KafkaError | None = None
        self._stall = Deadline.after_ms(stall_timeout_ms)
        self._next_look = Deadline.after_ms(_LOOK_MS)

    def assign(self) -> None:
        self._consumer.assign(
            [
                TopicPartition(self._topic, number, self._positions[number])
                for number in sorted(self.unfinished)
            ]
        )

    def next_records(self) -> list[Message]:
        """Return the next records. Empty after partition ends, handled errors or a wait without records."""
        messages = self._consumer.consume(_AT_ONCE, 0) or self._consumer.consume(1, _WAIT_S)
        if not messages:
            self._check_stall()
        records: list[Message] = []
        for message in messages:
            number, offset, error = message.partition(), message.offset(), message.error()
            if number is not None and number not in self._positions:
                continue  # a late error of the previous range
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                assert number is not None
                assert offset is not None
                if error is None:
                    self._denial = None
                    if self._positions[number] <= offset < self._stops[number]:
                        records.append(message)
                    self._advance(number, offset + 1)
                else:
                    self._advance(number, offset)
                    self._short.add(number)
            elif self._deal_with(error, number):
                break  # the partitions were reassigned, so the rest of this list is fetched again
        return records

    def _advance(self, number: int, position: int) -> None:
        if position > self._positions[number]:
            self._short.discard(number)
            self._positions[number] = position
            self._stall = Deadline.after_ms(self._stall_timeout_ms)
            self._next_look = Deadline.after_ms(_LOOK_MS)
        if self._positions[number] >= self._stops[number]:
            self.unfinished.discard(number)

    def _deal_with(self, error: KafkaError, number: int | None) -> bool:
        """Handle an error. Return True if the partitions were reassigned."""
        code = error.code()
        if code in _OF_GROUPS:
            return False
        self._last = error
        if code in UNAUTHORIZED or error.fatal():
            raise refusal(error, operation="read", resource=self._topic)
        log.info(
            "A fetch failed and is retried. event=fetch_retrying topic=%s partition=%s error=%s",
            self._topic,
            number,
            error.name(),
        )
        self._check_stall()
        if code in _OUT_OF_RANGE and number is not None:
            self._leave_what_is_gone(number)
        elif code in UNKNOWN_TOPIC:
            if self._denied_for_long():
                raise TopicNotFound((self._topic,))
        elif code in RETRIABLE:
            return False
        else:
            raise refusal(error, operation="read", resource=self._topic)
        self.assign()
        return True

    def _check_stall(self) -> None:
        if self._stall.over:
            raise unavailable(f"read topic '{self._topic}'", self._stall, self._last, self._complaints)
        if self._next_look.over or self._denial is not None:
            self._look_at_topic()
            for number in self._short & self.unfinished:
                self._leave_what_is_gone(number)
            self._next_look = Deadline.after_ms(_LOOK_MS)

    def _look_at_topic(self) -> None:
        """Check topic and permission.

        A consumer receives no error for a missing right, and not always one for a deleted topic.
        """
        try:
            found = self._consumer.list_topics(self._topic, timeout=self._stall.left_s(most=_ONE_REQUEST_S))
        except KafkaException as unanswered:
            self._last = error_of(unanswered)
            return
        error = found.topics[self._topic].error
        if error is None:
            return
        if error.code() in UNAUTHORIZED:
            raise refusal(error, operation="read", resource=self._topic)
        if error.code() in UNKNOWN_TOPIC and self._denied_for_long():
            raise TopicNotFound((self._topic,))

    def _leave_what_is_gone(self, number: int) -> None:
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, number), timeout=_ONE_REQUEST_S
            )
        except KafkaException as unanswered:
            self._last = error_of(unanswered)
            return
        stop = self._stops[number]
        if low > self._positions[number]:
            self._warn_gone(number, min(low, stop))
            self._advance(number, low)
        elif high < stop and self._denied_for_long():
            self._warn_gone(number, stop)
            self._advance(number, stop)

    def _warn_gone(self, number: int, stop: int) -> None:
        log.warning(
            "Records were removed before they were read. event=records_removed topic=%s "
            "partition=%s first=%s next=%s",
            self._topic,
            number,
            self._positions[number],
            stop,
        )

    def _denied_for_long(self) -> bool:
        """Return True if the brokers have reported the topic or offset as missing for too long, else wait."""
        if self._denial is None:
            self._denial = Deadline.after_ms(min(_DENIAL_MS, self._stall_timeout_ms // 2))
        self._denial.pause(_WAIT_S)
        return self._denial.over
