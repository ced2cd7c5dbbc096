"""State of a markers partition in memory, for the tracker without Spark."""

from __future__ import annotations

from spark_cursor_source.core.event_times import EventTimes


class CellsInMemory:
    """Encoded cursors of the cells, with the time of their next events."""

    def __init__(self) -> None:
        self._cursors: dict[bytes, bytes] = {}
        self._events = EventTimes[bytes]()

    def __len__(self) -> int:
        return len(self._cursors)

    def next_event_ms(self) -> int | None:
        """Returns the time of the earliest event."""
        return self._events.earliest

    def get(self, cell_key: bytes) -> bytes | None:
        return self._cursors.get(cell_key)

    def put(self, cell_key: bytes, cursor: bytes, next_event_ms: int | None) -> None:
        self._cursors[cell_key] = cursor
        self._events.set(cell_key, next_event_ms)

    def remove(self, cell_key: bytes) -> None:
        self._cursors.pop(cell_key, None)
        self._events.set(cell_key, None)

    def cell_keys(self, *, due_ms: int | None = None) -> list[bytes]:
        if due_ms is None:
            return list(self._cursors)
        return self._events.before(due_ms)

    def clear(self) -> None:
        self._cursors.clear()
        self._events.clear()


class TableInMemory:
    """Encoded lease table of V1 queues, with its next deadline."""

    def __init__(self) -> None:
        self._table: bytes | None = None
        self._next_ms: int | None = None

    def get(self) -> bytes | None:
        return self._table

    def next_event_ms(self) -> int | None:
        return self._next_ms

    def put(self, table: bytes, next_event_ms: int | None) -> None:
        self._table, self._next_ms = table, next_event_ms

    def clear(self) -> None:
        self._table = self._next_ms = None
