"""Records of the rescue topic as bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.rescue import RescuePlace
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion
from spark_cursor_source.wire.rescue import (
    RescuedRecord,
    decode,
    decode_gaps,
    encode,
    encode_gaps,
    read_key,
    record_key,
)
from spark_cursor_source.wire.rescue_pb2 import RescuedGaps, RescuedMessage

GOLDEN = Path(__file__).parent.parent / "golden"
ONE = RescuedRecord(
    key=b"key",
    value=b"value",
    headers=(("trace", b"7"), ("none", None), ("trace", b"")),
    timestamp_ms=1_700_000_000_123,
    timestamp_type=1,
)
bytes_or_none = st.none() | st.binary(max_size=20)


@given(
    bytes_or_none,
    bytes_or_none,
    st.lists(st.tuples(st.text(max_size=5), bytes_or_none), max_size=3),
    st.integers(0, 2**62),
    st.integers(0, 2),
)
def test_a_message_survives_its_bytes(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int,
    timestamp_type: int,
) -> None:
    one = RescuedRecord(
        key=key,
        value=value,
        headers=tuple(headers),
        timestamp_ms=timestamp_ms,
        timestamp_type=timestamp_type,
    )
    assert decode(encode(one)) == one


def test_the_bytes_of_today_are_read_for_ever() -> None:
    golden = (GOLDEN / "rescued_message_v1.bin").read_bytes()
    assert decode(golden) == ONE
    assert encode(ONE) == golden
    gaps = (GOLDEN / "rescued_gaps_v1.bin").read_bytes()
    assert decode_gaps(gaps).ranges == ((3, 5), (9, 10))
    assert encode_gaps(OffsetSet.of((3, 5), (9, 10))) == gaps


@pytest.mark.parametrize("offset", [0, 17, None])
def test_a_record_key_names_markers_topic_place_and_offset(offset: int | None) -> None:
    place = RescuePlace("orders", "/Jl+Q", 3)
    assert read_key(record_key("markers", place, offset)) == ("markers", place, offset)


@pytest.mark.parametrize("key", [b"", b"other", b"\xff\xff", b"m,id,orders,3,x", b"m,id,orders,3,1,2"])
def test_a_key_of_another_program_is_no_place(key: bytes) -> None:
    assert read_key(key) is None


@pytest.mark.parametrize("value", [b"", b"\xff\x00random"])
def test_what_is_no_such_record_is_refused(value: bytes) -> None:
    for read in (decode, decode_gaps):
        with pytest.raises(InvalidControlRecord):
            read(value)


def test_a_later_version_is_refused() -> None:
    with pytest.raises(LaterCursorVersion):
        decode(RescuedMessage(version=2).SerializeToString())
    with pytest.raises(LaterCursorVersion):
        decode_gaps(RescuedGaps(version=2).SerializeToString())
