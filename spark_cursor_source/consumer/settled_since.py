"""Messages that an earlier attempt of a task has settled, as its markers say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, EndUpTo, Leave, Reject, Release
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.errors import InvalidMarker, KafkaUnavailable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.wire import marker as wire

_OPEN_TRANSACTION_S = 0.005  # poll interval: most transactions end within a few milliseconds


class SettledSince:
    """Deliveries of a subscription that markers after given positions have settled.

    ``positions`` are offsets of the partitions of the markers topic. Each partition is read once, and later
    only what has been appended since.

    Raises:
        KafkaUnavailable, NotAuthorized, TopicNotFound
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, subscription: str, positions: Mapping[int, int]
    ) -> None:
        self._config, self._topic, self._subscription = dict(config), topic, subscription
        self._topics = ClusterAdmin(self._config, timeout_ms=PATIENCE_MS)
        self._next = dict(positions)
        self._ended: dict[Cell, OffsetSet] = {}
        self._given_back: dict[tuple[Cell, int], OffsetSet] = {}

    def read(self, cells: Iterable[Cell], *, until: Deadline | None = None) -> None:
        """Reads the markers of the cells up to the present end of their partitions.

        An open transaction hides the markers behind it. With ``until``, the call waits for transactions that
        are open now.

        Raises:
            KafkaUnavailable: a transaction is still open at the deadline.
        """
        places = [(self._topic, number) for number in sorted(self._homes(cells))]
        ends: Mapping[tuple[str, int], int] = self._topics.end_offsets(places, committed=True)
        if until is not None:
            ends = self._ends_without_transaction(places, ends, until)
        ranges = {
            number: (self._next[number], end) for (_, number), end in ends.items() if end > self._next[number]
        }
        if not ranges:
            return
        with closing(RangeReader(self._config, committed=True)) as reader:
            for record in reader.read(self._topic, ranges):
                self._add(record.key(), record.value())
        self._next |= {number: end for number, (_, end) in ranges.items()}

    def __call__(self, cell: Cell, delivery_count: int) -> OffsetSet:
        """Returns the settled offsets of a cell: all that have ended, and this delivery's given back ones."""
        given_back = self._given_back.get((cell, delivery_count), EMPTY)
        return self._ended.get(cell, EMPTY) | given_back

    def _ends_without_transaction(
        self, places: Sequence[tuple[str, int]], ends: Mapping[tuple[str, int], int], until: Deadline
    ) -> Mapping[tuple[str, int], int]:
        present = self._topics.end_offsets(places, committed=False)
        while any(ends[place] < present[place] for place in places):
            if until.over:
                raise KafkaUnavailable(
                    f"read markers topic '{self._topic}'", until.spent_ms, "a transaction is open"
                )
            until.pause(_OPEN_TRANSACTION_S)
            ends = self._topics.end_offsets(places, committed=True)
        return ends

    def _homes(self, cells: Iterable[Cell]) -> Collection[int]:
        """Returns the partitions of the markers topic that have the markers of the cells."""
        return {cell.control_partition(len(self._next)) for cell in cells}

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        try:
            marker = wire.decode(key, value)
        except InvalidMarker:
            return  # the tracker quarantines it
        match marker:
            case End(cell=cell, offsets=offsets):
                self._ended[cell] = self._ended.get(cell, EMPTY) | offsets
            case EndUpTo(cell=cell, position=position):
                self._ended[cell] = self._ended.get(cell, EMPTY) | OffsetSet.of((0, position))
            case (
                Release(cell=cell, offsets=offsets, delivery_count=count)
                | Reject(cell=cell, offsets=offsets, delivery_count=count)
                | Leave(cell=cell, offsets=offsets, delivery_count=count)
            ):
                self._given_back[cell, count] = self._given_back.get((cell, count), EMPTY) | offsets
