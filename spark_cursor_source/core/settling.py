"""Settlements of messages, folded into the fewest markers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from spark_cursor_source.core.marker import End, KeepAlive, Leave, Reject, Release
from spark_cursor_source.core.offsets import EMPTY, OffsetSet

#: markers that settle messages, leave them or extend their leases
Settling = End | Release | Reject | Leave | KeepAlive

_Offsets = TypeVar("_Offsets")


class SettlingFold(Generic[_Offsets]):
    """Settlements of rows or of single calls. Those that differ only in their offsets share a marker.

    ``union`` makes one set of the added offsets.

    >>> from spark_cursor_source.core.cell import Cell
    >>> cell, fold = Cell(subscription="s", topic="t", partition=0), SettlingFold(OffsetSet.from_offsets)
    >>> for offset in (7, 3, 4):
    ...     fold.add(End(cell=cell, offsets=EMPTY), offset)
    >>> [marker.offsets.ranges for marker in fold.markers()]
    [((3, 5), (7, 8))]
    """

    def __init__(self, union: Callable[[Sequence[_Offsets]], OffsetSet]) -> None:
        self._union = union
        self._offsets: dict[Settling, list[_Offsets]] = {}

    def add(self, settling: Settling, offsets: _Offsets) -> None:
        """Adds offsets that are settled as ``settling`` says. Its own offsets do not count."""
        self._offsets.setdefault(replace(settling, offsets=EMPTY), []).append(offsets)

    def markers(self) -> Iterator[Settling]:
        """Yields one marker for each kind, cell and detail, in the order in which they were first added."""
        for settling, offsets in self._offsets.items():
            yield replace(settling, offsets=self._union(offsets))

    def clear(self) -> None:
        """Removes everything."""
        self._offsets.clear()
