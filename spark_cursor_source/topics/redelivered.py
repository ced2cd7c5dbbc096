"""Messages that come back, read at their places in the queue topic."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Message

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.topics.queue import Missing, SliceReading


def redelivered(
    config: Mapping[str, str], piece: Slice, *, stall_timeout_ms: int
) -> tuple[list[Message], list[tuple[Missing, OffsetSet]]]:
    """The messages of a slice, in their order, and why which of its offsets have none.

    Raises what ``read_range`` raises.
    """
    with borrowed_consumer(config) as consumer:
        reading = SliceReading(consumer, piece, None, stall_timeout_ms)
        messages = [message for some, _ in reading.messages() for message in some]
        return messages, list(reading.missing())
