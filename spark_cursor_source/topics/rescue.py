"""Reader of the rescue topic: copies of messages that retention was about to delete from a queue topic."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_cursor_source.core.cell import control_partition
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.rescue import RescuePlace
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion, NotAuthorized
from spark_cursor_source.kafka.admin import ClusterAdmin, TopicInfo
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.pool import ClientPool
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.topics.copies import reading_rounds
from spark_cursor_source.wire import rescue as wire

log = logging.getLogger(__name__)

_AT_ONCE = 2_000  # messages of one read
_BYTES_AT_ONCE = 16 << 20
_TRIES = 2  # a copy can be replaced by a newer one, and compacted, between the index and the read


@dataclass(frozen=True, slots=True, kw_only=True)
class RescuedMessage:
    """A message from the rescue topic, with the methods of a message of the Kafka client.

    Topic, partition, offset and timestamp are those of the original.
    """

    place: RescuePlace
    at: int
    record: wire.RescuedRecord

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self.record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        kind = self.record.timestamp_type
        return kind, -1 if kind == TIMESTAMP_NOT_AVAILABLE else self.record.timestamp_ms

    def __len__(self) -> int:
        return len(self.record.value or b"")


@dataclass(slots=True)
class _Copies:
    """Copies of one place: queue offset -> (offset in the rescue topic, bytes)."""

    at: dict[int, tuple[int, int]] = field(default_factory=dict)
    gaps: OffsetSet = EMPTY


class RescueIndex:
    """Index of the copies of one tracker, without their content. Not thread-safe.

    A refresh reads what was appended since the last one.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        *,
        markers_topic: str,
        timeout_ms: int = PATIENCE_MS,
    ) -> None:
        self._topic, self._markers_topic = topic, markers_topic
        self._admin = ClusterAdmin(config, timeout_ms=timeout_ms)
        # Copies are in no transaction.
        self._reader = RangeReader(config, committed=False, stall_timeout_ms=timeout_ms)
        self._absent: set[str] = set()  # topics that a wait has not found and that no look has found since
        self._topic_id = ""
        self._positions: dict[int, int] = {}
        self._copies: dict[RescuePlace, _Copies] = {}
        self.partitions: int | None = None  #: partition count of the topic; None: the topic does not exist
        self.bytes = 0  #: size of the known copies

    def refresh(self, numbers: Collection[int] | None = None) -> bool:
        """Read all records that these partitions hold now, or all. Return False if the topic does not exist.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
            LaterCursorVersion: a newer version of the library wrote gaps.
        """
        if not self._meet(self._existing(self._topic).get(self._topic)):
            return False
        self._read_on(range(self.partitions or 0) if numbers is None else numbers)
        return True

    def locate(self, topic: str, partition: int) -> RescuePlace | None:
        """Return the place of a queue partition, after a refresh of its copies. None: there are no copies.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
            LaterCursorVersion: a newer version of the library wrote gaps.
        """
        found = self._existing(self._topic, topic)
        if not self._meet(found.get(self._topic)) or topic not in found:
            return None
        place = RescuePlace(topic, found[topic].topic_id, partition)
        self._read_on([self.partition_of(place)])
        return place

    def _existing(self, *topics: str) -> dict[str, TopicInfo]:
        """Return those of the topics that exist. Wait for one that is missing, but only the first time.

        Each call looks for all of them. A topic that was found is waited for again if a broker denies it.
        """
        wanted = [(name, 0) for name in topics if name not in self._absent]
        found = self._admin.existing(topics, wanted=wanted)
        self._absent = (self._absent | set(topics)) - found.keys()
        return found

    def _meet(self, info: TopicInfo | None) -> bool:
        """Take in what the rescue topic is now. Return False if it does not exist."""
        if info is None or info.topic_id != self._topic_id:
            self.forget()
        self._topic_id = "" if info is None else info.topic_id
        self.partitions = None if info is None else info.partitions
        return info is not None

    def _read_on(self, wanted: Iterable[int]) -> None:
        ends = self._admin.end_offsets([(self._topic, number) for number in wanted], committed=False)
        ranges = {
            number: (self._positions.get(number, 0), end)
            for (_, number), end in ends.items()
            if end > self._positions.get(number, 0)
        }
        if ranges:
            for message in self._reader.read(self._topic, ranges):
                self._take(message)
        # Advance after the whole read. An interrupted read starts again, which changes nothing.
        self._positions |= {number: stop for number, (_, stop) in ranges.items()}

    def partition_of(self, place: RescuePlace) -> int:
        """Return the partition of the rescue topic with the copies of a place."""
        assert self.partitions is not None
        return control_partition(wire.place_key(place), self.partitions)

    def places(self) -> list[RescuePlace]:
        """Return the places with copies."""
        return sorted(self._copies)

    def rescued(self, place: RescuePlace) -> OffsetSet:
        """Return the offsets that have a copy."""
        found = self._copies.get(place)
        return EMPTY if found is None else OffsetSet.from_offsets(found.at)

    def gaps(self, place: RescuePlace) -> OffsetSet:
        """Return the offsets that are known to hold no message."""
        found = self._copies.get(place)
        return EMPTY if found is None else found.gaps

    def read(self, place: RescuePlace, offsets: OffsetSet) -> Iterator[list[RescuedMessage]]:
        """Yield the copies of these offsets in offset order, in lists of limited size.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused, TopicNotFound
            LaterCursorVersion: a newer version of the library wrote a copy.
        """
        for piece in self._pieces(place, offsets):
            found = self._read(place, piece)
            for _ in range(_TRIES):
                missing = piece - OffsetSet.from_offsets(found)
                if not missing or not self.refresh([self.partition_of(place)]):
                    break
                found |= self._read(place, missing & self.rescued(place))
            if found:
                yield [found[offset] for offset in sorted(found)]

    def forget(self) -> None:
        """Forget everything. The next refresh reads the topic from its beginning."""
        self._copies.clear()
        self._positions.clear()
        self.bytes = 0

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def _take(self, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        read = wire.read_key(key)
        if read is None or read[0] != self._markers_topic:
            return
        _, place, offset = read
        if value is not None and self._is_torn(message, offset, value):
            value = None  # the tracker copies the message again if its topic still has it
        copies = self._copies.setdefault(place, _Copies())
        if offset is None:
            copies.gaps = EMPTY if value is None else wire.decode_gaps(value)
        else:
            self.bytes -= copies.at.pop(offset, (0, 0))[1]
            if value is not None:
                size = len(key) + len(value)
                copies.at[offset] = offset_of(message), size
                self.bytes += size
        if not copies.at and not copies.gaps:
            del self._copies[place]

    def _is_torn(self, message: Message, offset: int | None, value: bytes) -> bool:
        try:
            wire.decode_gaps(value) if offset is None else wire.decode(value)
        except LaterCursorVersion:
            return False
        except InvalidControlRecord as why:
            log.warning(
                "A record of the rescue topic is not valid and is skipped. "
                "event=rescue_record_skipped topic=%s partition=%s offset=%s why=%s",
                self._topic,
                message.partition(),
                message.offset(),
                why,
            )
            return True
        return False

    def _pieces(self, place: RescuePlace, offsets: OffsetSet) -> Iterator[OffsetSet]:
        """Yield those of the offsets that have a copy, in pieces for one read each."""
        known = offsets & self.rescued(place)
        if not known:
            return
        at = self._copies[place].at
        piece: list[int] = []
        size = 0
        for offset in known:
            piece.append(offset)
            size += at[offset][1] if offset in at else 0  # a refresh during the read may have forgotten it
            if len(piece) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
                yield OffsetSet.from_offsets(piece)
                piece, size = [], 0
        if piece:
            yield OffsetSet.from_offsets(piece)

    def _read(self, place: RescuePlace, offsets: OffsetSet) -> dict[int, RescuedMessage]:
        copies = self._copies.get(place)
        if copies is None or not offsets:
            return {}
        wanted = {copies.at[one][0]: one for one in offsets if one in copies.at}
        found: dict[int, RescuedMessage] = {}
        for ranges in reading_rounds({self.partition_of(place): OffsetSet.from_offsets(wanted)}):
            for message in self._reader.read(self._topic, ranges):
                value, offset = message.value(), wanted.get(offset_of(message))
                if offset is None or value is None:
                    continue
                if message.key() == wire.record_key(self._markers_topic, place, offset):
                    found[offset] = RescuedMessage(place=place, at=offset, record=wire.decode(value))
        return found


class Rescue:
    """Copies of the messages that a reader of queue topics misses.

    Copies of a topic that was deleted and created again are not those of the present topic.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        rescue_topic: str,
        markers_topic: str,
        *,
        timeout_ms: int = PATIENCE_MS,
    ) -> None:
        self._config = {name: value for name, value in config.items() if name != "isolation.level"}
        self.topic, self._markers_topic, self._timeout_ms = rescue_topic, markers_topic, timeout_ms

    @classmethod
    def of(cls, options: SourceOptions) -> Rescue:
        """Return the copies for a query with these options."""
        return cls(client_config(options.kafka, "consumer"), options.rescue_topic, options.markers_topic)

    def within(self, timeout_ms: int) -> Rescue:
        """Return the same copies, whose reader waits no longer than this for each answer of the brokers."""
        return Rescue(self._config, self.topic, self._markers_topic, timeout_ms=timeout_ms)

    def messages(self, topic: str, partition: int, wanted: OffsetSet) -> Generator[list[RescuedMessage]]:
        """Yield the copies of these offsets in offset order, in lists of limited size.

        Raises the errors of :meth:`RescueIndex.read`.
        """
        with self._known(topic, partition) as (index, place):
            if index is None or place is None:
                return
            total = 0
            for messages in index.read(place, wanted):
                total += len(messages)
                yield messages
        if total:
            log.info(
                "Messages that retention has deleted were read from the rescue topic. "
                "event=rescued_messages_read topic=%s partition=%d messages=%d",
                topic,
                partition,
                total,
            )

    def without_message(self, topic: str, partition: int, offsets: OffsetSet) -> OffsetSet:
        """Return those of the offsets that are known to hold no message."""
        with self._known(topic, partition) as (index, place):
            return EMPTY if index is None or place is None else index.gaps(place) & offsets

    def has(self, topic: str, wanted: Mapping[int, OffsetSet]) -> dict[int, OffsetSet]:
        """Return those of the wanted offsets of each partition that have a copy."""
        found: dict[int, OffsetSet] = {}
        for partition, offsets in wanted.items():
            with self._known(topic, partition) as (index, place):
                found[partition] = EMPTY if index is None or place is None else index.rescued(place) & offsets
        return found

    @contextmanager
    def _known(self, topic: str, partition: int) -> Iterator[tuple[RescueIndex | None, RescuePlace | None]]:
        """Lend the index of this process, up to date for a partition. None: there are no copies."""
        key = frozenset(self._config.items()), self.topic, self._markers_topic, self._timeout_ms
        with _indexes.lend(key, self._new_index) as index:
            place = None
            try:
                place = index.locate(topic, partition)
            except NotAuthorized as denied:
                log.error(
                    "The rescue topic cannot be read, so messages that retention has deleted count as lost. "
                    "event=rescue_unreadable topic=%s why=%s",
                    self.topic,
                    denied,
                )
            yield (None, None) if place is None else (index, place)

    def _new_index(self) -> RescueIndex:
        return RescueIndex(
            self._config, self.topic, markers_topic=self._markers_topic, timeout_ms=self._timeout_ms
        )


def _keep(_: RescueIndex) -> None:
    """An abandoned read leaves nothing behind."""


_indexes: ClientPool[RescueIndex] = ClientPool(RescueIndex.close, reset=_keep)
