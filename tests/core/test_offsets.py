"""Sets of offsets, held against Python's own sets."""

import pickle
import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from spark_cursor_source.core.offsets import EMPTY, MAX_RANGE, OFFSET_LIMIT, OffsetSet, isqrt_ceil

# Near each other, so that ranges touch; near the seams of Roaring's containers and buckets; and at the end.
BASES = (0, 2**16 - 8, 2**32 - 8, 2**33 + 2**16 - 8, 2**48, 2**62, OFFSET_LIMIT - 16)
offsets = st.builds(int.__add__, st.sampled_from(BASES), st.integers(0, 15))
models = st.frozensets(offsets, max_size=40)
quick = settings(max_examples=80, deadline=None)


def model_ranges(model: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """The slow twin of ``OffsetSet.ranges``."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(model):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return tuple(ranges)


# ---- algebra


@quick
@given(models, models)
def test_its_algebra_is_that_of_a_set(one: frozenset[int], other: frozenset[int]) -> None:
    a, b = OffsetSet.from_offsets(one), OffsetSet.from_offsets(other)
    assert set(a | b) == one | other
    assert set(a & b) == one & other
    assert set(a - b) == one - other
    assert a.isdisjoint(b) == one.isdisjoint(other)
    assert (a == b) == (one == other)
    assert set(OffsetSet.union([a, b, a])) == one | other
    assert set(a) == one, "the operands are as they were"
    assert set(b) == other, "the operands are as they were"


@quick
@given(models, offsets)
def test_its_questions_are_answered_as_a_set_answers_them(model: frozenset[int], probe: int) -> None:
    held = OffsetSet.from_offsets(model)
    assert len(held) == len(model)
    assert bool(held) == bool(model)
    assert (probe in held) == (probe in model)
    assert (held.first, held.last) == (min(model, default=None), max(model, default=None))
    assert list(held) == list(held.to_array()) == sorted(model)
    assert held.ranges == tuple(held.iter_ranges()) == model_ranges(model)
    assert held.count_ranges() == len(held.ranges)
    assert OffsetSet.of(*held.ranges) == held


@quick
@given(models, offsets)
def test_below_and_starting_at_part_a_set_in_two(model: frozenset[int], position: int) -> None:
    held = OffsetSet.from_offsets(model)
    assert set(held.below(position)) == {offset for offset in model if offset < position}
    assert set(held.starting_at(position)) == {offset for offset in model if offset >= position}


@pytest.mark.parametrize("position", [-5, 0, OFFSET_LIMIT, 2**63, 2**64, 2**70])
def test_a_position_outside_of_every_log_parts_nothing(position: int) -> None:
    held = OffsetSet.of((0, 3), (OFFSET_LIMIT - 2, OFFSET_LIMIT))
    below, above = held.below(position), held.starting_at(position)
    assert (below, above) == ((EMPTY, held) if position <= 0 else (held, EMPTY))


@quick
@given(models, st.integers(1, 12))
def test_chunks_are_pieces_in_order_that_make_up_the_set(model: frozenset[int], most: int) -> None:
    held = OffsetSet.from_offsets(model)
    pieces = [list(piece) for piece in held.chunks(most)]
    assert [offset for piece in pieces for offset in piece] == sorted(model)
    assert all(len(piece) == most for piece in pieces[:-1])
    assert all(1 <= len(piece) <= most for piece in pieces)


@quick
@given(st.lists(st.tuples(offsets, st.integers(-3, 12)), max_size=6))
def test_ranges_that_overlap_touch_or_are_empty_make_one_set(spans: list[tuple[int, int]]) -> None:
    ranges = [(start, min(start + length, OFFSET_LIMIT)) for start, length in spans]
    model = frozenset(offset for start, stop in ranges for offset in range(start, stop))
    assert OffsetSet.of(*ranges).ranges == model_ranges(model)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OffsetSet.of((-1, 3)),
        lambda: OffsetSet.of((0, 2), (OFFSET_LIMIT, OFFSET_LIMIT + 1)),
        lambda: OffsetSet.of((0, MAX_RANGE + 1)),
        lambda: OffsetSet.from_offsets([-1]),
        lambda: OffsetSet.from_offsets([OFFSET_LIMIT]),
        lambda: OffsetSet.from_offsets([2**63]),
        lambda: OffsetSet.from_offsets([2**64]),
    ],
)
def test_an_offset_that_no_log_has_is_refused(make: Callable[[], OffsetSet]) -> None:
    with pytest.raises(ValueError, match="offset"):
        make()


@pytest.mark.parametrize("stranger", [-1, OFFSET_LIMIT, 2**63, 2**64, 2**70])
def test_an_offset_that_no_log_has_is_in_no_set(stranger: int) -> None:
    assert stranger not in OffsetSet.of((0, 10))


def test_equal_sets_are_one_key_of_a_dict() -> None:
    one = OffsetSet.of((0, 100)) - OffsetSet.of((5, 100))
    other = OffsetSet.from_offsets([4, 3, 2, 1, 0])
    assert {one: "first"} == {other: "first"}
    assert one != {0, 1, 2, 3, 4}


@pytest.mark.parametrize("most", [0, -1])
def test_pieces_of_nothing_are_refused(most: int) -> None:
    with pytest.raises(ValueError, match="pieces"):
        next(OffsetSet.of((0, 3)).chunks(most))


def test_repr_is_short_and_of_a_small_set_the_code_that_makes_it() -> None:
    small = OffsetSet.of((3, 5), (8, 9))
    assert eval(repr(small), {"OffsetSet": OffsetSet}) == small
    assert repr(OffsetSet.of((0, 10**9))) == "OffsetSet(1000000000 offsets in [0, 999999999])"


# ---- size


def test_a_long_range_costs_no_more_than_its_containers() -> None:
    held = OffsetSet.of((5, 10**10)) - OffsetSet.of((7, 8), (10**9, 10**9 + 1))
    assert held.ranges == ((5, 7), (8, 10**9), (10**9 + 1, 10**10))
    assert len(held) == 10**10 - 5 - 2
    assert len(held.to_roaring()) < 10**10 / 2**16 * 16
    assert held.below(10**9).last == 10**9 - 1
    assert len(held.starting_at(10**10 - 5)) == 5
    assert [len(piece) for piece in held.below(10**8).chunks(4 * 10**7)] == [
        4 * 10**7,
        4 * 10**7,
        2 * 10**7 - 6,
    ]


def test_a_million_offsets_in_random_order_take_about_a_megabyte() -> None:
    chance = np.random.default_rng(7)
    held = OffsetSet.from_offsets(chance.integers(0, 10**7, size=10**6, dtype=np.uint64))
    assert len(held) > 900_000
    assert len(held.to_roaring()) < 1_300_000
    assert OffsetSet.from_roaring(held.to_roaring()) == held


def test_offsets_far_apart_are_no_long_range() -> None:
    held = OffsetSet.from_offsets([0, 2**62, 2**62 + 1])
    assert [piece.ranges for piece in held.chunks(2)] == [
        ((0, 1), (2**62, 2**62 + 1)),
        ((2**62 + 1, 2**62 + 2),),
    ]


# ---- bytes


@quick
@given(models)
def test_a_set_survives_its_bytes_and_a_pickle(model: frozenset[int]) -> None:
    held = OffsetSet.from_offsets(model)
    assert OffsetSet.from_roaring(held.to_roaring()) == held
    assert pickle.loads(pickle.dumps(held)) == held


@quick
@given(models, models)
@example(frozenset(range(6)), frozenset({1}))
def test_equal_sets_are_equal_after_their_bytes_whatever_made_them(
    one: frozenset[int], other: frozenset[int]
) -> None:
    # The bytes may differ: Roaring keeps a run where an array is as small.
    made = (OffsetSet.from_offsets(one) | OffsetSet.from_offsets(other)) - OffsetSet.from_offsets(other)
    assert OffsetSet.from_roaring(made.to_roaring()) == OffsetSet.from_offsets(one - other)


@settings(max_examples=20, deadline=None)
@given(models)
def test_bytes_of_a_writer_that_compresses_no_runs_are_read_too(model: frozenset[int]) -> None:
    bits = BitMap64(model)
    bits.add_range(2**20, 2**20 + 2**17)
    assert set(OffsetSet.from_roaring(bits.serialize())) == set(bits)


ONE_BUCKET = "0100000000000000 00000000"  #: one bucket, for offsets below 2**32
ONE_OFFSET = "3a300000 01000000 0000 0000 10000000 0500"  #: offset 5 as a Roaring bitmap of 32 bits


def test_the_golden_bytes_of_small_sets() -> None:
    assert OffsetSet.from_roaring(bytes.fromhex(ONE_BUCKET + ONE_OFFSET)).ranges == ((5, 6),)
    run = bytes.fromhex(ONE_BUCKET + "3b300000 01 0000 5e00 0100 0500 5e00")
    assert OffsetSet.from_roaring(run) == OffsetSet.of((5, 100))
    assert OffsetSet.of((5, 100)).to_roaring() == run
    assert EMPTY.to_roaring() == bytes(8)
    assert OffsetSet.from_roaring(bytes(8)) == EMPTY


@pytest.mark.parametrize(
    "text",
    {
        "nothing": "",
        "half a count of buckets": "01000000",
        "a bucket that is missing": "0100000000000000",
        "cut short": ONE_BUCKET + ONE_OFFSET[:-2],
        "followed by a byte": ONE_BUCKET + ONE_OFFSET + "00",
        "followed by another bitmap": (ONE_BUCKET + ONE_OFFSET) * 2,
        "a bucket without containers": ONE_BUCKET + "3a300000 00000000",
        "two buckets of one number": "0200000000000000" + ("00000000" + ONE_OFFSET) * 2,
        "buckets in falling order": f"0200000000000000 01000000 {ONE_OFFSET} 00000000 {ONE_OFFSET}",
        "an unknown cookie": ONE_BUCKET + "3c300000 01000000 0000 0000 10000000 0500",
        "a wrong position of the container": ONE_BUCKET + "3a300000 01000000 0000 0000 ff000000 0500",
        "a run with the wrong cardinality": ONE_BUCKET + "3b300000 01 0000 1000 0100 0500 5e00",
        "the cookie of runs and no run": ONE_BUCKET + "3b300000 00 0000 0000 0500",
        "no runs in a container of runs": ONE_BUCKET + "3b300000 01 0000 0000 0000",
        "runs that overlap": ONE_BUCKET + "3b300000 01 0000 0b00 0200 0500 0500 0700 0500",
        "runs that touch": ONE_BUCKET + "3b300000 01 0000 0300 0200 0500 0100 0700 0100",
        "a run beyond its container": ONE_BUCKET + "3b300000 01 0000 0500 0100 ffff 0500",
        "offsets in falling order": ONE_BUCKET + "3a300000 01000000 0000 0100 10000000 0900 0500",
        "an offset twice": ONE_BUCKET + "3a300000 01000000 0000 0100 10000000 0500 0500",
        "a bitmap of 32 bits": ONE_OFFSET,
        "offset 2**63 - 1": "0100000000000000 ffffff7f 3a300000 01000000 ffff 0000 10000000 ffff",
        "offset 2**63": "0100000000000000 00000080 3a300000 01000000 0000 0000 10000000 0000",
        "offset 2**64 - 1": "0100000000000000 ffffffff 3a300000 01000000 ffff 0000 10000000 ffff",
    }.items(),
    ids=lambda case: case[0],
)
def test_bytes_that_are_not_exactly_one_bitmap_are_refused(text: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"bitmap|outside"):
        OffsetSet.from_roaring(bytes.fromhex(text[1]))


def believable(data: bytes) -> bool:
    """Whether the bytes were refused, or what was read from them is a sound set with these very bytes."""
    try:
        held = OffsetSet.from_roaring(data)
    except ValueError:
        return False
    every = list(held)
    assert len(every) == len(held)
    assert all(one < other for one, other in pairwise(every))
    assert not every or 0 <= every[0] <= every[-1] < OFFSET_LIMIT
    assert OffsetSet.from_offsets(every) == held
    assert OffsetSet.from_roaring(held.to_roaring()) == held
    return True


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_random_bytes_are_refused_or_a_sound_set(data: bytes) -> None:
    believable(data)


def test_thousands_of_damaged_bitmaps_are_refused_or_a_sound_set_and_none_ends_the_process() -> None:
    chance = random.Random(20)
    whole = [
        OffsetSet.of((5, 6)),
        OffsetSet.of((5, 100)),
        OffsetSet.from_offsets([1, 70_000, 2**33, 2**40, 2**62 + 5]),
        OffsetSet.from_offsets(range(0, 10_000, 2)),
        OffsetSet.from_offsets(chance.sample(range(10**5), 300)),
        OffsetSet.of((3, 9), (70_000, 120_000), (2**32 - 3, 2**32 + 9), (2**35, 2**35 + 1)),
    ]
    seeds = [held.to_roaring() for held in whole] + [bytes(BitMap64(range(5, 4_000)).serialize())]
    sound = 0
    for _ in range(6_000):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 3)):
            damage(data, chance)
        sound += believable(bytes(data))
    assert sound, "a changed element is another set: not everything is refused"


def damage(data: bytearray, chance: random.Random) -> None:
    """One change, most often in the headers, where the counts are."""
    if not data:
        return
    head, anywhere = chance.randrange(min(len(data), 64)), chance.randrange(len(data))
    match chance.randrange(5):
        case 0:
            data[head] = chance.choice((0, 1, 0x3A, 0x3B, 0x7F, 0xFF, chance.randrange(256)))
        case 1:
            data[anywhere] ^= 1 << chance.randrange(8)
        case 2:
            del data[anywhere:]
        case 3:
            data[anywhere:anywhere] = chance.randbytes(chance.randint(1, 4))
        case 4:
            del data[head : head + chance.randint(1, 4)]


@given(st.integers(0, 10**12))
def test_the_ceiling_of_a_root_is_the_smallest_that_is_enough(number: int) -> None:
    root = isqrt_ceil(number)
    assert root**2 >= number
    assert root == 0 or (root - 1) ** 2 < number
