"""The header of a copy that says which timestamp the message had."""

from __future__ import annotations

import re
from collections.abc import Iterable

HEADER_TIMESTAMP = "cursorq-timestamp"  #: milliseconds since 1970, as text

_MILLISECONDS = re.compile(rb"[0-9]{1,15}")

Headers = Iterable[tuple[str, bytes | None]]


def original_ms(headers: Headers, timestamp_ms: int | None) -> int | None:
    """The timestamp of the message as its producer wrote it; the record's own, where the record is no copy.

    A copy has a new timestamp: the brokers remove a record by its timestamp, however lately it was appended.

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
    """The header of a copy; none where it is not known which timestamp the message had.

    >>> timestamp_header(1_000), timestamp_header(None)
    ([('cursorq-timestamp', b'1000')], [])
    """
    return [] if at_ms is None else [(HEADER_TIMESTAMP, b"%d" % max(0, at_ms))]
