"""Messages appended to their queue topic again, for consumers that read nothing but its tail."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.lease_table import LeaseTable
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.reappend_options import MarkerFormat, ReappendOptions, subscription_of
from spark_cursor_source.core.tracker import MAX_DELIVERIES, DeadLetter
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.kafka.copies import (
    ANY_PARTITION,
    Copies,
    Headers,
    headers_of,
    original_ms_of,
    reading_rounds,
    still_there,
)
from spark_cursor_source.kafka.dead_letter_topics import DeadLetterTopics
from spark_cursor_source.kafka.dead_letters import HEADER_OFFSET, HEADER_PARTITION, dead_letter_headers
from spark_cursor_source.kafka.records import place_of
from spark_cursor_source.kafka.tail import TailReader
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.kafka.transaction import Record
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire.message_markers import kmq_end
from spark_cursor_source.wire.original_time import HEADER_TIMESTAMP, timestamp_header
from spark_cursor_source.wire.redelivery_count import (
    HEADER_REDELIVERY_COUNT,
    KMQ_HEADER_REDELIVERY_COUNT,
    encode_kmq_count,
    redelivery_count,
)

logger = logging.getLogger(__name__)

_COUNTS = (HEADER_REDELIVERY_COUNT, KMQ_HEADER_REDELIVERY_COUNT)
_REPLACED = (*_COUNTS, HEADER_PARTITION, HEADER_OFFSET, HEADER_TIMESTAMP)

MessageId = tuple[int, int]  # partition and offset in the queue topic


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A message that was read again."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    original_ms: int | None  #: its timestamp, that of the first copy's message; None: only its Start is left


class Reappender:
    """Appends messages again, and makes dead letters of those that were at their last delivery.

    A crash before the Ends are written appends once more: each copy names the message it is of, in the
    headers ``cursorq-partition`` and ``cursorq-offset``, and how often it came back.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Topics,
        options: ReappendOptions,
        *,
        markers_topic: str,
        patience_ms: int,
    ) -> None:
        self._options = options
        self._topics = topics
        self._markers_topic = markers_topic
        self._dead_letter_topics = DeadLetterTopics(topics)
        # The record itself, whatever became of its transaction: a consumer was given it.
        self._reader = TailReader(config, committed=False)
        # Over all partitions, as kafka-mq-go's own producers spread the messages of a queue.
        self._copies = Copies(config, patience_ms=patience_ms, settings={"partitioner": "random"})
        self.lost = 0  #: messages of which neither a record nor a Start is left

    def reappend(self, due: Mapping[int, LeaseTable]) -> list[Record]:
        """Append what is due of each markers partition; when this returns the brokers have confirmed it all.

        Returns the Ends of these messages, for the markers topic.

        Raises:
            CopiesNotDurable: copies are not confirmed; some may be written all the same.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        wanted = _places(due)
        ends: list[Record] = []
        try:
            for message_id, found in self._find(wanted):
                markers_partition, _ = wanted.pop(message_id)
                self._copy(message_id, found)
                ends += self._end(markers_partition, message_id, found.key)
            self._copies.flush()
        except BaseException:
            self._copies.discard()
            self._dead_letter_topics.forget()
            raise
        if wanted:
            self.lost += len(wanted)
            logger.error(
                "%s messages are neither in %s nor in a Start any more and do not come back: %s",
                len(wanted),
                self._options.queue_topic,
                sorted(wanted)[:20],
            )
        return ends

    def close(self) -> None:
        """End the clients."""
        self._reader.close()
        self._copies.discard()

    def _find(self, wanted: Mapping[MessageId, tuple[int, int]]) -> Iterator[tuple[MessageId, _Found]]:
        """Each message from the queue topic or, where retention has taken it, from its Start."""
        left = dict(wanted)
        for message in self._records(self._options.queue_topic, list(left)):
            message_id = place_of(message)
            if left.pop(message_id, None) is not None:
                yield (
                    message_id,
                    _Found(
                        key=message.key(),
                        value=message.value(),
                        headers=headers_of(message),
                        original_ms=original_ms_of(message),
                    ),
                )
        if not left or self._options.marker_format is MarkerFormat.KMQ:  # whose Starts hold no payload
            return
        starts = {start: message_id for message_id, start in left.items()}
        for message in self._records(self._markers_topic, list(starts)):
            expected = starts.get(place_of(message))
            start = None if expected is None else _start_of(message, expected)
            if expected is not None and start is not None:
                yield expected, _Found(key=start.key, value=start.value, headers=[], original_ms=None)

    def _records(self, topic: str, places: Sequence[tuple[int, int]]) -> Iterator[Message]:
        """The records at these places and between them, as far as they are there."""
        by_partition: dict[int, list[int]] = {}
        for number, offset in places:
            by_partition.setdefault(number, []).append(offset)
        wanted = {number: OffsetSet.from_offsets(offsets) for number, offsets in by_partition.items()}
        for ranges in reading_rounds(still_there(self._topics, topic, wanted)):
            yield from self._reader.read(topic, ranges)

    def _copy(self, message_id: MessageId, found: _Found) -> None:
        count = redelivery_count(found.headers)
        if self._options.exhausted(count + 1):
            self._dead_letter(message_id, found, deliveries=count + 1)
            return
        partition, offset = message_id
        is_kmq = self._options.marker_format is MarkerFormat.KMQ
        own: Headers = [
            (HEADER_PARTITION, str(partition).encode()),
            (HEADER_OFFSET, str(offset).encode()),
            (KMQ_HEADER_REDELIVERY_COUNT, encode_kmq_count(count + 1))
            if is_kmq
            else (HEADER_REDELIVERY_COUNT, str(count + 1).encode()),
        ]
        self._copies.add(
            self._options.queue_topic,
            partition if is_kmq else ANY_PARTITION,
            key=found.key,
            value=found.value,
            headers=[*_own_left_out(found.headers), *own, *timestamp_header(found.original_ms)],
        )

    def _dead_letter(self, message_id: MessageId, found: _Found, *, deliveries: int) -> None:
        (partition, offset), topic = message_id, self._options.queue_topic
        target = self._options.dead_letter_topic
        self._dead_letter_topics.ensure([target], like=topic)
        subscription = subscription_of(self._options.marker_format)
        letter = DeadLetter(
            cell=Cell(subscription=subscription, topic=topic, partition=partition),
            offsets=OffsetSet.of((offset, offset + 1)),
            delivery_count=deliveries,
            reason=MAX_DELIVERIES,
        )
        self._copies.add(
            target,
            self._dead_letter_topics.partition_for(target, partition),
            key=found.key,
            value=found.value,
            # Without its count: one that is sent back later begins anew.
            headers=[
                *_own_left_out(found.headers),
                *dead_letter_headers(letter, offset, first_delivery_ms=None, original_ms=found.original_ms),
            ],
        )

    def _end(self, markers_partition: int, message_id: MessageId, queue_id: bytes | None) -> list[Record]:
        partition, offset = message_id
        if self._options.marker_format is MarkerFormat.KMQ:
            return [Record(self._markers_topic, markers_partition, *kmq_end(partition, offset))]
        if not queue_id:
            return []  # of no queue, and nobody could read its End; the table has forgotten it all the same
        end = marker_wire.MarkerV1(
            queue_id=queue_id, type=marker_wire.END, partition=partition, offset=offset
        )
        return [Record(self._markers_topic, markers_partition, queue_id, marker_wire.encode_v1(end))]


def _places(due: Mapping[int, LeaseTable]) -> dict[MessageId, tuple[int, int]]:
    """Of each message where its Start is: markers partition and offset."""
    return {
        (partition, offset): (markers_partition, start)
        for markers_partition, table in due.items()
        for partition, offset, start in zip(
            table.partitions.tolist(), table.offsets.tolist(), table.starts.tolist(), strict=True
        )
    }


def _own_left_out(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name not in _REPLACED]


def _start_of(message: Message, message_id: MessageId) -> marker_wire.MarkerV1 | None:
    """The V1 Start in a record of the markers topic, if it is that of the message."""
    try:
        marker = marker_wire.decode(message.key(), message.value())
    except InvalidMarker:
        return None
    if not isinstance(marker, marker_wire.MarkerV1) or marker.type != marker_wire.START:
        return None
    return marker if (marker.partition, marker.offset) == message_id else None
