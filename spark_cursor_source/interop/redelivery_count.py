"""Redelivery count header of messages that were appended again."""

from __future__ import annotations

from collections.abc import Iterable

HEADER_REDELIVERY_COUNT = "cursorq-redelivery-count"  #: decimal text
KMQ_HEADER_REDELIVERY_COUNT = "kmq-redelivery-count"  #: kmq's header: one byte, or four for larger counts

_KMQ_MOST = 2**31 - 1


def redelivery_count(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Returns the redelivery count in these headers; 0 without a valid count.

    >>> redelivery_count([("cursorq-redelivery-count", b"2")]), redelivery_count([])
    (2, 0)
    >>> redelivery_count([("kmq-redelivery-count", bytes([3]))])
    3
    >>> redelivery_count([("cursorq-redelivery-count", b"9" * 5_000)])
    0
    """
    for name, value in headers:
        if name == HEADER_REDELIVERY_COUNT and value and value.isdigit() and len(value) < 10:
            return int(value)
        if name == KMQ_HEADER_REDELIVERY_COUNT and value and len(value) in (1, 4):
            return max(int.from_bytes(value, signed=True), 0)
    return 0


def encode_kmq_count(count: int) -> bytes:
    """Encodes a count like kmq. A count that four bytes cannot hold becomes the largest one.

    >>> encode_kmq_count(3), encode_kmq_count(200), encode_kmq_count(2**31)
    (b'\\x03', b'\\x00\\x00\\x00\\xc8', b'\\x7f\\xff\\xff\\xff')
    """
    return min(count, _KMQ_MOST).to_bytes(1 if count < 128 else 4, signed=True)
