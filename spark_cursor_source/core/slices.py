"""Slices: messages of one partition that are delivered together with the same delivery count."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from spark_cursor_source.core.offsets import OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShare:
    """One of several equal shares of all keys; messages without a key count as one key.

    >>> [KeyShare(index=index, of=2).takes(b"customer 7") for index in range(2)]
    [False, True]
    """

    index: int
    of: int

    def takes(self, key: bytes | None) -> bool:
        return crc32(key or b"") % self.of == self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Messages of one topic-partition with the same delivery count, as a task reads them.

    >>> Slice(topic="orders", partition=0, offsets=OffsetSet.of((3, 5)), delivery_count=1).delivery_count
    1
    """

    topic: str
    partition: int
    offsets: OffsetSet
    delivery_count: int  #: count of this delivery, 1 for the first
    share: KeyShare | None = None  #: keys that this task keeps, other tasks keep the rest; None: all keys
