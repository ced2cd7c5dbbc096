"""Headers of a dead letter: what it says of itself, beside the message's own."""

from __future__ import annotations

from confluent_kafka import Message

from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.kafka.range_consumer import offset_of
from spark_cursor_source.topics.copies import Headers, headers_of
from spark_cursor_source.wire.deliver_at import due
from spark_cursor_source.wire.original_time import HEADER_TIMESTAMP

#: headers of a dead letter, after the message's own; their values are text
HEADER_REASON = "cursorq-reason"
HEADER_DELIVERY_COUNT = "cursorq-delivery-count"
HEADER_TOPIC = "cursorq-topic"
HEADER_PARTITION = "cursorq-partition"
HEADER_OFFSET = "cursorq-offset"
HEADER_SUBSCRIPTION = "cursorq-subscription"
HEADER_ERROR = "cursorq-error"  #: this and the following only where they are known
HEADER_FIRST_DELIVERY = "cursorq-first-delivery"
HEADER_LAST_DELIVERY = "cursorq-last-delivery"
OWN_HEADERS = (
    HEADER_REASON,
    HEADER_DELIVERY_COUNT,
    HEADER_TOPIC,
    HEADER_PARTITION,
    HEADER_OFFSET,
    HEADER_SUBSCRIPTION,
    HEADER_ERROR,
    HEADER_FIRST_DELIVERY,
    HEADER_LAST_DELIVERY,
    HEADER_TIMESTAMP,
)  #: all of them, in this order; the first begins ours, even where the message has headers of these names


def dead_letter_headers(
    decision: DeadLetter, offset: int, *, first_delivery_ms: int | None, original_ms: int | None
) -> Headers:
    """What a dead letter says of itself, beside the message's own headers."""
    cell = decision.cell
    values = (
        decision.reason,
        decision.delivery_count,
        cell.topic,
        cell.partition,
        offset,
        cell.subscription,
        decision.error or None,
        first_delivery_ms,
        decision.last_delivery_ms,
        original_ms,
    )
    known = zip(OWN_HEADERS, values, strict=True)
    return [(name, str(value).encode()) for name, value in known if value is not None]


def first_delivery_ms(decision: DeadLetter, message: Message) -> int | None:
    """Broker time of the first delivery of a message, as far as it is known."""
    if decision.delivery_count <= 1:
        return decision.last_delivery_ms
    first_ms = decision.first_deliveries.at(offset_of(message))
    due_ms = due(headers_of(message), message.timestamp()[1]).at_ms
    if first_ms is not None and due_ms is not None and first_ms < due_ms:
        return None  # its turn had come, but it was not due; nobody noted when it was delivered after that
    return first_ms
