"""A slice: the messages of one partition that are delivered together, all for the same time."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from spark_cursor_source.core.offsets import OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyShare:
    """One of several equal shares of all keys; messages without a key are of one key.

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
    delivery_count: int  #: of this delivery: 1 the first time
    share: KeyShare | None = None  #: only the messages of these keys; the others are for other tasks
