"""Offsets of one topic-partition and immutable sets of them.

A set of a million offsets in random order costs about a megabyte and a contiguous one a few bytes, because
the elements live in a 64-bit Roaring bitmap. Ranges are half-open and a position names the *next* offset,
as everywhere in Kafka.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, NewType

from pyroaring import BitMap64

Offset = NewType("Offset", int)  #: of a record in a queue topic
MarkerOffset = NewType("MarkerOffset", int)  #: of a record in the markers topic

OFFSET_LIMIT = 2**63  #: Kafka offsets are signed 64-bit

# Up to this many elements an array of all of them is cheaper than a search for each run's end.
_ARRAY_RUNS_LIMIT = 20_000_000


class OffsetSet:
    """An immutable set of offsets, each in ``[0, 2**63)``.

    >>> OffsetSet.of((3, 5), (5, 9)).ranges
    ((3, 9),)
    >>> (OffsetSet.of((0, 10)) - OffsetSet.of((4, 6))).ranges
    ((0, 4), (6, 10))
    >>> len(OffsetSet.of((0, 10**9)))
    1000000000
    """

    __slots__ = ("_bits",)

    def __init__(self, bits: BitMap64) -> None:
        """Take over ``bits``, which nobody changes any more. Use :meth:`of` or :meth:`from_offsets`."""
        self._bits = bits

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> OffsetSet:
        """The union of half-open ranges ``(start, stop)``; an empty range adds nothing.

        Raises:
            ValueError: a bound is negative or above 2**63.
        """
        bits = BitMap64()
        for start, stop in ranges:
            if start < 0 or stop > OFFSET_LIMIT:
                raise ValueError(f"offset range [{start}, {stop}) is outside [0, 2**63)")
            if start < stop:
                bits.add_range(start, stop)
        return cls(bits)

    @classmethod
    def from_offsets(cls, offsets: Iterable[int]) -> OffsetSet:
        """The set of the given offsets, in any order, repeated or not (a numpy uint64 array is fastest).

        >>> OffsetSet.from_offsets([7, 3, 4, 7]).ranges
        ((3, 5), (7, 8))
        """
        return cls._checked(BitMap64(offsets))

    @classmethod
    def _checked(cls, bits: BitMap64) -> OffsetSet:
        if bits and bits.max() >= OFFSET_LIMIT:
            raise ValueError(f"offset {bits.max()} is outside [0, 2**63)")
        return cls(bits)

    @classmethod
    def from_roaring(cls, data: bytes) -> OffsetSet:
        """Read the portable 64-bit Roaring serialization, strictly.

        Raises:
            ValueError: the bytes are not the one serialization of a set of valid offsets: empty, cut short,
                followed by more, or inconsistent.
        """
        try:
            bits = BitMap64.deserialize(data)
        except (IndexError, ValueError) as cause:
            raise ValueError(f"{len(data)} bytes are not a 64-bit Roaring bitmap") from cause
        # The library reads a prefix and believes counts it finds there: what it cannot write back the same
        # way, in the same number of bytes, was not written by a Roaring library.
        same_size = len(bits.serialize()) == len(data)
        if not same_size or bits != BitMap64(bits):
            raise ValueError(f"{len(data)} bytes are not exactly one 64-bit Roaring bitmap")
        return cls._checked(bits)

    def to_roaring(self) -> bytes:
        """The portable 64-bit Roaring serialization, runs compressed."""
        bits = self._bits.copy()
        bits.run_optimize()
        return bytes(bits.serialize())

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The set as sorted, disjoint, non-adjacent half-open ranges."""
        return tuple(self.iter_ranges())

    def iter_ranges(self) -> Iterator[tuple[int, int]]:
        """The ranges one by one, in order, without building them all first."""
        if len(self._bits) > _ARRAY_RUNS_LIMIT:
            yield from self._search_ranges()
            return
        yield from _runs(self._bits.to_array())

    def _search_ranges(self) -> Iterator[tuple[int, int]]:
        last: int = self._bits.max()
        start: int = self._bits.min()
        while True:
            stop = self._run_end(start, last + 1)
            yield start, stop
            if stop > last:
                return
            start = self._bits.next_set_bit(stop)

    def _run_end(self, start: int, limit: int) -> int:
        """The end of the run at ``start``: doubling steps, then bisection."""
        step = 1
        while start + step < limit and self._bits.contains_range(start, start + step + 1):
            step *= 2
        low, high = start + step // 2 + 1 if step > 1 else start + 1, min(start + step + 1, limit)
        while low < high:
            middle = (low + high + 1) // 2
            if self._bits.contains_range(start, middle):
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def first(self) -> int | None:
        """The smallest offset, or None of an empty set."""
        return int(self._bits.min()) if self._bits else None

    @property
    def last(self) -> int | None:
        """The largest offset, or None of an empty set."""
        return int(self._bits.max()) if self._bits else None

    def below(self, position: int) -> OffsetSet:
        """The offsets smaller than ``position``."""
        bits = self._bits.copy()
        bits.remove_range(max(position, 0), OFFSET_LIMIT)
        return OffsetSet(bits)

    def starting_at(self, position: int) -> OffsetSet:
        """The offsets equal to or larger than ``position``."""
        if position <= 0:
            return self
        bits = self._bits.copy()
        bits.remove_range(0, position)
        return OffsetSet(bits)

    def chunks(self, most: int) -> Iterator[OffsetSet]:
        """Disjoint pieces in ascending order that together are the set, each of at most ``most`` offsets.

        >>> [piece.ranges for piece in OffsetSet.of((0, 5)).chunks(2)]
        [((0, 2),), ((2, 4),), ((4, 5),)]
        """
        rest = self
        while len(rest) > most:
            boundary = int(rest._bits[most])
            yield rest.below(boundary)
            rest = rest.starting_at(boundary)
        if rest:
            yield rest

    def to_array(self) -> array[int]:
        """All offsets in ascending order as an ``array('Q')``: 8 bytes each, readable as a buffer."""
        values: array[int] = self._bits.to_array()
        return values

    @staticmethod
    def union(sets: Iterable[OffsetSet]) -> OffsetSet:
        """The union of any number of sets.

        >>> OffsetSet.union([]).ranges
        ()
        """
        bits = BitMap64()
        for one in sets:
            bits |= one._bits
        return OffsetSet(bits)

    def isdisjoint(self, other: OffsetSet) -> bool:
        """Whether no offset is in both sets."""
        return bool(self._bits.isdisjoint(other._bits))

    def __or__(self, other: OffsetSet) -> OffsetSet:
        return OffsetSet(self._bits | other._bits)

    def __and__(self, other: OffsetSet) -> OffsetSet:
        return OffsetSet(self._bits & other._bits)

    def __sub__(self, other: OffsetSet) -> OffsetSet:
        return OffsetSet(self._bits - other._bits)

    def __contains__(self, offset: int) -> bool:
        return offset >= 0 and offset in self._bits

    def __iter__(self) -> Iterator[int]:
        return iter(self._bits)

    def __len__(self) -> int:
        return len(self._bits)

    def __bool__(self) -> bool:
        return bool(self._bits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and bool(self._bits == other._bits)

    def __hash__(self) -> int:
        return hash((len(self._bits), self.first, self.last))

    def __reduce__(self) -> tuple[Any, ...]:
        return OffsetSet.from_roaring, (self.to_roaring(),)

    def __repr__(self) -> str:
        if len(self) > 1000:
            return f"OffsetSet({len(self)} offsets in [{self.first}, {self.last}])"
        return f"OffsetSet.of{self.ranges}"


EMPTY = OffsetSet(BitMap64())  #: the set of no offsets


def _runs(offsets: array[int]) -> Iterator[tuple[int, int]]:
    if not offsets:
        return
    start = previous = offsets[0]
    for offset in offsets[1:]:
        if offset != previous + 1:
            yield start, previous + 1
            start = offset
        previous = offset
    yield start, previous + 1


def isqrt_ceil(number: int) -> int:
    """The smallest integer whose square is at least ``number``.

    >>> [isqrt_ceil(n) for n in (1, 2, 4, 5, 10_000)]
    [1, 2, 2, 3, 100]
    """
    root = math.isqrt(number)
    return root if root * root == number else root + 1
