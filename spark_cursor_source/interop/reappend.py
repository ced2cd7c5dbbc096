"""Re-appends messages to their queue topic, for consumers that read only its tail."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from confluent_kafka import Message

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker import MAX_DELIVERIES, DeadLetter
from spark_cursor_source.errors import CopiesNotDurable, InvalidMarker, KafkaFailure
from spark_cursor_source.interop.lease_table import LeaseTable
from spark_cursor_source.interop.markers_wire import kmq_end, kmq_start
from spark_cursor_source.interop.reappend_batch import Batch, Found
from spark_cursor_source.interop.reappend_troubles import MessageId, ReappendPauses
from spark_cursor_source.interop.redelivery_count import (
    HEADER_REDELIVERY_COUNT,
    KMQ_HEADER_REDELIVERY_COUNT,
    encode_kmq_count,
    redelivery_count,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import facts, shown
from spark_cursor_source.kafka.range_consumer import place_of
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.kafka.transaction import Record
from spark_cursor_source.options.reappend import MarkerFormat, ReappendOptions, subscription_of
from spark_cursor_source.topics.copies import (
    ANY_PARTITION,
    OF_ONE_MESSAGE,
    Headers,
    MessageCopier,
    original_ms_of,
    reading_rounds,
    still_there,
)
from spark_cursor_source.topics.dead_letter_topics import DeadLetterTopics, readable
from spark_cursor_source.topics.dead_letters import HEADER_OFFSET, HEADER_PARTITION, dead_letter_headers
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire.original_time import HEADER_TIMESTAMP, timestamp_header

log = logging.getLogger(__name__)

_CONNECT_S = 2.0
_COUNTS = (HEADER_REDELIVERY_COUNT, KMQ_HEADER_REDELIVERY_COUNT)
_REPLACED = (*_COUNTS, HEADER_PARTITION, HEADER_OFFSET, HEADER_TIMESTAMP)


class Reappender:
    """Appends expired messages again. Messages at their last delivery become dead letters.

    A crash before the Ends are written repeats copies. Each copy names its original message in the headers
    ``cursorq-partition`` and ``cursorq-offset``, and includes its redelivery count.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: ClusterAdmin,
        options: ReappendOptions,
        *,
        markers_topic: str,
        patience_ms: int,
    ) -> None:
        self._options = options
        self._topics = topics
        self._patience_ms = patience_ms
        self._troubles = ReappendPauses()
        self._markers_topic = markers_topic
        self._dead_letter_topics = DeadLetterTopics(topics)
        # Reads records even from aborted transactions, because a consumer has received them.
        self._reader = RangeReader(config, committed=False, stall_timeout_ms=patience_ms)
        # Copies are spread over all partitions, like the messages of kafka-mq-go's own producers.
        self._copies = MessageCopier(config, patience_ms=patience_ms, settings={"partitioner": "random"})
        self.lost = 0  #: messages lost because both their record and their Start are gone

    def connect(self) -> None:
        """Connects the clients, so that the first message does not come back a second later than others."""
        topic = self._options.queue_topic
        with suppress(KafkaFailure):
            # A producer that looks up a missing topic creates it, where the brokers allow that.
            if topic in self._topics.within(Deadline.after_ms(int(_CONNECT_S * 1000))).existing([topic]):
                self._reader.connect(topic, _CONNECT_S)
                self._copies.connect(topic, _CONNECT_S)

    def reappend(self, due: Mapping[int, LeaseTable]) -> list[Record]:
        """Appends the due messages of each markers partition. Returns after the brokers have confirmed them.

        Returns the markers to write: an End for each appended message. A message that cannot be read or
        copied gets a Start instead, with an increasing lease. If its content is unknown, it gets a KeepAlive
        with the reason. Such a message stays open for a retry and does not block others. A topic that
        responds slowly is skipped for a while.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused: the markers topic failed. No message is ended then,
                so repeat the call.
        """
        wanted = _places(due)
        if (why := self._troubles.closed) is not None:
            pauses = self._troubles.put_off(wanted, why)
            return self._hold(wanted, pauses, {}, dict.fromkeys(wanted, why))
        batch, spent = Batch(), Deadline.after_ms(self._patience_ms)
        try:
            self._copy_all(wanted, batch)
            self._await_answers(batch)
            self._try_the_refused_alone(batch)
        except BaseException:
            self._start_afresh()
            raise
        if batch.failed:
            self._start_afresh()
        done = [message_id for message_id in batch.keys if message_id not in batch.failed]
        self._troubles.succeeded(done)
        ends = [
            end
            for message_id in done
            for end in self._end(wanted[message_id][0], message_id, batch.keys[message_id])
        ]
        pauses = self._troubles.failed(
            batch.failed,
            {message_id: partition for message_id, (partition, _) in wanted.items()},
            alone=batch.alone,
            spent_ms=spent.spent_ms,
        )
        self._count_lost(wanted.keys() - set(done) - pauses.keys())
        return [*ends, *self._hold(wanted, pauses, batch.kept, batch.failed)]

    def trouble(self, markers_partition: int) -> tuple[str, int]:
        """Returns why messages of a markers partition could not be appended recently, and their number."""
        return self._troubles.of(markers_partition)

    def close(self) -> None:
        """Closes the clients."""
        self._reader.close()
        self._copies.discard()

    def _start_afresh(self) -> None:
        """Discards the producer and the cached topics, to look them up again."""
        self._copies.discard()
        self._dead_letter_topics.forget()

    def _count_lost(self, lost: Collection[MessageId]) -> None:
        if lost:
            self.lost += len(lost)
            log.error(
                "Messages are neither in the queue topic nor in a Start marker, so they are not "
                "redelivered. event=messages_lost messages=%s topic=%s ids=%s",
                len(lost),
                self._options.queue_topic,
                sorted(lost)[:20],
            )

    def _copy_all(self, wanted: Mapping[MessageId, tuple[int, int]], batch: Batch) -> None:
        try:
            for message_id, found in self._find(wanted, batch):
                batch.keys[message_id] = found.key
                self._copy(message_id, found, batch)
        except KafkaFailure as failed:
            unread = wanted.keys() - batch.keys.keys() - batch.failed.keys()
            batch.failed |= dict.fromkeys(unread, facts(failed))

    def _await_answers(self, batch: Batch) -> None:
        try:
            self._copies.flush()
        except CopiesNotDurable as failed:
            for message_id, found in batch.unanswered.items():
                batch.fail(message_id, found, failed.why)
            batch.unanswered.clear()
            self._start_afresh()

    def _try_the_refused_alone(self, batch: Batch) -> None:
        """Retries refused messages alone. A broker rejects a whole produce batch because of one record."""
        until = Deadline.after_ms(self._patience_ms)
        refused, batch.refused = batch.refused, {}
        for message_id, (found, error) in refused.items():
            if error.code() in OF_ONE_MESSAGE and len(refused) > 1 and not until.over:
                self._copy(message_id, found, batch)
                self._await_answers(batch)
            else:
                batch.refused[message_id] = refused[message_id]
        for message_id, (found, error) in batch.refused.items():
            batch.fail(message_id, found, shown(error), alone=error.code() in OF_ONE_MESSAGE)

    def _hold(
        self,
        wanted: Mapping[MessageId, tuple[int, int]],
        pauses: Mapping[MessageId, int],
        kept: Mapping[MessageId, Found],
        whys: Mapping[MessageId, str],
    ) -> list[Record]:
        """Returns a marker for each message with a pause, which becomes the lease.

        kafka-mq-go's tracker takes the content of a message from its Start, so no Start may be without it.
        The content is that of the first Start. If that Start is gone, the content is the message in ``kept``,
        which was read before. If both are missing, the marker is a KeepAlive with the reason.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused: the markers topic failed.
        """
        if not pauses:
            return []
        if self._options.marker_format is MarkerFormat.KMQ:
            return [
                Record(self._markers_topic, wanted[message_id][0], *kmq_start(*message_id, pause_ms))
                for message_id, pause_ms in pauses.items()
            ]
        markers = {message_id: _hold_of(message_id, whys[message_id]) for message_id in pauses}
        markers |= {message_id: found.as_start(message_id) for message_id, found in kept.items() if found.key}
        markers |= self._starts({wanted[message_id]: message_id for message_id in pauses})
        return [
            Record(
                self._markers_topic,
                wanted[message_id][0],
                marker.queue_id,
                marker_wire.encode_v1(replace(marker, redeliver_after_ms=pauses[message_id])),
            )
            for message_id, marker in markers.items()
        ]

    def _find(
        self, wanted: Mapping[MessageId, tuple[int, int]], batch: Batch
    ) -> Iterator[tuple[MessageId, Found]]:
        """Yields each message from the queue topic, or from its Start if retention has removed the message.

        Messages in a partition without a leader fail immediately instead of waiting.
        """
        left = dict(wanted)
        there, leaderless = self._readable(left)
        for number, offset in leaderless:
            batch.failed[number, offset] = self._no_leader(number)
            batch.alone.add((number, offset))
            del left[number, offset]
        for message_id, found in self._messages(there, left):
            del left[message_id]
            yield message_id, found
        if not left or self._options.marker_format is MarkerFormat.KMQ:  # kmq's Starts contain no payload
            return
        for message_id, start in self._starts({start: message_id for message_id, start in left.items()}):
            yield message_id, Found(key=start.key, value=start.value, headers=[], original_ms=None)

    def _readable(self, wanted: Collection[MessageId]) -> tuple[dict[int, OffsetSet], list[MessageId]]:
        """Returns the offsets in the queue topic, and the messages in partitions without a leader."""
        topics, topic = self._topics.within(self._soon()), self._options.queue_topic
        there, leaderless = readable(topics, topic, _by_partition(wanted))
        return there, [message_id for message_id in wanted if message_id[0] in leaderless]

    def _no_leader(self, number: int) -> str:
        return f"partition {number} of topic '{self._options.queue_topic}' has no leader"

    def _messages(
        self, there: Mapping[int, OffsetSet], wanted: Collection[MessageId]
    ) -> Iterator[tuple[MessageId, Found]]:
        """Yields the wanted messages at these positions of the queue topic."""
        for message in self._records(self._options.queue_topic, there):
            if (message_id := place_of(message)) in wanted:
                yield (
                    message_id,
                    Found(
                        key=message.key(),
                        value=message.value(),
                        headers=headers_of(message),
                        original_ms=original_ms_of(message),
                    ),
                )

    def _starts(
        self, places: Mapping[tuple[int, int], MessageId]
    ) -> Iterator[tuple[MessageId, marker_wire.MarkerV1]]:
        """Yields the V1 Starts at these positions of the markers topic that still exist."""
        wanted = still_there(self._topics, self._markers_topic, _by_partition(places))
        for message in self._records(self._markers_topic, wanted):
            expected = places.get(place_of(message))
            start = None if expected is None else _start_of(message, expected)
            if expected is not None and start is not None:
                yield expected, start

    def _records(self, topic: str, there: Mapping[int, OffsetSet]) -> Iterator[Message]:
        """Yields the records at these positions and between them."""
        for ranges in reading_rounds(there):
            yield from self._reader.read(topic, ranges)

    def _soon(self) -> Deadline:
        return Deadline.after_ms(self._patience_ms)

    def _copy(self, message_id: MessageId, found: Found, batch: Batch) -> None:
        count = redelivery_count(found.headers)
        if self._options.exhausted(count + 1):
            self._dead_letter(message_id, found, batch, deliveries=count + 1)
            return
        partition, offset = message_id
        is_kmq = self._options.marker_format is MarkerFormat.KMQ
        added: Headers = [
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
            headers=[*_own_left_out(found.headers), *added, *timestamp_header(found.original_ms)],
            told=batch.telling(message_id, found),
        )

    def _dead_letter(self, message_id: MessageId, found: Found, batch: Batch, *, deliveries: int) -> None:
        (partition, offset), topic = message_id, self._options.queue_topic
        target = self._options.dead_letter_topic
        if batch.no_dead_letters is None:
            try:
                self._dead_letter_topics.ensure(
                    [target], like=topic, topics=self._topics.within(self._soon())
                )
            except KafkaFailure as failed:
                batch.no_dead_letters = facts(failed)
        if batch.no_dead_letters is not None:
            batch.fail(message_id, found, batch.no_dead_letters)
            return
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
            # The redelivery count is removed, so that a redriven message starts at zero.
            headers=[
                *_own_left_out(found.headers),
                *dead_letter_headers(letter, offset, first_delivery_ms=None, original_ms=found.original_ms),
            ],
            told=batch.telling(message_id, found),
        )

    def _end(self, markers_partition: int, message_id: MessageId, queue_id: bytes | None) -> list[Record]:
        partition, offset = message_id
        if self._options.marker_format is MarkerFormat.KMQ:
            return [Record(self._markers_topic, markers_partition, *kmq_end(partition, offset))]
        if not queue_id:
            # without a queue id, no consumer can read an End; the lease table has dropped the message anyway
            return []
        end = marker_wire.MarkerV1(
            queue_id=queue_id, type=marker_wire.MarkerType.END, partition=partition, offset=offset
        )
        return [Record(self._markers_topic, markers_partition, queue_id, marker_wire.encode_v1(end))]


def _places(due: Mapping[int, LeaseTable]) -> dict[MessageId, tuple[int, int]]:
    """Returns the position of each message's Start: markers partition and offset."""
    return {
        (partition, offset): (markers_partition, start)
        for markers_partition, table in due.items()
        for partition, offset, start in zip(
            table.partitions.tolist(), table.offsets.tolist(), table.starts.tolist(), strict=True
        )
    }


def _by_partition(places: Iterable[tuple[int, int]]) -> dict[int, OffsetSet]:
    offsets: dict[int, list[int]] = {}
    for number, offset in places:
        offsets.setdefault(number, []).append(offset)
    return {number: OffsetSet.from_offsets(of) for number, of in offsets.items()}


def _hold_of(message_id: MessageId, why: str) -> marker_wire.MarkerV1:
    """Returns the marker that keeps a message open whose content is unknown, and with it the queue id."""
    partition, offset = message_id
    return marker_wire.MarkerV1(
        queue_id=subscription_of(MarkerFormat.PROTOBUF).encode(),
        type=marker_wire.MarkerType.KEEP_ALIVE,
        partition=partition,
        offset=offset,
        trouble=why or "unknown",  # without a trouble it would open nothing
    )


def _own_left_out(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name not in _REPLACED]


def _start_of(message: Message, message_id: MessageId) -> marker_wire.MarkerV1 | None:
    """Returns the V1 Start in a record of the markers topic; None if it is not that message's Start."""
    try:
        marker = marker_wire.decode(message.key(), message.value())
    except InvalidMarker:
        return None
    if not isinstance(marker, marker_wire.MarkerV1) or marker.type != marker_wire.MarkerType.START:
        return None
    return marker if (marker.partition, marker.offset) == message_id else None
