"""Continuous reader of the tail of a queue topic, with a read position for each assigned partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from confluent_kafka import Consumer, Message

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import QueueTopicEndsEarlier
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import reader_config
from spark_cursor_source.kafka.error_codes import ErrorCallback
from spark_cursor_source.kafka.reading import Event, PartitionReads, event_of, offset_of

# The broker answers a fetch at once when a record is appended. Two things are noticed after this time: the
# end of a transaction, and a partition that is read again after a pause. With 10 ms, a consumer of an idle
# queue makes almost a hundred requests a second.
_AT_THE_END = {"fetch.wait.max.ms": "100"}

#: called with the error for records that a partition has lost at its end; may raise it
Truncated = Callable[[QueueTopicEndsEarlier], None]

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
    grouped: dict[int, list[Message]] = {}
    for start, stop in pairwise(edges):
        grouped.setdefault(int(numbers[start]), []).extend(messages[start:stop])
    return grouped


def offsets_of(messages: Sequence[Message]) -> OffsetSet:
    """Return the offsets of messages of one partition, which are in ascending order."""
    first, last = offset_of(messages[0]), offset_of(messages[-1])
    if last - first == len(messages) - 1:
        return OffsetSet.of((first, last + 1))
    return OffsetSet.from_offsets(map(offset_of, messages))


class TailConsumer:
    """Consumer with assigned partitions and positions, outside of any group. Not thread-safe.

    ``on_removed`` is called for offsets that retention has deleted before they were read. ``on_truncated`` is
    called once for each position where a partition has lost records below it, after an unclean leader
    election. Without it, that is an error. If it returns, the reader goes on at its position.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        topic: str,
        *,
        isolation: str,
        on_removed: Removed,
        on_truncated: Truncated | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._complaints = ErrorCallback()
        fixed = {"isolation.level": isolation, "error_cb": self._complaints}
        self._consumer: Consumer = open_client(
            Consumer, {**reader_config({**_AT_THE_END, **config}), **fixed, **(settings or {})}
        )
        self._reads = _Reads(self._consumer, topic, on_removed, on_truncated)

    def follow(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these positions, also if they were read before."""
        self._reads.positions |= positions
        self._reads.assign()

    def leave(self, partitions: Iterable[int]) -> None:
        """Stop reading these partitions."""
        if self._reads.leave(partitions):
            self._reads.assign()

    def pause(self, partitions: frozenset[int]) -> None:
        """Pause exactly these partitions until the next call. Their positions are kept."""
        if partitions != self._reads.held:
            self._reads.held = partitions
            if self._reads.positions:
                self._reads.assign()

    def read(self, most: int, wait_s: float) -> list[Fetched]:
        """Return the next records, at most ``most``. Empty if none arrive within ``wait_s``.

        Raises:
            TopicGone: the topic or a partition was deleted.
            QueueTopicEndsEarlier: a partition ends before its position, for example after the topic was
                recreated.
            NotAuthorized, KafkaRefused
        """
        return self._read(most, wait_s) if self._reads.positions else []

    def _read(self, most: int, wait_s: float) -> list[Fetched]:
        # Take the available records without waiting for a full batch. With gaps it may never fill.
        messages = self._consumer.consume(most, 0) or self._consumer.consume(1, wait_s)
        if not messages:
            self._reads.quiet()
            return []
        if any(map(Message.error, messages)):
            return self._sift(messages)
        return [self._advance(number, some) for number, some in _by_partition(messages).items()]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _advance(self, number: int, messages: list[Message]) -> Fetched:
        start, stop = self._reads.positions[number], offset_of(messages[-1]) + 1
        self._reads.advance(number, stop)
        return Fetched(partition=number, start=start, stop=stop, messages=messages)

    def _sift(self, messages: list[Message]) -> list[Fetched]:
        """Handle partition ends and errors in a list of messages, and return the records."""
        reads = self._reads
        starts: dict[int, int] = {}
        records: dict[int, list[Message]] = {}
        anew = False
        for message in messages:
            number, error = message.partition(), message.error()
            if error is not None and event_of(error) is not Event.END:
                anew = reads.deal_with(error, number) or anew
            elif number in reads.positions and offset_of(message) >= reads.positions[number]:
                starts.setdefault(number, reads.positions[number])
                if error is None:
                    records.setdefault(number, []).append(message)
                    reads.advance(number, offset_of(message) + 1)
                else:
                    reads.end_reached(number, offset_of(message))
        if anew:
            reads.assign()
        return [
            Fetched(
                partition=number, start=start, stop=reads.positions[number], messages=records.get(number, [])
            )
            for number, start in starts.items()
            if reads.positions[number] > start
        ]


class _Reads(PartitionReads):
    """Positions of the partitions that are followed."""

    look_every_s = 10.0  # the end of a queue is quiet for long
    request_s = 2.0  # an outage must not keep the caller from its leases

    def __init__(
        self, consumer: Consumer, topic: str, on_removed: Removed, on_truncated: Truncated | None
    ) -> None:
        super().__init__(consumer, topic, {})
        self._on_removed, self._on_truncated = on_removed, on_truncated
        self._told_of: dict[int, int] = {}  # positions for which ``on_truncated`` was called

    def removed(self, number: int, up_to: int, available: tuple[int, int]) -> None:
        self._on_removed(number, self.positions[number], up_to)

    def ends_early(self, number: int, available: tuple[int, int]) -> None:
        self.truncated(number, available[1])
        self._forget_denials(number)  # wait again: the log may grow up to the position

    def truncated(self, number: int, end: int | None) -> None:
        position = self.positions[number]
        if self._told_of.get(number) == position or (end is not None and end >= position):
            return
        lost = QueueTopicEndsEarlier(self.topic, number, position, end or 0)
        if self._on_truncated is None:
            raise lost
        self._on_truncated(lost)
        self._told_of[number] = position
