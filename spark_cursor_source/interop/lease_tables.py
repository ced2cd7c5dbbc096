"""Lease tables of a queue topic, read from the cursors topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.stats import ReappendTrouble
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.interop import lease_table_wire as wire
from spark_cursor_source.topics.cursors import CursorTable


class LeaseTables:
    """View of the lease tables in a :class:`CursorTable`. The caller refreshes the cursor table.

    With the number of markers ``partitions``, other records of the cursors topic cost nothing.
    """

    def __init__(
        self, tail: CursorTable, queue_topic: str, markers_topic: str, partitions: int | None = None
    ) -> None:
        self._tail = tail
        self._queue_topic = queue_topic
        self._markers_topic = markers_topic
        self._partitions = partitions
        # by markers partition: record value and its earliest deadline
        self._next_events: dict[int, tuple[bytes, int | None]] = {}

    def values(self) -> dict[int, bytes]:
        """Returns the record value of each markers partition that has one."""
        if self._partitions is None:
            records = _records(self._tail, self._markers_topic, self._queue_topic)
            return {cell.partition: value for cell, value in records}
        cells = [
            wire.table_cell(self._queue_topic, self._markers_topic, number)
            for number in range(self._partitions)
        ]
        return {cell.partition: value for cell in cells if (value := self._tail.value(cell.key))}

    def next_events(self) -> dict[int, int | None]:
        """Returns the earliest deadline of each table."""
        for partition, value in self.values().items():
            known = self._next_events.get(partition)
            if known is None or known[0] != value:
                self._next_events[partition] = (value, wire.decode(value).next_event_ms)
        return {partition: event_ms for partition, (_, event_ms) in self._next_events.items()}


def reappend_troubles(tail: CursorTable, markers_topic: str) -> tuple[ReappendTrouble, ...]:
    """Returns the last recorded reasons why messages of a markers topic could not be appended again."""
    counts: Counter[tuple[str, str]] = Counter()
    for cell, value in _records(tail, markers_topic):
        try:
            trouble, messages = wire.decode_trouble(value)
        except InvalidControlRecord:
            continue
        counts[cell.subscription, trouble] += messages
    return tuple(
        ReappendTrouble(topic=topic, messages=messages, trouble=trouble)
        for (topic, trouble), messages in sorted(counts.items())
        if messages
    )


def _records(
    tail: CursorTable, markers_topic: str, queue_topic: str | None = None
) -> Iterator[tuple[Cell, bytes]]:
    """Yields the cell and the value of each record of these topics."""
    for key in tail.record_keys():
        try:
            cell = Cell.from_key(key)
        except ValueError:
            continue  # a record of another program, or a part of a cursor
        wanted = cell.topic == markers_topic and queue_topic in (None, cell.subscription)
        if wanted and (value := tail.value(key)):
            yield cell, value
