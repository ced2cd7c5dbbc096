"""The header that says how often a message was appended again, in place of a delivery count."""

from __future__ import annotations

from collections.abc import Iterable

from spark_cursor_source.wire.marker import MAX_DELIVERY_COUNT

HEADER = "cursorq-redelivery-count"


def delivery_count(headers: Iterable[tuple[str, str | bytes | None]] | None) -> int:
    """Which delivery of its message a record is: one more than the header says, 1 without one.

    >>> delivery_count([(HEADER, b"2")]), delivery_count(None), delivery_count([(HEADER, b"two")])
    (3, 1, 1)
    """
    for name, value in headers or ():
        if name == HEADER and value is not None and value.isdigit() and len(value) <= 9:
            return min(int(value) + 1, MAX_DELIVERY_COUNT)
    return 1
