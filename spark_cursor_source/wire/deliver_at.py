"""Due time of a message whose headers ask for a later first delivery.

``deliverAt`` is a time: milliseconds since 1970, or ISO 8601 with a UTC offset. ``deliverAfter`` is a
duration. It counts from the record's timestamp, or in a copy from the original timestamp of the message. A
message with both headers is due at the later time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.errors import InvalidDuration
from spark_cursor_source.wire.original_time import HEADER_TIMESTAMP, original_ms

DELIVER_AT = "deliverAt"
DELIVER_AFTER = "deliverAfter"
HEADERS = frozenset({DELIVER_AT, DELIVER_AFTER})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = re.compile(r"[0-9]{1,19}")


class Due(NamedTuple):
    """Due time that the headers of a message ask for."""

    at_ms: int | None  #: None: no due time, so the message is due at once
    unreadable: str | None = None  #: header with an invalid value, which is ignored


def due(headers: Iterable[tuple[str, bytes | None]], timestamp_ms: int | None) -> Due:
    """Returns the due time from the headers and the timestamp of a record.

    If a header occurs several times, the last one counts.

    >>> due([("deliverAfter", b"30s")], 1_000_000)
    Due(at_ms=1030000, unreadable=None)
    >>> due([("deliverAfter", b"30s"), ("cursorq-timestamp", b"70000")], 1_000_000).at_ms
    100000
    >>> due([("deliverAt", b"2026-11-21T09:00:00+01:00")], None).at_ms
    1795248000000
    >>> due([("deliverAt", b"tomorrow")], 1_000_000)
    Due(at_ms=None, unreadable='deliverAt')
    """
    asked = {name: value for name, value in headers if name in HEADERS or name == HEADER_TIMESTAMP}
    timestamp_ms = original_ms(asked.items(), timestamp_ms)
    asked.pop(HEADER_TIMESTAMP, None)
    at_ms, unreadable = None, None
    for name, value in asked.items():
        one = parse_instant(_text(value)) if name == DELIVER_AT else _after(value, timestamp_ms)
        if one is None:
            unreadable = name
        elif at_ms is None or one > at_ms:
            at_ms = one
    return Due(at_ms, unreadable)


def deliver_at(at_us: int) -> tuple[str, bytes]:
    """Returns the header of a message that is due at ``at_us``, in microseconds since 1970.

    Rounds up to milliseconds, so that the message is never due too early.

    >>> deliver_at(1_795_248_000_000_001), deliver_at(-1)
    (('deliverAt', b'1795248000001'), ('deliverAt', b'0'))
    """
    return DELIVER_AT, b"%d" % max(0, -(-at_us // 1_000))


def parse_instant(text: str) -> int | None:
    """Returns the milliseconds since 1970 of digits or of ISO 8601 with a UTC offset. None for another text.

    >>> parse_instant("2026-11-21T08:00:00+00:00"), parse_instant("7"), parse_instant("2026-11-21T08:00:00")
    (1795248000000, 7, None)
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return None  # ambiguous without a UTC offset
        return -(-(moment - _EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        return None


def _after(value: bytes | None, timestamp_ms: int | None) -> int | None:
    try:
        duration_ms = parse_duration(_text(value))
    except InvalidDuration:
        return None
    return None if timestamp_ms is None else timestamp_ms + duration_ms


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
