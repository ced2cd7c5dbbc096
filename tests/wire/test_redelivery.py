"""Records of the redeliveries topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire.control_pb2 import Redelivery as RedeliveryPb
from spark_cursor_source.wire.offsets import encode_offsets
from spark_cursor_source.wire.redelivery import decode, encode

GOLDEN = Path(__file__).parent.parent / "golden"
ONE = Redeliver(
    cell=Cell(subscription="billing", topic="orders", partition=3),
    offsets=OffsetSet.of((5, 9), (1_000_000, 1_000_001)),
    delivery_count=2,
    run_id="0123456789abcdef0123456789abcdef",
    alone=True,
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
redeliveries = st.builds(
    Redeliver,
    cell=st.builds(Cell, subscription=names, topic=names, partition=st.integers(0, 2**31 - 1)),
    offsets=st.builds(OffsetSet.from_offsets, st.frozensets(st.integers(0, 2**62), max_size=20)),
    delivery_count=st.integers(0, 10**9),
    run_id=names,
    alone=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(redeliveries)
def test_an_announcement_survives_its_bytes(one: Redeliver) -> None:
    assert decode(encode(one)) == one


def test_announcements_of_version_1_are_read_for_ever() -> None:
    assert decode((GOLDEN / "redelivery_v1.bin").read_bytes()) == ONE


def test_an_announcement_is_small_however_long_its_ranges_are() -> None:
    assert len(encode(ONE)) < 80


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": 2},
        {"topic": ""},
        {"partition": -1},
        {"run_id": ""},
        {"offsets": b""},
        {"offsets": b"\x07"},
    ],
    ids=str,
)
def test_a_record_that_is_no_announcement_is_refused(change: dict[str, object]) -> None:
    fields: dict[str, object] = {
        "version": 1,
        "subscription": "s",
        "topic": "t",
        "partition": 0,
        "offsets": encode_offsets(OffsetSet.of((0, 1))),
        "delivery_count": 1,
        "run_id": "r",
    }
    decode(RedeliveryPb(**fields).SerializeToString())  # type: ignore[arg-type]
    with pytest.raises(InvalidControlRecord):
        decode(RedeliveryPb(**(fields | change)).SerializeToString())  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"junk"])
def test_a_record_without_a_value_or_with_junk_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidControlRecord):
        decode(value)


def test_unknown_fields_are_accepted() -> None:
    assert decode(encode(ONE) + b"\xfa\x3f\x03abc") == ONE


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_an_announcement_or_refused(value: bytes) -> None:
    try:
        one = decode(value)
    except InvalidControlRecord:
        return
    assert decode(encode(one)) == one
