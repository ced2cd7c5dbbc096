"""Tracker state of V1 queues: the lease table of one markers partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, ValueState

from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop.lease_table import LeaseTable, MessageMarkers

MOST_DUE = 20_000  #: maximum messages of a partition that a batch appends again; the rest wait for the next


class MessageLeases:
    """A lease table and its next deadline. A tick before that deadline does not load the table."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._table: ValueState = handle.getValueState("lease_table", "table BINARY")
        self._next: ValueState = handle.getValueState("next_lease_over", "at_ms BIGINT")

    def step(
        self,
        markers: Sequence[MessageMarkers],
        resumed: LeaseTable | None,
        now_ms: int | None,
        *,
        anyway: bool = False,
    ) -> tuple[LeaseTable, bytes] | None:
        """Applies a batch of markers. Returns the expired leases to append again, and the encoded table.

        Returns None if nothing changed, unless ``anyway`` is set and a table exists. ``resumed`` replaces the
        stored table. Leases expire only if ``now_ms`` is given.
        """
        wanted = anyway and self._table.exists()
        if not wanted and not markers and resumed is None and not self._is_due(now_ms):
            return None
        table = LeaseTable.resume(resumed if resumed is not None else self._load())
        if markers:
            table = table.apply(MessageMarkers.concatenated(markers))
        due, table = table.expire(-1 if now_ms is None else now_ms, most=MOST_DUE)
        stored = table_wire.encode(table)
        self._table.update((stored,))
        if (next_ms := table.next_event_ms) is None:
            self._next.clear()
        else:
            self._next.update((next_ms,))
        return due, stored

    def clear(self) -> None:
        """Clears the table and its deadline."""
        self._table.clear()
        self._next.clear()

    def _load(self) -> LeaseTable | None:
        stored = _value_of(self._table)
        return None if stored is None else table_wire.decode(bytes(stored[0]))

    def _is_due(self, now_ms: int | None) -> bool:
        next_over = _value_of(self._next)
        return now_ms is not None and next_over is not None and next_over[0] < now_ms


def _value_of(state: ValueState) -> tuple[Any, ...] | None:
    """Returns the value or None. Checks for existence first, because Spark warns about a missing value."""
    return state.get() if state.exists() else None
