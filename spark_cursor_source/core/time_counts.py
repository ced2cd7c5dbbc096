"""Counts of events over time, in a limited number of spans of equal width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
#: widths of spans: from a second to four weeks, each a multiple of the one before
_WIDTHS_S = (1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_419_200)


class TimeCounts(Generic[_Key]):
    """Counts by key and span of time. The spans widen as the times spread, so that few are enough.

    >>> counts = TimeCounts[str](most=3)
    >>> for at_ms in (500, 1_500, 2_700):
    ...     counts.add("a", at_ms)
    >>> counts.width_ms, counts.of("a")
    (1000, ((0, 1), (1000, 1), (2000, 1)))
    >>> counts.add("b", 25_000)
    >>> counts.width_ms, counts.of("a"), counts.of("b")
    (10000, ((0, 3),), ((20000, 1),))
    """

    def __init__(self, *, most: int = 60) -> None:
        """``most`` is the largest number of spans from the first event to the last one."""
        self._most = most
        self._widths = _widths_ms()
        self.width_ms = next(self._widths)  #: width of a span
        self._counts: dict[_Key, Counter[int]] = {}
        self._first: int | None = None
        self._last = 0

    def add(self, key: _Key, at_ms: int) -> None:
        """Counts an event."""
        at = at_ms // self.width_ms
        first, last = (at, at) if self._first is None else (self._first, self._last)
        self._first, self._last = min(first, at), max(last, at)
        self._counts.setdefault(key, Counter())[at] += 1
        while self._last - self._first >= self._most:
            self._widen()

    def of(self, key: _Key) -> tuple[tuple[int, int], ...]:
        """Returns the spans with events of a key: start in ms, and count."""
        counts = self._counts.get(key, Counter())
        return tuple((at * self.width_ms, count) for at, count in sorted(counts.items()))

    def _widen(self) -> None:
        before = self.width_ms
        self.width_ms = next(self._widths)
        factor = self.width_ms // before
        for key, counts in self._counts.items():
            wider: Counter[int] = Counter()
            for at, count in counts.items():
                wider[at // factor] += count
            self._counts[key] = wider
        self._first, self._last = (self._first or 0) // factor, self._last // factor


def _widths_ms() -> Iterator[int]:
    width = 0
    for seconds in _WIDTHS_S:
        width = seconds * 1_000
        yield width
    while True:
        width *= 2
        yield width
