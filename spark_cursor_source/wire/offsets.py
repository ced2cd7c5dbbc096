"""Offset sets inside stored records: ranges if they are few, otherwise a Roaring bitmap.

A range takes a few bytes at any length, so the size of a cursor depends on its ack holes, not on its backlog.
"""

from __future__ import annotations

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidControlRecord

_RANGES, _ROARING = 0, 1
_MAX_RANGES = 512
_MAX_OFFSETS = 2**36  #: more are never outstanding, but a few corrupt bytes could name them


def encode_offsets(offsets: OffsetSet) -> bytes:
    """Returns the bytes of a set.

    >>> encode_offsets(OffsetSet.of((5, 10**9))).hex()
    '0005fa93ebdc03'
    """
    if offsets.count_ranges() > _MAX_RANGES:
        return bytes([_ROARING]) + offsets.to_roaring()
    data = bytearray([_RANGES])
    position = 0
    for start, stop in offsets.iter_ranges():
        _put_varint(data, start - position)
        _put_varint(data, stop - start - 1)
        position = stop
    return bytes(data)


def decode_offsets(data: bytes) -> OffsetSet:
    """Returns the set of such bytes.

    Raises:
        InvalidControlRecord: the bytes are not a set of offsets.
    """
    try:
        if data[0] == _ROARING:
            return OffsetSet.from_roaring(data[1:])
        if data[0] != _RANGES:
            raise ValueError(f"unknown form {data[0]}")
        ranges, position, at = [], 0, 1
        while at < len(data):
            gap, at = _get_varint(data, at)
            length, at = _get_varint(data, at)
            ranges.append((position + gap, position + gap + length + 1))
            position += gap + length + 1
        if sum(stop - start for start, stop in ranges) > _MAX_OFFSETS:
            raise ValueError("too many offsets")
        return OffsetSet.of(*ranges)
    except (IndexError, ValueError) as cause:
        raise InvalidControlRecord(f"{len(data)} bytes are not a set of offsets") from cause


def _put_varint(data: bytearray, number: int) -> None:
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def _get_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise ValueError("number too long")
    return number | data[at] << shift, at + 1
