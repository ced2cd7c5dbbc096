"""All records of topics, for tests that look at them again and again."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping

from confluent_kafka import Message

from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.range_reader import RangeReader


class TopicRecords:
    """The committed records of topics. A look reads what was appended since the last one.

    Threads may share it.
    """

    def __init__(self, config: Mapping[str, str], topics: ClusterAdmin) -> None:
        self._config, self._topics = config, topics
        self._lock = threading.Lock()
        self._reader: RangeReader | None = None
        self._found: defaultdict[tuple[str, str], dict[int, list[Message]]] = defaultdict(dict)
        self._ends: dict[tuple[str, str, int], int] = {}

    def of(self, topic: str) -> list[Message]:
        """Returns the records by partition and offset; none if the topic does not exist."""
        with self._lock:
            info = self._topics.existing([topic]).get(topic)
            return [] if info is None else self._read(topic, info.topic_id, info.partitions)

    def close(self) -> None:
        """Closes the consumer."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _read(self, topic: str, topic_id: str, count: int) -> list[Message]:
        partitions = [(topic, number) for number in range(count)]
        starts = self._topics.beginning_offsets(partitions)
        ends = self._topics.end_offsets(partitions, committed=True)
        found = self._found[topic, topic_id]
        ranges = {}
        for (_, number), end in ends.items():
            start = max(starts[topic, number], self._ends.get((topic, topic_id, number), 0))
            if start < end:
                ranges[number] = (start, end)
        if ranges:
            if self._reader is None:
                self._reader = RangeReader(self._config, committed=True)
            new = list(self._reader.read(topic, ranges))
            for message in new:
                found.setdefault(message.partition(), []).append(message)
            self._ends |= {(topic, topic_id, number): end for number, (_, end) in ranges.items()}
        return [
            message
            for number in sorted(found)
            for message in found[number]
            if message.offset() >= starts[topic, number]
        ]
