"""Messages that an earlier attempt of a task has acked, as its V1 markers say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from spark_cursor_source.consumer.settled_since import SettledSince
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Marker
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.wire.marker import MarkerType, MarkerV1


class SettledSinceV1(SettledSince):
    """Acks of V1 markers. A release is unknown: its marker is that of an extended lease.

    A V1 queue has one topic, and its markers name only the partition.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        subscription: str,
        positions: Mapping[int, int],
        topic_ids: Mapping[str, str],
    ) -> None:
        super().__init__(config, topic, subscription, positions, topic_ids)
        self._acked: dict[int, set[int]] = {}

    def __call__(self, cell: Cell, delivery_count: int) -> OffsetSet:
        return OffsetSet.from_offsets(sorted(self._acked_in(cell.partition)))

    def _homes(self, cells: Iterable[Cell]) -> Collection[int]:
        return range(self._partitions)  # a queue id decides on the partition, and cells have none

    def _add(self, marker: Marker | MarkerV1) -> None:
        if isinstance(marker, MarkerV1) and marker.type == MarkerType.END:
            self._acked_in(marker.partition).add(marker.offset)

    def _acked_in(self, partition: int) -> set[int]:
        return self._acked.setdefault(partition, set())
