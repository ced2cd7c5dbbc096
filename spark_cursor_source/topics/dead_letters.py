"""Dead letters as records: the headers that describe them, in addition to the headers of the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_cursor_source.core.dead_letter_id import letter_id
from spark_cursor_source.core.error_template import error_template
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.errors import NoDeadLetter
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.topics.copies import Headers, original_ms_of
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
HEADER_GENERATION = "cursorq-generation"
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
    HEADER_GENERATION,
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
        decision.generation_ms,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRecord:
    """A dead letter as it is stored in its topic. Times are in ms since 1970; None: unknown."""

    topic: str  #: the dead-letter topic
    partition: int
    offset: int
    written_ms: int | None  #: when the dead letter was written
    subscription: str  #: the subscription that gave the message up
    reason: str  #: max-deliveries, rejected or expired
    error: str  #: the last error of the handler, or the reason that it gave; empty: none
    delivery_count: int | None
    origin_topic: str  #: this and the next two: where the message was
    origin_partition: int
    origin_offset: int
    original_ms: int | None  #: timestamp of the message
    first_delivery_ms: int | None  #: broker time
    last_delivery_ms: int | None  #: broker time
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = field(repr=False)  #: those of the message itself
    state: str = "waiting"  #: waiting, redriven or deleted
    #: without a last delivery, broker time of the last seek, restore or redrive before
    generation_ms: int | None = None

    @property
    def template(self) -> str:
        """The error with its numbers, ids and quoted texts masked."""
        return error_template(self.error)

    @property
    def id(self) -> int:
        """A number that copies of this dead letter share, and no other dead letters."""
        return letter_id(
            topic=self.origin_topic,
            partition=self.origin_partition,
            offset=self.origin_offset,
            subscription=self.subscription,
            original_ms=self.original_ms,
            last_delivery_ms=self.last_delivery_ms,
            generation_ms=self.generation_ms,
        )


def read_letter(message: Message) -> DeadLetterRecord:
    """Return the dead letter of a record of a dead-letter topic.

    Raises:
        NoDeadLetter: the record does not name the message that it came from.
    """
    headers = headers_of(message)
    # The dead-letter headers begin at the last reason header. Earlier headers with the same names belong to
    # the message.
    begin = max((at for at, (name, _) in enumerate(headers) if name == HEADER_REASON), default=len(headers))
    own = {name: value or b"" for name, value in headers[begin:] if name in OWN_HEADERS}
    kind, written_ms = message.timestamp()
    try:
        return DeadLetterRecord(
            topic=message.topic() or "",
            partition=message.partition() or 0,
            offset=offset_of(message),
            written_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else written_ms,
            subscription=own.get(HEADER_SUBSCRIPTION, b"").decode(errors="replace"),
            reason=own[HEADER_REASON].decode(errors="replace"),
            error=own.get(HEADER_ERROR, b"").decode(errors="replace"),
            delivery_count=_number(own, HEADER_DELIVERY_COUNT),
            origin_topic=own[HEADER_TOPIC].decode(),
            origin_partition=int(own[HEADER_PARTITION]),
            origin_offset=int(own[HEADER_OFFSET]),
            original_ms=original_ms_of(message),
            first_delivery_ms=_number(own, HEADER_FIRST_DELIVERY),
            last_delivery_ms=_number(own, HEADER_LAST_DELIVERY),
            generation_ms=_number(own, HEADER_GENERATION),
            key=message.key(),
            value=message.value(),
            headers=(
                # a timestamp header remains from an earlier redrive
                *(one for one in headers[:begin] if one[0] != HEADER_TIMESTAMP),
                *(one for one in headers[begin:] if one[0] not in OWN_HEADERS),
            ),
        )
    except (KeyError, ValueError) as why:
        where = (message.topic() or "", message.partition() or 0, offset_of(message))
        raise NoDeadLetter(*where, f"its headers have no valid {why}") from why


def _number(headers: Mapping[str, bytes], name: str) -> int | None:
    text = headers.get(name, b"")
    return int(text) if text.isdigit() else None
