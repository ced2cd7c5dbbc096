"""Lease tables of a queue topic, read from the cursors topic."""

from __future__ import annotations

from collections import Counter

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.stats import ReappendTrouble
from spark_cursor_source.core.subscription_type import tracker_group
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion, LeaseTableUnreadable
from spark_cursor_source.interop import lease_table_wire as wire
from spark_cursor_source.topics.cursors import CursorTable, cell_of_key


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
        self._known: dict[int, tuple[bytes, int | None]] = {}

    def values(self) -> dict[int, bytes]:
        """Returns the record value of each markers partition that has one.

        Raises:
            LeaseTableUnreadable, LaterCursorVersion: a table cannot be read.
        """
        return {number: value for number, (value, _) in self._tables().items()}

    def next_events(self) -> dict[int, int | None]:
        """Returns the earliest deadline of each table. Raises the errors of :meth:`values`."""
        return {number: event_ms for number, (_, event_ms) in self._tables().items()}

    def _tables(self) -> dict[int, tuple[bytes, int | None]]:
        """Returns value and earliest deadline of each table."""
        if self._partitions is None:
            cells = _table_cells(self._tail, self._markers_topic, self._queue_topic)
        else:
            cells = [
                wire.table_cell(self._queue_topic, self._markers_topic, number)
                for number in range(self._partitions)
            ]
        found = {}
        for cell in cells:
            try:
                if value := self._tail.value(cell.key):
                    known = self._known.get(cell.partition)
                    if known is None or known[0] != value:
                        known = value, wire.decode(value).next_event_ms
                    found[cell.partition] = known
            except LaterCursorVersion:
                raise
            except InvalidControlRecord as why:
                raise LeaseTableUnreadable(
                    self._tail.topic,
                    cell.key.decode(),
                    self._markers_topic,
                    cell.partition,
                    tracker_group(self._markers_topic),
                    str(why),
                ) from why
        self._known = found
        return found


def reappend_troubles(tail: CursorTable, markers_topic: str) -> tuple[ReappendTrouble, ...]:
    """Returns the last recorded reasons why messages of a markers topic could not be appended again."""
    counts: Counter[tuple[str, str]] = Counter()
    for cell in _table_cells(tail, markers_topic):
        try:
            if value := tail.value(cell.key):
                trouble, messages = wire.decode_trouble(value)
                counts[cell.subscription, trouble] += messages
        except InvalidControlRecord:
            continue
    return tuple(
        ReappendTrouble(topic=topic, messages=messages, trouble=trouble)
        for (topic, trouble), messages in sorted(counts.items())
        if messages
    )


def _table_cells(tail: CursorTable, markers_topic: str, queue_topic: str | None = None) -> list[Cell]:
    """Returns the cells of the tables of these topics that have records."""
    cells = [cell for key in tail.record_keys() if (cell := cell_of_key(key)) is not None]
    return [one for one in cells if one.topic == markers_topic and queue_topic in (None, one.subscription)]
