"""Record of redriven and deleted dead letters, kept in the cursors topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_cursor_source.kafka.admin import TopicInfo
from spark_cursor_source.kafka.transaction import Record
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import redriven as wire

MAX_RECORD_BYTES = 900_000  #: maximum size of one part; a topic with Kafka's default limits accepts it


class RedrivenOffsets:
    """Redriven and deleted dead letters of one topic, by partition. Not thread-safe."""

    def __init__(self, config: Mapping[str, Any], cursors_topic: str, dead_letters: TopicInfo) -> None:
        self._cursors_topic = cursors_topic
        self._dead_letters = dead_letters
        self._tail = CursorTable(config, cursors_topic)

    def read(self) -> dict[int, wire.SettledLetters]:
        """Return what was redriven or deleted in each partition, as of the last commit.

        Raises:
            LaterCursorVersion, InvalidControlRecord: this version cannot read the record.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self._tail.refresh()
        found = {}
        for number in range(self._dead_letters.partitions):
            value = self._tail.value(self._key(number))
            found[number] = (
                wire.SettledLetters() if value is None else wire.decode(value, self._dead_letters.topic_id)
            )
        return found

    def records(self, number: int, settled: wire.SettledLetters) -> list[Record]:
        """Return the records for the cursors topic that mark dead letters of a partition as settled."""
        key = self._key(number)
        whole = wire.encode(
            wire.redriven_cell(self._dead_letters.name, number), self._dead_letters.topic_id, settled
        )
        home, _ = self._tail.home(key)
        return [
            Record(self._cursors_topic, home, part_key, value)
            for part_key, value in cursor_wire.to_records(key, whole, max_bytes=MAX_RECORD_BYTES)
        ]

    def close(self) -> None:
        """Close the consumer."""
        self._tail.close()

    def _key(self, number: int) -> bytes:
        return wire.redriven_cell(self._dead_letters.name, number).key
