"""Lease tables of a queue topic, read from the cursors topic."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.stats import ReappendTrouble
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.interop import lease_table_wire as wire
from spark_cursor_source.topics.cursors import CursorTable


class LeaseTables:
    """View of the lease tables in a :class:`CursorTable`. The caller refreshes the cursor table."""

    def __init__(self, tail: CursorTable, queue_topic: str, markers_topic: str) -> None:
        self._tail = tail
        self._queue_topic = queue_topic
        self._markers_topic = markers_topic
        # by markers partition: record value and its earliest deadline
        self._next_events: dict[int, tuple[bytes, int | None]] = {}

    def values(self) -> dict[int, bytes]:
        """Returns the record value of each markers partition that has one."""
        prefix = wire.table_cell(self._queue_topic, self._markers_topic, 0).key[:-1]
        found: dict[int, bytes] = {}
        for key in self._tail.record_keys():
            number = key.removeprefix(prefix)
            if key.startswith(prefix) and number.isdigit() and (value := self._tail.value(key)):
                found[int(number)] = value
        return found

    def next_events(self) -> dict[int, int | None]:
        """Returns the earliest deadline of each table."""
        for partition, value in self.values().items():
            known = self._next_events.get(partition)
            if known is None or known[0] != value:
                self._next_events[partition] = (value, wire.decode(value).next_event_ms)
        return {partition: event_ms for partition, (_, event_ms) in self._next_events.items()}


def reappend_troubles(tail: CursorTable, markers_topic: str) -> tuple[ReappendTrouble, ...]:
    """Returns the last recorded reasons why messages of a markers topic could not be appended again."""
    found: dict[tuple[str, str], int] = {}
    for key in tail.record_keys():
        try:
            cell = Cell.from_key(key)
        except ValueError:
            continue  # a record of another program, or a part of a cursor
        value = tail.value(key) if cell.topic == markers_topic else None
        try:
            trouble, messages = ("", 0) if value is None else wire.decode_trouble(value)
        except InvalidControlRecord:
            continue
        if messages:
            place = cell.subscription, trouble
            found[place] = found.get(place, 0) + messages
    return tuple(
        ReappendTrouble(topic=topic, messages=messages, trouble=trouble)
        for (topic, trouble), messages in sorted(found.items())
    )
