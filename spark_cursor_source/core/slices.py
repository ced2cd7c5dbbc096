"""A slice: the messages of one partition that are delivered together, all for the same time."""

from __future__ import annotations

from dataclasses import dataclass

from spark_cursor_source.core.offsets import OffsetSet


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
