"""Offsets that come in many runs, kept in the memory that their set needs."""

from __future__ import annotations

from collections.abc import Iterable

from spark_cursor_source.core.offsets import EMPTY, OffsetSet

_FOLD_AT = 50_000


class OffsetSetBuilder:
    """A set that grows by half-open runs; a run is a tuple of a hundred bytes only until it is folded.

    >>> gathered = OffsetSetBuilder()
    >>> gathered.add([(0, 2), (5, 7)])
    >>> gathered.add([(2, 3)])
    >>> gathered.whole().ranges
    ((0, 3), (5, 7))
    """

    def __init__(self) -> None:
        self._folded = EMPTY
        self._runs: list[tuple[int, int]] = []

    def add(self, runs: Iterable[tuple[int, int]]) -> None:
        self._runs.extend(runs)
        if len(self._runs) >= _FOLD_AT:
            self.whole()

    def whole(self) -> OffsetSet:
        """All that was added."""
        if self._runs:
            self._folded |= OffsetSet.of(*self._runs)
            self._runs = []
        return self._folded
