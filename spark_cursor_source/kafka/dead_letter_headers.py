"""The headers of a dead letter: why it was given up, and where and when that was."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.kafka.records import offset_of
from spark_cursor_source.wire.due import due

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
)  #: all of them, in this order; the first begins ours, even where the message has headers of these names

Headers = list[tuple[str, bytes | None]]


def headers_of(decision: DeadLetter, message: Message) -> list[tuple[str, str]]:
    """The headers that a copy of the message has after its own."""
    cell = decision.cell
    values = (
        decision.reason,
        decision.delivery_count,
        cell.topic,
        cell.partition,
        message.offset(),
        cell.subscription,
        decision.error or None,
        _first_delivery_ms(decision, message),
        decision.last_delivery_ms,
    )
    known = zip(OWN_HEADERS, values, strict=True)
    return [(name, str(value)) for name, value in known if value is not None]


def _first_delivery_ms(decision: DeadLetter, message: Message) -> int | None:
    if decision.delivery_count == 1:
        return decision.last_delivery_ms
    first_ms = decision.first_deliveries.at(offset_of(message))
    headers: Any = message.headers() or ()
    due_ms = due(headers, message.timestamp()[1]).at_ms
    if first_ms is not None and due_ms is not None and first_ms < due_ms:
        return (
            None  # its turn had come, but it was not due; nobody has noted when it was delivered after that
        )
    return first_ms


def parted(headers: Headers) -> tuple[Headers, dict[str, bytes]]:
    """The message's own headers, and ours by name.

    >>> parted([("cursorq-error", b"its own"), ("cursorq-reason", b"rejected"), ("cursorq-offset", b"7")])
    ([('cursorq-error', b'its own')], {'cursorq-reason': b'rejected', 'cursorq-offset': b'7'})
    """
    begin = max((at for at, (name, _) in enumerate(headers) if name == HEADER_REASON), default=len(headers))
    ours = {name: value or b"" for name, value in headers[begin:] if name in OWN_HEADERS}
    return headers[:begin] + [one for one in headers[begin:] if one[0] not in OWN_HEADERS], ours
