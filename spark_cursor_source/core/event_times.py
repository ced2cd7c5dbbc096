"""Times of future events by key, with the earliest at hand."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key")
_SLACK = 64  # replaced entries in the heap that are always tolerated


class EventTimes(Generic[Key]):
    """At most one time for each key. A key without an event takes no memory and no time.

    A change costs the logarithm of the number of events, and a search costs the events that it finds.

    >>> times = EventTimes[str]()
    >>> for key, at_ms in {"a": 30, "b": 10, "c": 20}.items():
    ...     times.set(key, at_ms)
    >>> times.set("b", None)
    >>> times.earliest, times.before(30), len(times)
    (20, ['c'], 2)
    """

    __slots__ = ("_heap", "_order", "_times")

    def __init__(self) -> None:
        self._times: dict[Key, tuple[int, int]] = {}
        # Changes leave replaced entries here. The second number is unique, so keys are never compared.
        self._heap: list[tuple[int, int, Key]] = []
        self._order = 0

    def __len__(self) -> int:
        """Number of keys with an event."""
        return len(self._times)

    def __contains__(self, key: Key) -> bool:
        return key in self._times

    def __iter__(self) -> Iterator[Key]:
        return iter(self._times)

    def get(self, key: Key) -> int | None:
        """Returns the time of a key's event; None without one."""
        found = self._times.get(key)
        return None if found is None else found[0]

    @property
    def earliest(self) -> int | None:
        """Time of the earliest event; None without an event."""
        while self._heap and not self._is_current(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def set(self, key: Key, at_ms: int | None) -> None:
        """Sets the time of a key's event. None removes the event."""
        if at_ms is None:
            self._times.pop(key, None)
            return
        known = self._times.get(key)
        if known is not None and known[0] == at_ms:
            return
        self._order += 1
        self._times[key] = (at_ms, self._order)
        heappush(self._heap, (at_ms, self._order, key))
        if len(self._heap) > 2 * len(self._times) + _SLACK:
            self._heap = [(at_ms, order, key) for key, (at_ms, order) in self._times.items()]
            heapify(self._heap)

    def before(self, limit_ms: int) -> list[Key]:
        """Returns the keys whose events are before ``limit_ms``, the earliest first. The events stay."""
        found = []
        while (earliest := self.earliest) is not None and earliest < limit_ms:
            found.append(heappop(self._heap))
        for entry in found:
            heappush(self._heap, entry)
        return [key for _, _, key in found]

    def clear(self) -> None:
        """Removes all events."""
        self._times.clear()
        self._heap.clear()

    def _is_current(self, entry: tuple[int, int, Key]) -> bool:
        at_ms, order, key = entry
        return self._times.get(key) == (at_ms, order)
