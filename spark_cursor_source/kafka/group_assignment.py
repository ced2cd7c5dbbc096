"""Decoder of the partition assignment of a group member, in the format of Kafka's consumer protocol."""

from __future__ import annotations

import struct

from spark_cursor_source.errors import InvalidControlRecord

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


def decode_assignment(data: bytes) -> tuple[tuple[str, int], ...]:
    """Return the assigned partitions, sorted. Empty for a member without an assignment.

    >>> decode_assignment(bytes.fromhex("0000 00000001 0001 71 00000002 00000003 00000000 00000000"))
    (('q', 0), ('q', 3))
    >>> decode_assignment(b"")
    ()

    Raises:
        InvalidControlRecord: the bytes are not an assignment.
    """
    if not data:
        return ()
    found: list[tuple[str, int]] = []
    try:
        at = _SHORT.size  # skip the version, because later versions only append fields
        (topics,) = _INT.unpack_from(data, at)
        at += _INT.size
        for _ in range(topics):
            (length,) = _SHORT.unpack_from(data, at)
            at += _SHORT.size
            topic = data[at : at + length].decode()
            at += length
            (count,) = _INT.unpack_from(data, at)
            at += _INT.size
            found += [(topic, *_INT.unpack_from(data, at + _INT.size * n)) for n in range(count)]
            at += _INT.size * count
    except (struct.error, UnicodeDecodeError) as cause:
        raise InvalidControlRecord("no assignment of Kafka's consumer protocol") from cause
    return tuple(sorted(found))
