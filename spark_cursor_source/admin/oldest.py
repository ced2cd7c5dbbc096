"""Age of the oldest unacked message of a cell."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Message

from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.range_consumer import read_range
from spark_cursor_source.kafka.reading import offset_of

#: settings of a consumer that reads one message from each of many partitions: about 3 ms each instead of 15
ONE_MESSAGE = {"fetch.wait.max.ms": "1", "fetch.message.max.bytes": "65536"}

_TRIES = 5  # largest number of reads in search of the message


class Oldest(NamedTuple):
    """First message of a cell that is outstanding or unread."""

    offset: int
    at_ms: int | None  #: timestamp; None: the message has none


def oldest_unacked_ms(consumer: Consumer, cursor: CursorSnapshot, end: int) -> int | None:
    """Returns the timestamp in ms of the message that :func:`oldest_unacked` finds; None: there is none."""
    found = oldest_unacked(consumer, cursor, end)
    return None if found is None else found.at_ms


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
    ):
        return messages
    return []
