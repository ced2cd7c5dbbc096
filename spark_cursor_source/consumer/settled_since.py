"""Messages that an earlier attempt of a task has settled, as its markers say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Any

from spark_cursor_source.consumer.marker_follower import MarkerFollower
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import (
    Block,
    End,
    EndUpTo,
    Leave,
    Marker,
    Reject,
    Release,
    is_of_another_topic,
)
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.wire.marker import MarkerV1


class SettledSince:
    """Deliveries of a subscription that markers after given positions have settled.

    ``positions`` are offsets of the partitions of the markers topic. Each partition is read once, and later
    only what has been appended since. ``topic_ids`` are the ids of the queue topics by name, if known: late
    markers of deleted topics of these names are skipped.

    Raises:
        KafkaUnavailable, NotAuthorized, TopicNotFound
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        subscription: str,
        positions: Mapping[int, int],
        topic_ids: Mapping[str, str],
    ) -> None:
        self._subscription, self._partitions = subscription, len(positions)
        self._topic_ids = topic_ids
        self._markers = MarkerFollower(config, topic, positions)
        self._ended: dict[Cell, OffsetSet] = {}
        self._given_back: dict[tuple[Cell, int], OffsetSet] = {}
        self._rejected: dict[tuple[Cell, int], OffsetSet] = {}

    def read(self, cells: Iterable[Cell], *, until: Deadline | None = None) -> None:
        """Reads the markers of the cells up to the present end of their partitions.

        An open transaction hides the markers behind it. With ``until``, the call waits for transactions that
        are open now.

        Raises:
            KafkaUnavailable: a transaction is still open at the deadline.
        """
        with closing(self._markers):
            for marker, _ in self._markers.read(self._homes(cells), until=until):
                self._add(marker)

    def __call__(self, cell: Cell, delivery_count: int) -> OffsetSet:
        """Returns the settled offsets of a cell: all that have ended, and this delivery's given back ones."""
        rejected = self._rejected.get((cell, delivery_count), EMPTY)
        return self._ended.get(cell, EMPTY) | rejected | self.given_back(cell, delivery_count)

    def given_back(self, cell: Cell, delivery_count: int) -> OffsetSet:
        """Returns the offsets of a delivery that were released, left or blocked."""
        return self._given_back.get((cell, delivery_count), EMPTY)

    def _homes(self, cells: Iterable[Cell]) -> Collection[int]:
        """Returns the partitions of the markers topic that have the markers of the cells."""
        return {cell.control_partition(self._partitions) for cell in cells}

    def _add(self, marker: Marker | MarkerV1) -> None:
        if isinstance(marker, MarkerV1):
            return
        if is_of_another_topic(marker, self._topic_ids.get(marker.cell.topic)):
            return
        match marker:
            case End(cell=cell, offsets=offsets):
                self._ended[cell] = self._ended.get(cell, EMPTY) | offsets
            case EndUpTo(cell=cell, position=position):
                self._ended[cell] = self._ended.get(cell, EMPTY) | OffsetSet.of((0, position))
            case Reject(cell=cell, offsets=offsets, delivery_count=count):
                self._rejected[cell, count] = self._rejected.get((cell, count), EMPTY) | offsets
            case (
                Release(cell=cell, offsets=offsets, delivery_count=count)
                | Leave(cell=cell, offsets=offsets, delivery_count=count)
                | Block(cell=cell, offsets=offsets, delivery_count=count)
            ):
                self._given_back[cell, count] = self._given_back.get((cell, count), EMPTY) | offsets
