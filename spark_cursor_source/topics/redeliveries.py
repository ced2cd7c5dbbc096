"""Announcements of messages that are available again, read in ranges of the redeliveries topic."""

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
    """All records of ``[begin, end)`` of a partition that hold an announcement."""

    begin: int
    end: int
    records: list[RedeliveryRecord] = field(default_factory=list)

    def between(self, start: int, stop: int) -> list[RedeliveryRecord]:
        first = bisect_left(self.records, start, key=_offset)
        return self.records[first : bisect_left(self.records, stop, key=_offset)]


class RedeliveryLog:
    """A window on the redeliveries topic, kept in memory until :meth:`discard`; one thread's.

    It is a cache: what is asked for and not in it is read from the topic.
    """

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        self._reader = RangeReader(config, committed=True)
        self._buffers: dict[int, _Buffer] = {}

    def poll(self, until: Mapping[int, int]) -> int:
        """Read on to the given positions; how many announcements came. The first call only marks them."""
        for number, stop in until.items():
            self._buffers.setdefault(number, _Buffer(stop, stop))
        return self._extend(until)

    def between(self, starts: Mapping[int, int], stops: Mapping[int, int]) -> list[RedeliveryRecord]:
        """The announcements in ``[starts[p], stops[p])`` of each partition, by partition and offset.

        A partition without a start begins at 0. Records that retention has removed are not among them.

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
        """As :meth:`between`, but read from the topic, and only what is wanted is ever kept."""
        ranges = {number: (starts.get(number, 0), stop) for number, stop in sorted(stops.items())}
        ranges = {number: (start, stop) for number, (start, stop) in ranges.items() if start < stop}
        found = self._read(ranges, wanted)
        return [record for records in found.values() for record in records]

    def discard(self, before: Mapping[int, int]) -> None:
        """Forget what is below the given positions."""
        for number, position in before.items():
            buffer = self._buffers.get(number)
            if buffer is not None and position > buffer.begin:
                del buffer.records[: bisect_left(buffer.records, position, key=_offset)]
                buffer.begin, buffer.end = position, max(buffer.end, position)

    def __len__(self) -> int:
        """How many announcements are kept."""
        return sum(len(buffer.records) for buffer in self._buffers.values())

    def close(self) -> None:
        """End the consumer."""
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
        """Whole ranges or nothing, so that a read that is broken off leaves no hole in the buffer."""
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
        try:
            redeliver = wire.decode(message.value())
        except InvalidControlRecord as why:
            log.warning(
                "redeliveries topic %s, partition %s, offset %s is skipped: %s",
                self._topic,
                partition,
                offset,
                why,
            )
            return None
        if not redeliver.offsets:
            return None  # the report of a task, for its own planner
        return RedeliveryRecord(partition=partition, offset=offset, redeliver=redeliver)


def _offset(record: RedeliveryRecord) -> int:
    return record.offset
