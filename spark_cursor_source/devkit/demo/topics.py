"""Reader of the demo's topics, with the access of any Kafka client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.devkit.demo.history import MarkerHistory, MessageId
from spark_cursor_source.devkit.demo.scenario import DEAD_LETTER_TOPIC, QUEUE_TOPIC, SUBSCRIPTION
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.dead_letters import (
    HEADER_DELIVERY_COUNT,
    HEADER_ERROR,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_SUBSCRIPTION,
    HEADER_TOPIC,
)
from spark_cursor_source.wire import marker as marker_wire

Record = tuple[bytes | None, bytes | None]  #: (key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRecord:
    """A record of the dead-letter topic, and its origin according to its headers."""

    record: Record
    origin: MessageId
    reason: str
    error: str
    delivery_count: int
    of_demo: bool  #: True if topic and subscription are the demo's


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Data on which the verdict is based."""

    queue: dict[MessageId, Record]
    history: MarkerHistory
    dead_letters: tuple[DeadLetterRecord, ...]
    cursors: dict[int, CursorSnapshot]  #: cursors by partition of the queue topic


class DemoTopics:
    """A reader of the demo's topics. Not thread-safe."""

    def __init__(self, kafka: KafkaOptions) -> None:
        consumer = client_config(kafka, "consumer")
        self._topics = ClusterAdmin(client_config(kafka, "admin"))
        self._cursors = CursorTable(consumer, DEFAULT_CURSORS_TOPIC)
        self._reader = RangeReader(consumer, committed=True)
        self._read: dict[tuple[str, int], int] = {}
        self._partitions: dict[str, int] = {}  # partition counts of existing topics
        self.history = MarkerHistory()

    def close(self) -> None:
        """Closes the clients."""
        self._cursors.close()
        self._reader.close()

    def produced(self) -> dict[int, int]:
        """Returns the end of each partition of the queue topic."""
        return {number: end for (_, number), end in self._ends(QUEUE_TOPIC).items()}

    def cursors(self) -> dict[int, CursorSnapshot]:
        """Returns the existing cursors by partition of the queue topic."""
        if not self._count(DEFAULT_CURSORS_TOPIC):
            return {}  # neither query has started
        self._cursors.refresh()
        found = self._cursors.of(subscription=SUBSCRIPTION, topic=QUEUE_TOPIC)
        return {cell.partition: cursor for cell, cursor in found.items()}

    def follow_markers(self) -> MarkerHistory:
        """Returns the history up to the present end of the markers topic."""
        for message in self._read_on(DEFAULT_MARKERS_TOPIC):
            try:
                marker = marker_wire.decode(message.key(), message.value())
            except InvalidMarker:
                continue
            if not isinstance(marker, marker_wire.MarkerV1) and _is_demos(marker.cell):
                self.history.add(marker, at_ms=message.timestamp()[1])
        return self.history

    def evidence(self) -> Evidence:
        """Returns all data. Dead letters and the queue topic are read from their beginning."""
        queue = {
            (message.partition(), message.offset()): (message.key(), message.value())
            for message in self._read_on(QUEUE_TOPIC)
        }
        return Evidence(
            queue=queue,
            history=self.follow_markers(),
            dead_letters=tuple(map(_dead_letter, self._read_on(DEAD_LETTER_TOPIC))),
            cursors=self.cursors(),
        )

    def _read_on(self, topic: str) -> Iterator[Any]:
        ends = {number: end for (_, number), end in self._ends(topic).items()}
        starts = {number: self._read.get((topic, number), 0) for number in ends}
        ranges = {number: (starts[number], end) for number, end in ends.items() if starts[number] < end}
        if ranges:
            yield from self._reader.read(topic, ranges)
        self._read |= {(topic, number): end for number, end in ends.items()}

    def _ends(self, topic: str) -> dict[tuple[str, int], int]:
        partitions = [(topic, number) for number in range(self._count(topic))]
        return self._topics.end_offsets(partitions, committed=True) if partitions else {}

    def _count(self, topic: str) -> int:
        """Returns the partition count of a topic, 0 if the topic does not exist."""
        if topic not in self._partitions:
            for name, info in self._topics.existing([topic]).items():
                self._partitions[name] = info.partitions
        return self._partitions.get(topic, 0)


def _is_demos(cell: Cell) -> bool:
    return (cell.subscription, cell.topic) == (SUBSCRIPTION, QUEUE_TOPIC)


def _dead_letter(message: Any) -> DeadLetterRecord:
    headers = {name: value.decode() for name, value in headers_of(message) if value is not None}
    return DeadLetterRecord(
        record=(message.key(), message.value()),
        origin=(int(headers.get(HEADER_PARTITION, -1)), int(headers.get(HEADER_OFFSET, -1))),
        reason=headers.get(HEADER_REASON, ""),
        error=headers.get(HEADER_ERROR, ""),
        delivery_count=int(headers.get(HEADER_DELIVERY_COUNT, 0)),
        of_demo=(headers.get(HEADER_SUBSCRIPTION), headers.get(HEADER_TOPIC)) == (SUBSCRIPTION, QUEUE_TOPIC),
    )
