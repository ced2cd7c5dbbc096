"""Sets of offsets inside stored records."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.offsets import EMPTY, OFFSET_LIMIT, OffsetSet
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets

BASES = (0, 2**16 - 8, 2**33, 2**62, OFFSET_LIMIT - 16)
offsets = st.builds(int.__add__, st.sampled_from(BASES), st.integers(0, 15))
sets = st.builds(OffsetSet.from_offsets, st.frozensets(offsets, max_size=40))


@settings(max_examples=100, deadline=None)
@given(sets)
def test_a_set_survives_its_bytes(held: OffsetSet) -> None:
    assert decode_offsets(encode_offsets(held)) == held


def test_few_ranges_are_stored_as_ranges_and_many_as_a_bitmap() -> None:
    few, many = OffsetSet.from_offsets(range(0, 1_024, 2)), OffsetSet.from_offsets(range(0, 1_026, 2))
    assert (encode_offsets(few)[0], encode_offsets(many)[0]) == (0, 1)
    assert decode_offsets(encode_offsets(few)) == few
    assert decode_offsets(encode_offsets(many)) == many


def test_the_golden_bytes_of_both_forms() -> None:
    assert encode_offsets(EMPTY) == bytes.fromhex("00")
    assert encode_offsets(OffsetSet.of((3, 5), (9, 10))) == bytes.fromhex("00 0301 0400")
    bitmap = bytes.fromhex("01 0100000000000000 00000000 3a300000 01000000 0000 0000 10000000 0500")
    assert decode_offsets(bitmap) == OffsetSet.of((5, 6))


def test_size_follows_the_ranges_and_not_their_length() -> None:
    short = encode_offsets(OffsetSet.of((7, 8), (9, 11), (12, 20)))
    long = encode_offsets(OffsetSet.of((7, 10**8), (10**8 + 1, 10**9), (10**9 + 1, 10**9 + 10**8)))
    assert len(short) == 7
    assert len(long) <= 18


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes.fromhex("02"),
        bytes.fromhex("01"),
        bytes.fromhex("00 03"),
        bytes.fromhex("00 0380"),
        bytes.fromhex("00") + b"\xff" * 20,
        bytes.fromhex("00 00") + b"\xff" * 9 + b"\x01",
        bytes.fromhex("00 00") + b"\xff" * 8 + b"\x7f",
        bytes.fromhex("01") + OffsetSet.of((0, 5)).to_roaring() + b"\x00",
    ],
    ids=[
        "nothing",
        "an unknown form",
        "a bitmap of no bytes",
        "a range without a length",
        "a number cut short",
        "a number without an end",
        "a number above 64 bits",
        "a range that no memory holds",
        "a bitmap followed by a byte",
    ],
)
def test_bytes_that_are_no_set_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidControlRecord):
        decode_offsets(data)


def test_a_range_of_more_than_memory_holds_is_refused_before_it_is_built() -> None:
    with pytest.raises(InvalidControlRecord):
        decode_offsets(bytes.fromhex("00 00 ffffffffff3f"))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=24), st.sampled_from([b"", b"\x00", b"\x01"]))
def test_random_bytes_are_refused_or_a_sound_set(data: bytes, form: bytes) -> None:
    try:
        held = decode_offsets(form + data)
    except InvalidControlRecord:
        return
    assert decode_offsets(encode_offsets(held)) == held


def test_damaged_bytes_are_refused_or_a_sound_set() -> None:
    chance = random.Random(4)
    whole = [OffsetSet.of((3, 9), (2**20, 2**20 + 5)), OffsetSet.from_offsets(range(0, 2_000, 2))]
    seeds = [encode_offsets(held) for held in whole]
    for _ in range(2_000):
        data = bytearray(chance.choice(seeds))
        data[chance.randrange(min(len(data), 24))] = chance.randrange(256)
        try:
            held = decode_offsets(bytes(data))
        except InvalidControlRecord:
            continue
        assert decode_offsets(encode_offsets(held)) == held
