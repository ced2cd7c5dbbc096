"""Reader of offset ranges of several partitions of a topic, for infrequent reads."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message

from spark_cursor_source.errors import TopicNotFound
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import FEW_RECORDS, consumer_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.error_codes import ErrorCallback, error_of, refusal
from spark_cursor_source.kafka.reading import PartitionReads, warn_removed

_AT_ONCE = 500
_WAIT_S = 0.1


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
                    **FEW_RECORDS,
                },
            ),
        )

    def connect(self, topic: str, timeout_s: float) -> None:
        """Look the topic up, so that the first read finds an open connection. Failures are ignored."""
        with suppress(KafkaException):
            self._consumer.list_topics(topic, timeout_s)

    def read(
        self, topic: str, ranges: Mapping[int, tuple[int, int]], deadline: Deadline | None = None
    ) -> Generator[Message]:
        """Yield the records of ``{partition: (start, stop)}``, in order within a partition.

        Records that retention has deleted are skipped. A partition that stays shorter than its range, for
        example after the topic was recreated, is read to its end.

        Raises:
            KafkaUnavailable: no progress for the stall timeout, or for the time until the deadline.
            TopicNotFound, NotAuthorized, KafkaRefused
        """
        stall_ms = self._stall_timeout_ms
        if deadline is not None:
            stall_ms = min(stall_ms, int(deadline.left_s() * 1000))
        reading = _Reading(self._consumer, self._complaints, topic, ranges, stall_ms)
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


class _Reading(PartitionReads):
    """State of one read."""

    def __init__(
        self,
        consumer: Consumer,
        complaints: ErrorCallback,
        topic: str,
        ranges: Mapping[int, tuple[int, int]],
        stall_timeout_ms: int,
    ) -> None:
        super().__init__(
            consumer,
            topic,
            {number: start for number, (start, _) in ranges.items()},
            {number: stop for number, (_, stop) in ranges.items()},
            stall_timeout_ms=stall_timeout_ms,
            complaints=complaints,
        )

    def next_records(self) -> list[Message]:
        """Return the next records. Empty after partition ends, handled errors or a wait without records."""
        messages = self._consumer.consume(_AT_ONCE, 0) or self._consumer.consume(1, _WAIT_S)
        if not messages:
            self.quiet()
        return self.sift(messages)

    def removed(self, number: int, up_to: int, available: tuple[int, int]) -> None:
        warn_removed(self.topic, number, self.positions[number], up_to)

    def gone(self, number: int) -> TopicNotFound:
        return TopicNotFound((self.topic,))
