"""Age of the oldest unacked message of a cell."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Message

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import NotAuthorized, ReadError
from spark_cursor_source.kafka.admin import Partition
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.range_consumer import read_range
from spark_cursor_source.kafka.reading import offset_of

#: settings of a consumer that reads one message from each of many partitions: about 3 ms each instead of 15
ONE_MESSAGE = {"fetch.wait.max.ms": "1", "fetch.message.max.bytes": "65536"}

_TRIES = 5  # largest number of reads in search of the message
_STALL_MS = 5_000  # an election takes less
_AGAIN_MS = 10_000  # interval of the reads of a partition that cannot be read


class Oldest(NamedTuple):
    """First message of a cell that is outstanding or unread."""

    offset: int
    at_ms: int | None  #: timestamp; None: the message has none


class OldestReader:
    """Reader of the first unacked messages of many cells. Not thread-safe.

    A partition that cannot be read hides its own messages only. It is read again after 10 s.
    """

    def __init__(self) -> None:
        self._troubles: dict[Partition, tuple[str, Deadline]] = {}  # error, and when to read again

    def trouble(self, cell: Cell) -> str | None:
        """Returns why the partition of the cell could not be read; None: it could."""
        found = self._troubles.get(cell.topic_partition)
        return None if found is None else found[0]

    def rests(self, cell: Cell) -> bool:
        """Returns True if the partition of the cell could not be read just before."""
        found = self._troubles.get(cell.topic_partition)
        return found is not None and not found[1].over

    def read(self, consumer: Consumer, cursor: CursorSnapshot, end: int) -> Oldest | None:
        """Returns what :func:`oldest_unacked` does; None if the partition cannot be read for now."""
        if self.rests(cursor.cell):
            return None
        place = cursor.cell.topic_partition
        try:
            found = oldest_unacked(consumer, cursor, end)
        except (NotAuthorized, ReadError) as why:
            self._troubles[place] = str(why), Deadline.after_ms(_AGAIN_MS)
            return None
        self._troubles.pop(place, None)
        return found


def oldest_unacked(consumer: Consumer, cursor: CursorSnapshot, end: int) -> Oldest | None:
    """Returns the first message below ``end`` that is outstanding or unread.

    Returns None if no such message exists, or if long gaps of offsets without a message precede it.
    """
    outstanding = cursor.outstanding
    position = _next_unacked(cursor, outstanding, 0)
    for _ in range(_TRIES):
        messages = _first_messages(consumer, cursor, position, end)
        if not messages:
            return None
        for message in messages:
            offset = offset_of(message)
            if offset in outstanding or offset >= cursor.read_position:
                kind, timestamp_ms = message.timestamp()
                return Oldest(offset, None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms)
        # The wanted offsets are gaps, and the messages read are acked.
        position = _next_unacked(cursor, outstanding, offset_of(messages[-1]) + 1)
    return None


def _next_unacked(cursor: CursorSnapshot, outstanding: OffsetSet, position: int) -> int:
    first = outstanding.starting_at(position).first
    unread = max(position, cursor.read_position)
    return unread if first is None else min(first, unread)


def _first_messages(consumer: Consumer, cursor: CursorSnapshot, start: int, end: int) -> list[Message]:
    for messages in read_range(
        consumer,
        cursor.cell.topic,
        cursor.cell.partition,
        start,
        end,
        on_removed=lambda first, past: None,
        stall_timeout_ms=_STALL_MS,
    ):
        return messages
    return []
