"""Headers that describe a dead letter, in addition to the headers of the message."""

from __future__ import annotations

from confluent_kafka import Message

from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.topics.copies import Headers, headers_of
from spark_cursor_source.wire.deliver_at import due
from spark_cursor_source.wire.original_time import HEADER_TIMESTAMP

#: headers of a dead letter, after the headers of the message; their values are text
HEADER_REASON = "cursorq-reason"
HEADER_DELIVERY_COUNT = "cursorq-delivery-count"
HEADER_TOPIC = "cursorq-topic"
HEADER_PARTITION = "cursorq-partition"
HEADER_OFFSET = "cursorq-offset"
HEADER_SUBSCRIPTION = "cursorq-subscription"
#: this header and the following ones are present only if their values are known
HEADER_ERROR = "cursorq-error"
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
)  #: in this order; the first one marks where they begin, even after message headers of these names


def dead_letter_headers(
    decision: DeadLetter, offset: int, *, first_delivery_ms: int | None, original_ms: int | None
) -> Headers:
    """Return the headers that describe a dead letter, without the headers of the message."""
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
    """Return the broker time (ms) of the first delivery of a message, or None if it is unknown."""
    if decision.delivery_count <= 1:
        return decision.last_delivery_ms
    first_ms = decision.first_deliveries.at(offset_of(message))
    due_ms = due(headers_of(message), message.timestamp()[1]).at_ms
    if first_ms is not None and due_ms is not None and first_ms < due_ms:
        # a delayed message was skipped at that time, and its later first delivery is not recorded
        return None
    return first_ms
