"""Header of a message copy with the original timestamp."""

from __future__ import annotations

import re
from collections.abc import Iterable

HEADER_TIMESTAMP = "cursorq-timestamp"  #: milliseconds since 1970, as text

_MILLISECONDS = re.compile(rb"[0-9]{1,15}")

Headers = Iterable[tuple[str, bytes | None]]


def original_ms(headers: Headers, timestamp_ms: int | None) -> int | None:
    """Returns the timestamp that the producer gave the message; for a record that is not a copy, its own.

    A copy has a new timestamp, because brokers delete records by timestamp, however recently they were
    appended.

    >>> original_ms([("cursorq-timestamp", b"1000")], 5_000), original_ms([], 5_000)
    (1000, 5000)
    >>> original_ms([("cursorq-timestamp", b"yesterday")], 5_000), original_ms([], None)
    (5000, None)
    """
    for name, value in headers:
        if name == HEADER_TIMESTAMP and value and _MILLISECONDS.fullmatch(value):
            timestamp_ms = int(value)
    return timestamp_ms


def timestamp_header(at_ms: int | None) -> list[tuple[str, bytes | None]]:
    """Returns the header of a copy, or no header if the original timestamp is unknown.

    >>> timestamp_header(1_000), timestamp_header(None)
    ([('cursorq-timestamp', b'1000')], [])
    """
    return [] if at_ms is None else [(HEADER_TIMESTAMP, b"%d" % max(0, at_ms))]
