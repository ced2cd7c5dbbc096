"""Columns of integers as bytes, each number in the width that the largest number needs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BASE_BYTES = 8

Column = npt.NDArray[np.int64]


def pack(column: Column) -> bytes:
    """Returns the smallest number, the difference of each number to it, and the width of a difference.

    >>> pack(np.array([1_000_000, 1_000_003])).hex(" ")
    '40 42 0f 00 00 00 00 00 00 03 01'
    >>> unpack(pack(np.array([1_000_000, 1_000_003]))).tolist()
    [1000000, 1000003]
    """
    if not len(column):
        return b""
    base = int(column.min())
    above = (column - base).astype(np.uint64)
    width = next(width for width in (1, 2, 4, 8) if int(above.max()) < 1 << 8 * width)
    base_bytes = base.to_bytes(_BASE_BYTES, "little", signed=True)
    return base_bytes + above.astype(f"<u{width}").tobytes() + bytes([width])


def unpack(data: bytes) -> Column:
    """Returns the numbers of a packed column.

    Raises:
        ValueError: the bytes are not a packed column.
    """
    if not data:
        return np.empty(0, np.int64)
    width, body = data[-1], data[_BASE_BYTES:-1]
    if width not in (1, 2, 4, 8) or not body or len(body) % width:
        raise ValueError(f"{len(data)} bytes are not a column of numbers")
    base = int.from_bytes(data[:_BASE_BYTES], "little", signed=True)
    return np.frombuffer(body, f"<u{width}").astype(np.int64) + base
