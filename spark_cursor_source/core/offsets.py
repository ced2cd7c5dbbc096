"""Offsets of one topic-partition and immutable sets of them.

A set of a million offsets in random order costs about a megabyte and a contiguous one a few bytes, because
the elements live in a 64-bit Roaring bitmap. Ranges are half-open and a position names the *next* offset,
as everywhere in Kafka.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NewType

from pyroaring import BitMap64

Offset = NewType("Offset", int)  #: of a record in a queue topic
MarkerOffset = NewType("MarkerOffset", int)  #: of a record in the markers topic

OFFSET_LIMIT = 2**63 - 1  #: offsets are below it, so that the position after each is signed 64-bit too
MAX_RANGE = 2**40  #: a range of more offsets, which nobody has, would take gigabytes


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
        """Take over ``bits``, which nobody changes any more. Use :meth:`of` or :meth:`from_offsets`."""
        self._bits = bits

    @classmethod
    def of(cls, *ranges: tuple[int, int]) -> OffsetSet:
        """The union of half-open ranges ``(start, stop)``; an empty range adds nothing.

        Raises:
            ValueError: a bound is negative or above ``OFFSET_LIMIT``, or a range longer than ``MAX_RANGE``.
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
        """The set of the given offsets, in any order, repeated or not (a numpy uint64 array is fastest).

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
        """Read the portable 64-bit Roaring serialization, strictly.

        Raises:
            ValueError: the bytes are not the one serialization of a set of valid offsets: empty, cut short,
                followed by more, or inconsistent.
        """
        try:
            bits = BitMap64.deserialize(data)
        except (IndexError, ValueError) as cause:
            raise ValueError(f"{len(data)} bytes are not a 64-bit Roaring bitmap") from cause
        # The library reads a prefix and skips over counts and positions it has no need of. What it does not
        # write back to the byte was not written by a Roaring library.
        if bits.serialize() != data:
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
        """The ranges one by one, in order; for the cost of the ranges, not of the offsets."""
        starts, stops = self._edges()
        return zip(starts.to_array(), stops.to_array(), strict=True)

    def count_ranges(self) -> int:
        """How many ranges there are, without building them.

        >>> OffsetSet.of((0, 10**9), (10**9 + 1, 10**10)).count_ranges()
        2
        """
        return len(self._edges()[0])

    def _edges(self) -> tuple[BitMap64, BitMap64]:
        """Where ranges start and where they stop."""
        moved = self._bits.shift(1)
        return self._bits - moved, moved - self._bits

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
        first, last = self.first, self.last
        if last is None or last < position:
            return self
        if first is not None and first >= position:
            return EMPTY
        bits = self._bits.copy()
        bits.remove_range(max(position, 0), OFFSET_LIMIT)
        return OffsetSet(bits)

    def starting_at(self, position: int) -> OffsetSet:
        """The offsets equal to or larger than ``position``."""
        first = self.first
        if first is None or position <= first:
            return self
        bits = self._bits.copy()
        bits.remove_range(0, min(position, OFFSET_LIMIT))
        return OffsetSet(bits)

    def chunks(self, most: int) -> Iterator[OffsetSet]:
        """Disjoint pieces in ascending order that together are the set, each of at most ``most`` offsets.

        >>> [piece.ranges for piece in OffsetSet.of((0, 5)).chunks(2)]
        [((0, 2),), ((2, 4),), ((4, 5),)]
        """
        if most < 1:
            raise ValueError(f"pieces of {most} offsets")
        for index in range(0, len(self), most):
            size = min(most, len(self) - index)
            first, last = int(self._bits[index]), int(self._bits[index + size - 1])
            if (last - first) // 2**16 <= size:
                yield self & OffsetSet.of((first, last + 1))
            else:  # so far apart that a window over them has more containers than they are
                yield OffsetSet(BitMap64(islice(self._bits.iter_equal_or_larger(first), size)))

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


EMPTY = OffsetSet(BitMap64())  #: the set of no offsets


def isqrt_ceil(number: int) -> int:
    """The smallest integer whose square is at least ``number``.

    >>> [isqrt_ceil(n) for n in (1, 2, 4, 5, 10_000)]
    [1, 2, 2, 3, 100]
    """
    root = math.isqrt(number)
    return root if root * root == number else root + 1
