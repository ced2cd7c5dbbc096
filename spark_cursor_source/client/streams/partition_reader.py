"""Reads one partition of a stream. Continues after pauses and broker restarts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException
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
from spark_cursor_source.kafka.config_roles import FEW_RECORDS, consumer_config
from spark_cursor_source.kafka.deadline import Deadline, Pace
from spark_cursor_source.kafka.error_codes import error_of, refusal
from spark_cursor_source.kafka.reading import PartitionReads, offset_of
from spark_cursor_source.kafka.record_headers import headers_of

log = logging.getLogger(__name__)

_AT_ONCE = 500
_WAIT_S = 0.1
_PAUSED_S = 0.05
_LOOK_MS = 200  # interval of looks at a stream with new records; to delete and recreate it takes longer
# Publishers may learn late that a partition is readonly. Their messages of this interval are delivered too.
_SETTLE_MS = int(4 * FOLLOW_S * 1000)


class PartitionReader:
    """Reads a partition from ``start`` to before ``stop``, or forever if ``stop`` is None.

    With ``awaits_stop``, the messages up to the stop may be in the future. Without it, they were there when
    the subscription began. Then the read ends earlier if an election of a leader has lost the last of them.

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
        awaits_stop: bool = False,
        state: Callable[[], PartitionState],
        is_closed: Callable[[], bool],
    ) -> None:
        self._kafka, self._topics, self._topic, self._partition = kafka, topics, topic, partition
        self._first, self._stop, self._awaits_stop = start, stop, awaits_stop
        self._state, self._is_closed = state, is_closed
        self._position = start  #: offset of the next message to yield
        self._end_seen = 0
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
                **FEW_RECORDS,
                "isolation.level": "read_committed",
                # The broker reports the end of partition after this wait. A read with a stop needs the end.
                "fetch.wait.max.ms": 100 if self._stop is None else 10,
                "log_level": 0,
            },
        )
        consumer = open_client(Consumer, config)
        try:
            self._position = self._first_position()
            stop = None if self._awaits_stop else self._stop
            reads = _Reads(consumer, self._topics, self._topic, self._partition, self._position, stop)
            reads.assign()
            while not self._is_over():
                self._await_resume(reads)
                for record in reads.next_records():
                    self._await_resume(reads)
                    self._position = offset_of(record)
                    if self._is_over():
                        return
                    if self._position >= self._first:
                        yield self._message(record)
                    self._position += 1
                self._position = reads.positions[self._partition]
                self._stop = reads.stops.get(self._partition, self._stop)
        except KafkaException as raised:
            raise refusal(error_of(raised), operation="read", resource=self._topic.name) from raised
        finally:
            consumer.close()

    @property
    def _place(self) -> StreamPartition:
        return self._topic.name, self._partition

    def _first_position(self) -> int:
        """Returns the first offset to read. A future start offset begins at the current end."""
        end = self._end()
        try:
            return max(min(self._first, end), self._topics.beginning_offsets([self._place])[self._place])
        except (TopicNotFound, TopicGone) as gone:
            raise NoSuchStream(self._topic.name) from gone

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

    def _await_resume(self, reads: _Reads) -> None:
        while self._state().paused:
            if self._is_closed():
                raise ClientClosed
            reads.quiet()
            time.sleep(_PAUSED_S)

    def _end(self) -> int:
        try:
            return self._topics.end_offsets([self._place], committed=True)[self._place]
        except (TopicNotFound, TopicGone) as gone:
            raise NoSuchStream(self._topic.name) from gone

    def _message(self, record: KafkaMessage) -> Message:
        return Message(
            stream=self._topic.name,
            partition=self._partition,
            offset=offset_of(record),
            key=record.key(),
            value=record.value(),
            timestamp_ms=record.timestamp()[1],
            headers=_headers(record),
        )


class _Reads(PartitionReads):
    """Fetch position of the partition. A stream that was deleted or recreated ends the read."""

    def __init__(
        self,
        consumer: Consumer,
        topics: ClusterAdmin,
        topic: TopicInfo,
        partition: int,
        start: int,
        stop: int | None,
    ) -> None:
        stops = {} if stop is None else {partition: stop}
        super().__init__(consumer, topic.name, {partition: start}, stops)
        self._topics, self._info, self._partition = topics, topic, partition
        self._look_at_stream = Pace(_LOOK_MS)

    def next_records(self) -> list[KafkaMessage]:
        """Returns the next records. The list is empty if only ends and errors, or nothing, arrived."""
        messages = self._consumer.consume(_AT_ONCE, 0) or self._consumer.consume(1, _WAIT_S)
        records = self.sift(messages)
        if not records:
            self.quiet()
        elif self._look_at_stream.is_time():
            self.look()  # a stream that was recreated since may have records at the same offsets
        return records

    def look(self) -> None:
        """Checks that the stream exists and was not recreated. Waits for unavailable brokers."""
        try:
            found = self._topics.describe([self.topic])[self.topic]
        except TopicNotFound as gone:
            raise NoSuchStream(self.topic) from gone
        if found.topic_id != self._info.topic_id:
            raise NoSuchStream(self.topic)

    def removed(self, number: int, up_to: int, available: tuple[int, int]) -> None:
        self.look()
        log.warning(
            "Retention removed messages before they were read. event=stream_messages_expired "
            "stream=%s first=%s next=%s",
            (self.topic, number),
            self.positions[number],
            up_to,
        )

    def ends_early(self, number: int, available: tuple[int, int]) -> None:
        self.truncated(number, available[1])

    def truncated(self, number: int, end: int | None) -> None:
        """Goes on at the end of the messages that are left, or ends there.

        The offsets of the lost messages are given again, to messages that were not read. They are newer than
        a stop that was there when the subscription began.
        """
        self.look()
        if end is None:
            return
        stop, position = self.stops.get(number, end), self.positions[number]
        if end < stop:
            log.warning(
                "An election of a leader has lost messages before the stop of a subscription. It ends with "
                "the messages that are left. event=stream_stop_lost stream=%s stop=%s end=%s",
                (self.topic, number),
                stop,
                end,
            )
            self.stops[number] = end
        if end >= position:
            return
        log.warning(
            "An election of a leader has lost messages of a stream that were read already. The subscription "
            "goes on with the messages that get their offsets. event=stream_truncated stream=%s position=%s "
            "end=%s",
            (self.topic, number),
            position,
            end,
        )
        self.positions[number] = end

    def log_retry(self, error: KafkaError, number: int | None) -> None:
        log.info(
            "Reading a stream failed and is retried. event=stream_read_retrying stream=%s error=%s",
            (self.topic, self._partition),
            error.name(),
        )


def _headers(record: KafkaMessage) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(headers_of(record))
