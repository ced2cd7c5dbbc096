"""Reads one partition of a stream. Continues after pauses and broker restarts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from spark_cursor_source.client.streams.keeper import FOLLOW_S
from spark_cursor_source.client.streams.positions import Message
from spark_cursor_source.core.stream_state import PartitionState, StreamPartition
from spark_cursor_source.errors import (
    ClientClosed,
    EndOfReadonlyPartition,
    NoSuchStream,
    TopicGone,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin import ClusterAdmin, TopicInfo
from spark_cursor_source.kafka.config import client_config, open_client
from spark_cursor_source.kafka.config_roles import consumer_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, UNKNOWN_TOPIC, error_of, refusal

log = logging.getLogger(__name__)

_AT_ONCE = 500
_WAIT_S = 0.1
_PAUSED_S = 0.05
_LOOK_MS = 2_000  # ms without messages after which the reader checks that the stream exists
# Publishers may learn late that a partition is readonly. Their messages of this interval are delivered too.
_SETTLE_MS = int(4 * FOLLOW_S * 1000)
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
# Group errors are ignored: this reader assigns its partition itself and joins no group.
_OF_GROUPS = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})


class PartitionReader:
    """Reads a partition from ``start`` to before ``stop``, or forever if ``stop`` is None.

    ``state`` returns the paused and readonly state of the partition. ``is_closed`` is True once the client is
    closed.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        topics: ClusterAdmin,
        topic: TopicInfo,
        partition: int,
        *,
        start: int,
        stop: int | None,
        state: Callable[[], PartitionState],
        is_closed: Callable[[], bool],
    ) -> None:
        self._kafka, self._topics, self._topic, self._partition = kafka, topics, topic, partition
        self._first, self._stop = start, stop
        self._state, self._is_closed = state, is_closed
        self._position = start  #: offset of the next message to yield
        self._fetched = start  # offset of the next record to fetch
        self._end_seen = 0
        self._quiet = Deadline.after_ms(_LOOK_MS)
        self._readonly: Deadline | None = None  # end of the settle interval of a partition seen as readonly

    def messages(self) -> Generator[Message]:
        """Yields each message once, in order. Skips messages that retention removed before the read.

        Raises:
            EndOfReadonlyPartition, NoSuchStream, ClientClosed
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        config = consumer_config(
            client_config(self._kafka, "consumer"),
            {
                "isolation.level": "read_committed",
                "fetch.queue.backoff.ms": 2,
                # The broker reports the end of partition after this wait. A read with a stop needs the end.
                "fetch.wait.max.ms": 100 if self._stop is None else 10,
                "log_level": 0,
            },
        )
        consumer = open_client(Consumer, config)
        try:
            self._position = self._fetched = self._first_position()
            self._assign(consumer)
            while not self._is_over():
                self._await_resume()
                for record in self._next_records(consumer):
                    self._await_resume()
                    self._position = _offset(record)
                    if self._is_over():
                        return
                    if self._position >= self._first:
                        yield self._message(record)
                    self._position += 1
                self._position = self._fetched
        except KafkaException as raised:
            raise refusal(error_of(raised), operation="read", resource=self._topic.name) from raised
        finally:
            consumer.close()

    @property
    def _place(self) -> StreamPartition:
        return self._topic.name, self._partition

    def _first_position(self) -> int:
        """Returns the first offset to read. A future start offset begins at the current end."""
        return max(min(self._first, self._end()), self._topics.beginning_offsets([self._place])[self._place])

    def _assign(self, consumer: Consumer) -> None:
        consumer.assign([TopicPartition(*self._place, self._fetched)])

    def _is_over(self) -> bool:
        if self._stop is not None and self._position >= self._stop:
            return True
        if self._is_closed():
            raise ClientClosed
        if not self._state().readonly:
            self._readonly = None
        elif self._readonly is None:
            self._readonly = Deadline.after_ms(_SETTLE_MS)
        elif self._readonly.over and self._position >= self._end_seen:
            self._end_seen = self._end()
            if self._position >= self._end_seen:
                raise EndOfReadonlyPartition(*self._place, self._position)
        return False

    def _await_resume(self) -> None:
        while self._state().paused:
            if self._is_closed():
                raise ClientClosed
            if self._quiet.over:
                self._look()
            time.sleep(_PAUSED_S)

    def _next_records(self, consumer: Consumer) -> list[KafkaMessage]:
        """Returns the next records. The list is empty if only ends and errors, or nothing, arrived."""
        records: list[KafkaMessage] = []
        for message in consumer.consume(_AT_ONCE, 0) or consumer.consume(1, _WAIT_S):
            error = message.error()
            if error is None:
                records.append(message)
                self._fetched = _offset(message) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._fetched = max(self._fetched, _offset(message))
            elif self._deal_with(error, consumer):
                break  # reassigned: the rest of this list is fetched again
        if records:
            self._quiet = Deadline.after_ms(_LOOK_MS)
        elif self._quiet.over:
            self._look()
        return records

    def _deal_with(self, error: KafkaError, consumer: Consumer) -> bool:
        """Handles a consumer error. True if the partition was reassigned."""
        code = error.code()
        if code in _OF_GROUPS:
            return False
        log.info(
            "Reading a stream failed and is retried. event=stream_read_retrying stream=%s error=%s",
            self._place,
            error.name(),
        )
        if code in UNKNOWN_TOPIC or code in _OUT_OF_RANGE:
            self._look()
            oldest = self._topics.beginning_offsets([self._place])[self._place]
            if oldest > self._fetched:
                log.warning(
                    "Retention removed messages before they were read. event=stream_messages_expired "
                    "stream=%s first=%s next=%s",
                    self._place,
                    self._fetched,
                    oldest,
                )
                self._fetched = oldest
            time.sleep(_WAIT_S)
            self._assign(consumer)
            return True
        if code in RETRIABLE and not error.fatal():
            return False
        raise refusal(error, operation="read", resource=self._topic.name)

    def _look(self) -> None:
        """Checks that the stream exists and was not recreated. Waits for unavailable brokers."""
        self._quiet = Deadline.after_ms(_LOOK_MS)
        name = self._topic.name
        try:
            found = self._topics.describe([name])[name]
        except TopicNotFound as gone:
            raise NoSuchStream(name) from gone
        if found.topic_id != self._topic.topic_id:
            raise NoSuchStream(name)

    def _end(self) -> int:
        try:
            return self._topics.end_offsets([self._place], committed=True)[self._place]
        except (TopicNotFound, TopicGone) as gone:
            raise NoSuchStream(self._topic.name) from gone

    def _message(self, record: KafkaMessage) -> Message:
        return Message(
            stream=self._topic.name,
            partition=self._partition,
            offset=_offset(record),
            key=record.key(),
            value=record.value(),
            timestamp_ms=record.timestamp()[1],
            headers=_headers(record),
        )


def _headers(record: KafkaMessage) -> tuple[tuple[str, bytes | None], ...]:
    found: Any = record.headers()  # a list of pairs, against its annotation
    return tuple(found or ())


def _offset(record: KafkaMessage) -> int:
    offset = record.offset()
    assert offset is not None
    return offset
