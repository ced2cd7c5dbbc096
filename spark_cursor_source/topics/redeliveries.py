"""Reader of announcements, the records of the redeliveries topic, by offset ranges."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from spark_cursor_source.core.batch import RedeliveryRecord
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.wire import redelivery as wire

log = logging.getLogger(__name__)

Ranges = dict[int, tuple[int, int]]


@dataclass(slots=True)
class _Buffer:
    """All announcements in ``[begin, end)`` of a partition."""

    begin: int
    end: int
    records: list[RedeliveryRecord] = field(default_factory=list)

    def between(self, start: int, stop: int) -> list[RedeliveryRecord]:
        first = bisect_left(self.records, start, key=_offset)
        return self.records[first : bisect_left(self.records, stop, key=_offset)]


class RedeliveryLog:
    """Window of the redeliveries topic in memory, until :meth:`discard`. Not thread-safe.

    It is a cache. Announcements outside of it are read from the topic.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, *, subscription: str | None = None) -> None:
        """With ``subscription``, announcements of others are skipped by their keys, without decoding."""
        self._topic = topic
        self._prefix = b"" if subscription is None else f"{subscription},".encode()
        self._reader = RangeReader(config, committed=True)
        self._buffers: dict[int, _Buffer] = {}

    def poll(self, until: Mapping[int, int]) -> int:
        """Read up to the given offsets and return the number of new announcements.

        The first call for a partition only sets its start.
        """
        for number, stop in until.items():
            self._buffers.setdefault(number, _Buffer(stop, stop))
        return self._extend(until)

    def between(self, starts: Mapping[int, int], stops: Mapping[int, int]) -> list[RedeliveryRecord]:
        """Return the announcements in ``[starts[p], stops[p])`` of each partition, by partition and offset.

        A partition without a start begins at 0. Records that retention has deleted are absent.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        wanted = {number: (starts.get(number, 0), stop) for number, stop in sorted(stops.items())}
        wanted = {number: (start, stop) for number, (start, stop) in wanted.items() if start < stop}
        self._cover(wanted)
        return [
            record
            for number, (start, stop) in wanted.items()
            for record in self._buffers[number].between(start, stop)
        ]

    def scan(
        self, starts: Mapping[int, int], stops: Mapping[int, int], wanted: Callable[[Redeliver], bool]
    ) -> list[RedeliveryRecord]:
        """Return the announcements of :meth:`between` that are ``wanted``, without use of the cache.

        They are read from the topic, and only the wanted ones are kept in memory.
        """
        ranges = {number: (starts.get(number, 0), stop) for number, stop in sorted(stops.items())}
        ranges = {number: (start, stop) for number, (start, stop) in ranges.items() if start < stop}
        found = self._read(ranges, wanted)
        return [record for records in found.values() for record in records]

    def discard(self, before: Mapping[int, int]) -> None:
        """Remove announcements below the given offsets from the cache."""
        for number, position in before.items():
            buffer = self._buffers.get(number)
            if buffer is not None and position > buffer.begin:
                del buffer.records[: bisect_left(buffer.records, position, key=_offset)]
                buffer.begin, buffer.end = position, max(buffer.end, position)

    def __len__(self) -> int:
        """Number of cached announcements."""
        return sum(len(buffer.records) for buffer in self._buffers.values())

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def _cover(self, wanted: Ranges) -> None:
        earlier: Ranges = {}
        for number, (start, stop) in wanted.items():
            buffer = self._buffers.get(number)
            if buffer is None or start > buffer.end or stop < buffer.begin:
                self._buffers[number] = _Buffer(start, start)
            elif start < buffer.begin:
                earlier[number] = (start, buffer.begin)
        if earlier:
            for number, records in self._read(earlier).items():
                buffer = self._buffers[number]
                buffer.records[:0] = records
                buffer.begin = earlier[number][0]
        self._extend({number: stop for number, (_, stop) in wanted.items()})

    def _extend(self, until: Mapping[int, int]) -> int:
        later = {
            number: (self._buffers[number].end, stop)
            for number, stop in until.items()
            if self._buffers[number].end < stop
        }
        if not later:
            return 0
        found = self._read(later)
        for number, records in found.items():
            self._buffers[number].records += records
            self._buffers[number].end = later[number][1]
        return sum(map(len, found.values()))

    def _read(
        self, ranges: Ranges, wanted: Callable[[Redeliver], bool] | None = None
    ) -> dict[int, list[RedeliveryRecord]]:
        """Read whole ranges or raise, so that an interrupted read leaves no gap in the buffer."""
        found: dict[int, list[RedeliveryRecord]] = {number: [] for number in ranges}
        for message in self._reader.read(self._topic, ranges):
            record = self._record(message)
            if record is not None and (wanted is None or wanted(record.redeliver)):
                found[record.partition].append(record)
        return found

    def _record(self, message: Message) -> RedeliveryRecord | None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if not (message.key() or b"").startswith(self._prefix):
            return None
        try:
            redeliver = wire.decode(message.value())
        except InvalidControlRecord as why:
            log.warning(
                "A record of the redeliveries topic is not valid and is skipped. "
                "event=announcement_skipped topic=%s partition=%s offset=%s why=%s",
                self._topic,
                partition,
                offset,
                why,
            )
            return None
        if not redeliver.offsets:
            return None  # a task's report to its own planner
        return RedeliveryRecord(partition=partition, offset=offset, redeliver=redeliver)


def _offset(record: RedeliveryRecord) -> int:
    return record.offset
