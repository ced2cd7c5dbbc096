"""Offsets of one topic-partition and immutable sets of them.

A set of a million offsets in random order takes about 1 MB, and a contiguous set a few bytes, because a
64-bit Roaring bitmap stores the offsets. Ranges are half-open. A position is the *next* offset, as everywhere
in Kafka.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NewType

from pyroaring import BitMap64

Offset = NewType("Offset", int)  #: offset of a record in a queue topic
MarkerOffset = NewType("MarkerOffset", int)  #: offset of a record in the markers topic

OFFSET_LIMIT = 2**63 - 1  #: offsets are below this, so that the next position is a signed 64-bit number too
MAX_RANGE = 2**40  #: a longer range, which no log has, would take gigabytes


class OffsetSet:
    """An immutable set of offsets, each in ``[0, OFFSET_LIMIT)``.

    >>> OffsetSet.of((3, 5), (5, 9)).ranges
    ((3, 9),)
    >>> (OffsetSet.of((0, 10)) - OffsetSet.of((4, 6))).ranges
    ((0, 4), (6, 10))
    >>> len(OffsetSet.of((0, 10**9)))
    1000000000
    """

    __slots__ = ("_bits",)

    def __init__(self, bits: BitMap64) -> None:
        """Takes over ``bits``, which must not change afterwards. Use :meth:`of` or :meth:`from_offsets`."""
        self._bits = bits

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> OffsetSet:
        """Returns the union of half-open ranges ``(start, stop)``; an empty range adds nothing.

        Raises:
            ValueError: a bound is negative or above ``OFFSET_LIMIT``, or a range is longer than
                ``MAX_RANGE``.
        """
        bits = BitMap64()
        for start, stop in ranges:
            if start < 0 or stop > OFFSET_LIMIT:
                raise ValueError(f"offset range [{start}, {stop}) is outside [0, {OFFSET_LIMIT})")
            if stop - start > MAX_RANGE:
                raise ValueError(f"offset range [{start}, {stop}) holds more than {MAX_RANGE} offsets")
            if start < stop:
                bits.add_range(start, stop)
        return cls(bits)

    @classmethod
    def from_offsets(cls, offsets: Iterable[int]) -> OffsetSet:
        """Returns the set of the given offsets, in any order, with or without duplicates.

        A numpy uint64 array is the fastest input.

        >>> OffsetSet.from_offsets([7, 3, 4, 7]).ranges
        ((3, 5), (7, 8))

        Raises:
            ValueError: an offset is negative or not below ``OFFSET_LIMIT``.
        """
        try:
            return cls._checked(BitMap64(offsets))
        except OverflowError as cause:
            raise ValueError(f"an offset is outside [0, {OFFSET_LIMIT})") from cause

    @classmethod
    def _checked(cls, bits: BitMap64) -> OffsetSet:
        if bits and bits.max() >= OFFSET_LIMIT:
            raise ValueError(f"offset {bits.max()} is outside [0, {OFFSET_LIMIT})")
        return cls(bits)

    @classmethod
    def from_roaring(cls, data: bytes) -> OffsetSet:
        """Reads the portable 64-bit Roaring serialization, strictly.

        Raises:
            ValueError: the bytes are not exactly the serialization of a set of valid offsets: they are empty,
                truncated, followed by more bytes, or inconsistent.
        """
        try:
            bits = BitMap64.deserialize(data)
        except (IndexError, ValueError) as cause:
            raise ValueError(f"{len(data)} bytes are not a 64-bit Roaring bitmap") from cause
        # The library reads a prefix and ignores counts and positions that it does not need. Bytes that do
        # not round-trip exactly were not written by a Roaring library.
        if bits.serialize() != data:
            raise ValueError(f"{len(data)} bytes are not exactly one 64-bit Roaring bitmap")
        return cls._checked(bits)

    def to_roaring(self) -> bytes:
        """Returns the portable 64-bit Roaring serialization, with runs compressed."""
        bits = self._bits.copy()
        bits.run_optimize()
        return bytes(bits.serialize())

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Sorted, disjoint, non-adjacent half-open ranges of the set."""
        return tuple(self.iter_ranges())

    def iter_ranges(self) -> Iterator[tuple[int, int]]:
        """Returns an iterator over the ranges in order; its cost depends on the ranges, not the offsets."""
        starts, stops = self._edges()
        return zip(starts.to_array(), stops.to_array(), strict=True)

    def count_ranges(self) -> int:
        """Returns the number of ranges without building them.

        >>> OffsetSet.of((0, 10**9), (10**9 + 1, 10**10)).count_ranges()
        2
        """
        return len(self._edges()[0])

    def _edges(self) -> tuple[BitMap64, BitMap64]:
        """Returns the starts and the stops of the ranges."""
        moved = self._bits.shift(1)
        return self._bits - moved, moved - self._bits

    @property
    def first(self) -> int | None:
        """Smallest offset, or None if the set is empty."""
        return int(self._bits.min()) if self._bits else None

    @property
    def last(self) -> int | None:
        """Largest offset, or None if the set is empty."""
        return int(self._bits.max()) if self._bits else None

    def below(self, position: int) -> OffsetSet:
        """Returns the offsets smaller than ``position``."""
        first, last = self.first, self.last
        if last is None or last < position:
            return self
        if first is not None and first >= position:
            return EMPTY
        bits = self._bits.copy()
        bits.remove_range(max(position, 0), OFFSET_LIMIT)
        return OffsetSet(bits)

    def starting_at(self, position: int) -> OffsetSet:
        """Returns the offsets equal to or larger than ``position``."""
        first = self.first
        if first is None or position <= first:
            return self
        bits = self._bits.copy()
        bits.remove_range(0, min(position, OFFSET_LIMIT))
        return OffsetSet(bits)

    def count_between(self, start: int, stop: int) -> int:
        """Returns the number of offsets in ``[start, stop)``; its cost does not depend on that number.

        >>> OffsetSet.of((0, 5), (8, 10)).count_between(3, 9)
        3
        """
        if start >= stop:
            return 0
        return int(self._bits.range_cardinality(max(start, 0), min(max(stop, 0), OFFSET_LIMIT)))

    def chunks(self, most: int) -> Iterator[OffsetSet]:
        """Yields disjoint pieces of the set in ascending order, each of at most ``most`` offsets.

        >>> [piece.ranges for piece in OffsetSet.of((0, 5)).chunks(2)]
        [((0, 2),), ((2, 4),), ((4, 5),)]

        Raises:
            ValueError: ``most`` is below 1.
        """
        if most < 1:
            raise ValueError(f"pieces of {most} offsets")
        for index in range(0, len(self), most):
            size = min(most, len(self) - index)
            first, last = int(self._bits[index]), int(self._bits[index + size - 1])
            if (last - first) // 2**16 <= size:
                yield self & OffsetSet.of((first, last + 1))
            else:  # sparse offsets: a window over them has more containers than offsets
                yield OffsetSet(BitMap64(islice(self._bits.iter_equal_or_larger(first), size)))

    def to_array(self) -> array[int]:
        """Returns all offsets in ascending order as an ``array('Q')``: 8 bytes each, readable as a buffer."""
        values: array[int] = self._bits.to_array()
        return values

    @staticmethod
    def union(sets: Iterable[OffsetSet]) -> OffsetSet:
        """Returns the union of any number of sets.

        >>> OffsetSet.union([]).ranges
        ()
        """
        bits = BitMap64()
        for one in sets:
            bits |= one._bits
        return OffsetSet(bits)

    def isdisjoint(self, other: OffsetSet) -> bool:
        """True if no offset is in both sets."""
        return bool(self._bits.isdisjoint(other._bits))

    def __or__(self, other: OffsetSet) -> OffsetSet:
        return OffsetSet(self._bits | other._bits)

    def __and__(self, other: OffsetSet) -> OffsetSet:
        return OffsetSet(self._bits & other._bits)

    def __sub__(self, other: OffsetSet) -> OffsetSet:
        return OffsetSet(self._bits - other._bits)

    def __contains__(self, offset: int) -> bool:
        return 0 <= offset < OFFSET_LIMIT and offset in self._bits

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


EMPTY = OffsetSet(BitMap64())  #: the empty set


def isqrt_ceil(number: int) -> int:
    """Returns the smallest integer whose square is at least ``number``.

    >>> [isqrt_ceil(n) for n in (1, 2, 4, 5, 10_000)]
    [1, 2, 2, 3, 100]
    """
    root = math.isqrt(number)
    return root if root * root == number else root + 1


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
