"""Redrive to one subscription: its messages become available again in place, and nothing is appended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from confluent_kafka import Message

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Requeue
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.range_consumer import read_range
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.kafka.transaction import Record
from spark_cursor_source.topics.authors import Action
from spark_cursor_source.topics.copies import original_ms_of, reading_rounds, still_there
from spark_cursor_source.topics.cursors import CursorTable, tracked_here
from spark_cursor_source.topics.dead_letters import DeadLetterRecord
from spark_cursor_source.wire import marker as marker_wire


class Requeuer:
    """Makes Requeue markers of dead letters whose messages are still in the queue topic."""

    def __init__(
        self, kafka: Mapping[str, str], topics: ClusterAdmin, markers_topic: str, subscription: str
    ) -> None:
        self._topics, self._markers_topic, self._subscription = topics, markers_topic, subscription
        self._reader = client_config(kafka, "consumer") | {"isolation.level": "read_committed"}
        self._partitions = topics.describe([markers_topic])[markers_topic].partitions
        self._cells: frozenset[Cell] = frozenset()

    def find(self, cursors_topic: str) -> None:
        """Reads which partitions the subscription has.

        Raises:
            UnknownSubscription: the tracker has no cursor of the subscription.
            TrackedElsewhere: the tracker of another markers topic has the subscription.
        """
        with closing(CursorTable(self._reader, cursors_topic)) as table:
            found = tracked_here(table.present(subscription=self._subscription), self._markers_topic)
        self._cells = frozenset(found)

    def possible(self, letters: Sequence[DeadLetterRecord]) -> list[DeadLetterRecord]:
        """Returns the dead letters whose message is still where it was, for a cell of the subscription."""
        wanted: dict[str, dict[int, list[DeadLetterRecord]]] = {}
        for letter in letters:
            if self._cell(letter) in self._cells:
                parts = wanted.setdefault(letter.origin_topic, {})
                parts.setdefault(letter.origin_partition, []).append(letter)
        found = {
            (topic, number, offset_of(message)): message
            for topic, parts in wanted.items()
            for number, message in self._messages(topic, parts)
        }
        return [
            letter
            for letter in letters
            if _is_of(letter, found.get((letter.origin_topic, letter.origin_partition, letter.origin_offset)))
        ]

    def records(self, letters: Sequence[DeadLetterRecord], action: Action) -> list[Record]:
        """Returns one marker for each cell."""
        offsets: dict[Cell, list[int]] = {}
        for letter in letters:
            offsets.setdefault(self._cell(letter), []).append(letter.origin_offset)
        return [
            Record(
                self._markers_topic,
                cell.control_partition(self._partitions),
                cell.key,
                marker_wire.encode(Requeue(cell=cell, offsets=OffsetSet.from_offsets(some))),
                [(name, text) for name, text in action.headers() if not isinstance(text, str)],
            )
            for cell, some in offsets.items()
        ]

    def _cell(self, letter: DeadLetterRecord) -> Cell:
        return Cell(
            subscription=self._subscription, topic=letter.origin_topic, partition=letter.origin_partition
        )

    def _messages(
        self, topic: str, parts: Mapping[int, Sequence[DeadLetterRecord]]
    ) -> Iterable[tuple[int, Message]]:
        wanted = {
            number: OffsetSet.from_offsets(one.origin_offset for one in some)
            for number, some in parts.items()
        }
        there = still_there(self._topics, topic, wanted)
        with borrowed_consumer(self._reader) as consumer:
            for ranges in reading_rounds(there):
                for number, (start, stop) in ranges.items():
                    for messages in read_range(
                        consumer, topic, number, start, stop, on_removed=lambda *_: None
                    ):
                        yield from ((number, one) for one in messages if offset_of(one) in there[number])


def _is_of(letter: DeadLetterRecord, message: Message | None) -> bool:
    """True if the message is the one of the dead letter, not one of a topic that was created again."""
    return message is not None and (message.key(), message.value(), original_ms_of(message)) == (
        letter.key,
        letter.value,
        letter.original_ms,
    )
