"""Stateful processor of the tracker: keeps the state of each markers partition in Spark's state store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState

from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.tracker.partition_state import PartitionState
from spark_cursor_source.tracker.rows import FoldedRow

_NEVER = -1  #: event time of a cell without a timed event, in states of earlier versions


class TrackerProcessor(StatefulProcessor):
    """Tracker of one markers partition per state key.

    The state has each cell (as a cursor) and, separately, the time of its next event. A tick therefore loads
    only the cells with a due event.
    """

    def __init__(self, policy_for: Callable[[str], RedeliveryPolicy]) -> None:
        self._policy_for = policy_for
        self._state: PartitionState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = PartitionState(self._policy_for, _Cells(handle), _Table(handle))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (partition,) = key
        folded = (
            FoldedRow(row.markers_partition, row.sequence, row.at_ms, row.kind, bytes(row.body))
            for row in rows
        )
        for decided in self._state.advance(partition, folded):
            yield Row(**decided._asdict())

    def close(self) -> None:
        pass


class _Cells:
    """Cursors of the cells, in the map states ``cells`` and ``events``.

    Only cells with a timed event are in ``events``, so a search for due cells costs nothing for idle ones.
    """

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._cells = handle.getMapState("cells", "cell BINARY", "cursor BINARY")
        self._events = handle.getMapState("events", "cell BINARY", "next_event_ms BIGINT")

    def get(self, cell_key: bytes) -> bytes | None:
        if not self._cells.containsKey((cell_key,)):
            return None
        stored: Any = self._cells.getValue((cell_key,))
        return bytes(stored[0])

    def put(self, cell_key: bytes, cursor: bytes, next_event_ms: int | None) -> None:
        self._cells.updateValue((cell_key,), (cursor,))
        if next_event_ms is None:
            self._events.removeKey((cell_key,))
        else:
            self._events.updateValue((cell_key,), (next_event_ms,))

    def remove(self, cell_key: bytes) -> None:
        self._cells.removeKey((cell_key,))
        self._events.removeKey((cell_key,))

    def cell_keys(self, *, due_ms: int | None = None) -> list[bytes]:
        if due_ms is None:
            return [bytes(cell_key) for (cell_key,), _ in self._cells.iterator()]
        return [
            bytes(cell_key)
            for (cell_key,), (event_ms,) in self._events.iterator()
            if event_ms != _NEVER and event_ms < due_ms
        ]

    def clear(self) -> None:
        self._cells.clear()
        self._events.clear()


class _Table:
    """Lease table of V1 queues, in two value states."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._table = handle.getValueState("lease_table", "table BINARY")
        self._next = handle.getValueState("next_lease_over", "at_ms BIGINT")

    def get(self) -> bytes | None:
        stored = _value_of(self._table)
        return None if stored is None else bytes(stored[0])

    def next_event_ms(self) -> int | None:
        stored = _value_of(self._next)
        return None if stored is None else int(stored[0])

    def put(self, table: bytes, next_event_ms: int | None) -> None:
        self._table.update((table,))
        if next_event_ms is None:
            self._next.clear()
        else:
            self._next.update((next_event_ms,))

    def clear(self) -> None:
        self._table.clear()
        self._next.clear()


def _value_of(state: ValueState) -> tuple[Any, ...] | None:
    """Returns the value or None. Checks for existence first, because Spark warns about a missing value."""
    return state.get() if state.exists() else None
