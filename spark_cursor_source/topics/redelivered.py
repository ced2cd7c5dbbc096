"""Reader of redelivered messages at their original offsets in the queue topic."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.topics.queue import Missing, SliceReading, message_reader
from spark_cursor_source.topics.rescue import Rescue


def redelivered(
    config: Mapping[str, str], piece: Slice, *, stall_timeout_ms: int, rescue: Rescue | None = None
) -> tuple[list[Message], list[tuple[Missing, OffsetSet]]]:
    """Return the messages of a slice in order, and the missing offsets with the reason of each.

    With ``rescue``, messages that retention has deleted are read from the rescue topic. Raises the errors of
    ``read_range``, and those of ``rescue``.
    """
    with borrowed_consumer(config) as consumer:
        reading = SliceReading(message_reader(consumer), piece, None, stall_timeout_ms, rescue)
        messages = [message for chunk in reading.chunks() for message in chunk.messages]
        return messages, list(reading.missing())
