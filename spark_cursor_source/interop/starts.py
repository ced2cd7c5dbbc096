"""V1 Starts: reads a batch and writes a marker that contains each message."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from contextlib import closing

from confluent_kafka import Message

from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.interop.redelivery_count import redelivery_count
from spark_cursor_source.interop.sender import MarkerSenderV1
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.range_consumer import Removed, read_range
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.wire.marker import MAX_DELIVERY_COUNT, MarkerType, MarkerV1, decode

Range = tuple[int, int]


class StartedRange:
    """Messages of a range that have a Start now, by queue id and by delivery count."""

    def __init__(self) -> None:
        self._by_queue: dict[bytes, array[int]] = {}
        self._by_count: dict[int, array[int]] = {}
        self.without_key = 0  #: number of messages without a queue id

    def add(self, queue_id: bytes, offset: int, count: int) -> None:
        """Adds a started message. Offsets must ascend."""
        self._by_queue.setdefault(queue_id, array("Q")).append(offset)
        self._by_count.setdefault(count, array("Q")).append(offset)

    @property
    def by_queue(self) -> dict[bytes, OffsetSet]:
        """The started offsets by queue id."""
        return {queue_id: OffsetSet.from_offsets(one) for queue_id, one in self._by_queue.items()}

    @property
    def by_count(self) -> dict[int, OffsetSet]:
        """The started offsets by delivery count."""
        return {count: OffsetSet.from_offsets(one) for count, one in self._by_count.items()}


class StartWriter:
    """Writes the Starts of messages. They are confirmed after a flush of the sender."""

    def __init__(
        self, config: Mapping[str, str], sender: MarkerSenderV1, *, queue_id: bytes | None, lease_ms: int
    ) -> None:
        self._config = config
        self._sender = sender
        self._queue_id = queue_id
        self._lease_ms = lease_ms

    def start(
        self,
        topic: str,
        partition: int,
        within: Range,
        *,
        without: OffsetSet = EMPTY,
        on_removed: Removed,
    ) -> StartedRange:
        """Reads a range of the queue topic and writes a Start for each message that is not in ``without``.

        Messages of other queue ids are skipped. Messages without a key are skipped and counted. Raises the
        errors of ``read_range`` and ``MarkerSenderV1.send``.
        """
        started = StartedRange()
        with borrowed_consumer(self._config) as consumer:
            reading = read_range(consumer, topic, partition, *within, on_removed=on_removed)
            with closing(reading):
                for messages in reading:
                    self._sender.send(self._starts(messages, partition, without, started))
        return started

    def _starts(
        self, messages: list[Message], partition: int, without: OffsetSet, started: StartedRange
    ) -> Iterator[MarkerV1]:
        for message in messages:
            key, offset = message.key(), offset_of(message)
            if not key:
                started.without_key += 1
                continue
            if self._queue_id not in (None, key) or offset in without:
                continue
            started.add(key, offset, delivery_count_of(message))
            yield start_of(message, key, partition, self._lease_ms)


def start_of(message: Message, queue_id: bytes, partition: int, lease_ms: int) -> MarkerV1:
    """Returns the Start that contains a message of a queue."""
    return MarkerV1(
        queue_id=queue_id,
        type=MarkerType.START,
        partition=partition,
        offset=offset_of(message),
        redeliver_after_ms=lease_ms,
        key=queue_id,
        value=message.value() or b"",
    )


def delivery_count_of(message: Message) -> int:
    """Returns the delivery count of a message, including this delivery.

    A copy contains its redelivery count in a header.
    """
    headers = headers_of(message)
    if not headers:
        return 1
    try:
        return min(redelivery_count(headers) + 1, MAX_DELIVERY_COUNT)
    except ValueError:
        return 1  # any producer can write this header, so an invalid number counts as none


def started_in(
    reader: RangeReader, markers_topic: str, ranges: Mapping[int, Range], batch: Mapping[int, Range]
) -> dict[int, OffsetSet]:
    """Returns the messages of ``batch`` that have a Start in the given ranges of the markers topic.

    ``batch`` maps queue partitions to offset ranges.

    Raises:
        KafkaUnavailable, TopicNotFound, NotAuthorized, KafkaRefused
    """
    started: dict[int, list[int]] = {partition: [] for partition in batch}
    for record in reader.read(markers_topic, ranges):
        try:
            marker = decode(record.key(), record.value())
        except InvalidMarker:
            continue  # the tracker reports invalid markers
        if not isinstance(marker, MarkerV1) or marker.type != MarkerType.START:
            continue
        first, past = batch.get(marker.partition, (0, 0))
        if first <= marker.offset < past:
            started[marker.partition].append(marker.offset)
    return {partition: OffsetSet.from_offsets(sorted(offsets)) for partition, offsets in started.items()}
