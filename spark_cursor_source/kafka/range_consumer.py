"""Reader of an offset range of one partition. It handles gaps, partition ends and broker restarts."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar, cast

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from spark_cursor_source.errors import CursorqError, ReadRefused, ReadStalled, RecordsGone
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.error_codes import UNAUTHORIZED, shown
from spark_cursor_source.kafka.native import NativeConsumer
from spark_cursor_source.kafka.reading import PartitionReads, offset_of, warn_removed

STALL_TIMEOUT_MS = PATIENCE_MS

_BATCH_MESSAGES = 1_000  # about the size of a CPU cache
_BATCH_BYTES = 16 << 20
_WAIT_S = 0.25
COLUMN_ROWS = 16_000  #: rows of one batch of columns; larger ones cost less
COLUMN_BYTES = 8 << 20

Messages = Sequence[Message]
Removed = Callable[[int, int], None]
RecordsT = TypeVar("RecordsT")


def read_range(
    consumer: Consumer,
    topic: str,
    partition: int,
    start: int,
    stop: int,
    *,
    on_removed: Removed | None = None,
    stall_timeout_ms: int = STALL_TIMEOUT_MS,
) -> Generator[list[Message]]:
    """Yield all records with ``start <= offset < stop`` of the partition, in order, in lists of up to 1,000.

    Offsets without a record (transaction markers, aborted or compacted records) are skipped, also at the end.
    The consumer needs ``enable.partition.eof`` and ``auto.offset.reset=error`` (``reader_config`` of
    ``kafka.config_roles`` has both). It must have no subscription, and has no assignment afterwards.

    If retention has deleted records before they were read, ``on_removed(first, next)`` is called with the
    range. The same applies to a partition that stays shorter than its range for 10 s, for example after the
    topic was recreated. It is read to its end. Without ``on_removed`` both are an error. The reader waits for
    unavailable brokers.

    Raises:
        RecordsGone: records are gone and ``on_removed`` is not given.
        TopicGone: the topic or the partition was deleted.
        ReadStalled: no progress for ``stall_timeout_ms``.
        NotAuthorized: the right to read is missing.
        ReadRefused: the login fails, or records are unreadable.
    """
    reading = _Messages(consumer, topic, partition, start, stop, on_removed, stall_timeout_ms)
    yield from reading.whole()


def read_columns(
    consumer: NativeConsumer,
    topic: str,
    partition: int,
    start: int,
    stop: int,
    *,
    headers: bool,
    on_removed: Removed | None = None,
    stall_timeout_ms: int = STALL_TIMEOUT_MS,
) -> Generator[pa.RecordBatch]:
    """Yield the same records as ``read_range``, as columns, with the same errors.

    The columns are key, value, offset, timestamp, timestampType and, with ``headers``, headers.
    """
    reading = _Columns(consumer, topic, partition, start, stop, on_removed, stall_timeout_ms)
    reading.headers = headers
    yield from reading.whole()


class _Reading(PartitionReads, Generic[RecordsT]):
    """State of one read. A subclass receives the records."""

    retries_unlisted = True

    def __init__(
        self,
        consumer: Consumer | NativeConsumer,
        topic: str,
        partition: int,
        start: int,
        stop: int,
        on_removed: Removed | None,
        stall_timeout_ms: int,
    ) -> None:
        super().__init__(
            cast("Consumer", consumer),  # a native one has all methods that are called here
            topic,
            {partition: start},
            {partition: stop},
            stall_timeout_ms=stall_timeout_ms,
        )
        self._partition, self._stop = partition, stop
        self._on_removed = on_removed

    @property
    def position(self) -> int:
        return self.positions[self._partition]

    @abstractmethod
    def next_records(self) -> RecordsT | None:
        """Return the next records.

        Empty or None after a partition end, a handled error or a short wait without records.
        """

    def whole(self) -> Generator[RecordsT]:
        """Yield the records up to the stop."""
        if self.position >= self._stop:
            return
        try:
            self.assign()
            while self.position < self._stop:
                records = self.next_records()
                if records:
                    yield records
        except KafkaException as cause:
            raise ReadRefused(self.topic, self._partition, self.position, str(cause)) from cause
        finally:
            self._consumer.unassign()  # stops the fetcher of the client

    def removed(self, number: int, up_to: int, available: tuple[int, int]) -> None:
        if self._on_removed is None:
            raise RecordsGone(self.topic, number, (self.position, self._stop), available)
        warn_removed(self.topic, number, self.position, up_to)
        self._on_removed(self.position, up_to)

    def truncated(self, number: int, end: int | None) -> None:
        super().truncated(number, end)
        # Records that were written since have the offsets of the lost ones. They are not part of the range.
        if end is None or end < self._stop:
            left = self.position if end is None else min(end, self.position)
            self.ends_early(number, (left, left))

    def refused(self, error: KafkaError) -> CursorqError:
        if error.code() in UNAUTHORIZED:
            return super().refused(error)
        return ReadRefused(self.topic, self._partition, self.position, shown(error))

    def stalled(self, stall: Deadline) -> ReadStalled:
        return ReadStalled(self.topic, self._partition, self.position, self._stop, stall.spent_ms, self.last)


class _Messages(_Reading[list[Message]]):
    """State of a read of messages."""

    _batch = _BATCH_MESSAGES // 10  # small until the message size is known

    def next_records(self) -> list[Message]:
        # Take the available records without waiting for a full batch. With gaps it may never fill.
        messages = self._consumer.consume(self._batch, 0) or self._consumer.consume(1, _WAIT_S)
        if not messages:
            self.quiet()
            return messages
        if not any(map(Message.error, messages)):
            return self._accept(messages)
        records = self.sift(messages)
        if not records:
            self.check_stall()
        return records

    def _accept(self, messages: list[Message]) -> list[Message]:
        last = offset_of(messages[-1])
        if last >= self._stop:
            del messages[bisect_left(messages, self._stop, key=offset_of) :]
        self.advance(self._partition, last + 1)
        if messages:
            largest = max(map(len, messages[:: max(1, len(messages) // 16)]))
            self._batch = max(1, min(_BATCH_MESSAGES, _BATCH_BYTES // (largest + 1)))
        return messages


class _Columns(_Reading[pa.RecordBatch]):
    """State of a read of columns by the native module."""

    headers = False

    def next_records(self) -> pa.RecordBatch | None:
        native = cast("NativeConsumer", self._consumer)
        batch, past, event = native.read(
            self._partition,
            self.position,
            self._stop,
            rows=COLUMN_ROWS,
            size=COLUMN_BYTES,
            wait_s=_WAIT_S,
            headers=self.headers,
        )
        self.advance(self._partition, past)
        if event is not None:
            self.take_event(*event)
            if batch is None:
                self.check_stall()
        elif batch is None:
            self.quiet()
        return batch


def place_of(message: Message) -> tuple[int, int]:
    """Return partition and offset of a record."""
    return message.partition(), offset_of(message)  # type: ignore[return-value]  # as above


def columns_of(
    messages: Sequence[Message],
) -> tuple[list[int], list[int], list[bytes | None], list[bytes | None]]:
    """Return offsets, timestamps in ms, keys and values of records."""
    times_ms = [timestamp_ms for _, timestamp_ms in map(Message.timestamp, messages)]
    offsets: list[int] = list(map(Message.offset, messages))  # type: ignore[arg-type]
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    return offsets, times_ms, keys, values
