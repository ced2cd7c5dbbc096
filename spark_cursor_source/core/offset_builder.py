"""Builder of an offset set from many ranges, with the memory of the set alone."""

from __future__ import annotations

from collections.abc import Iterable

from spark_cursor_source.core.offsets import EMPTY, OffsetSet

_FOLD_AT = 50_000


class OffsetSetBuilder:
    """Set that grows by half-open ranges; a range takes about 100 bytes until it is folded into the set.

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
        """Returns the set of all added offsets."""
        if self._runs:
            self._folded |= OffsetSet.of(*self._runs)
            self._runs = []
        return self._folded
