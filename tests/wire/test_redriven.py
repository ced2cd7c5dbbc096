"""Records of redriven dead letters as bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.named_cursor import NamedCursor
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import named_cursor as plain_wire
from spark_cursor_source.wire.redriven import SettledLetters, decode, encode, redriven_cell
from spark_cursor_source.wire.redriven_pb2 import RedrivenOffsets

GOLDEN = Path(__file__).parent.parent / "golden"
CELL = redriven_cell("orders-billing-DLQ", 3)
SOME = SettledLetters(OffsetSet.of((0, 5), (7, 9)))


@settings(max_examples=60, deadline=None)
@given(st.frozensets(st.integers(0, 2**62), max_size=20), st.frozensets(st.integers(0, 9)))
def test_redriven_offsets_survive_their_bytes(offsets: frozenset[int], deleted: frozenset[int]) -> None:
    some = SettledLetters(OffsetSet.from_offsets(offsets | deleted), OffsetSet.from_offsets(deleted))
    assert decode(encode(CELL, "id", some), "id") == some


def test_the_bytes_of_today_are_read_for_ever() -> None:
    golden = (GOLDEN / "redriven_v1.bin").read_bytes()
    assert decode(golden, "id") == SOME
    assert encode(CELL, "id", SOME) == golden


def test_a_topic_that_was_made_again_has_no_redriven_dead_letters() -> None:
    assert decode(encode(CELL, "id", SOME), "another") == SettledLetters()


def test_other_readers_of_the_cursors_topic_see_a_position_and_no_subscription() -> None:
    value = encode(CELL, "id", SOME)
    assert plain_wire.decode(value, CELL) == NamedCursor(cell=CELL, offset=4)
    with pytest.raises(InvalidControlRecord):
        cursor_wire.decode(value)
    assert plain_wire.decode(encode(CELL, "id", SettledLetters(OffsetSet.of((1, 5)))), CELL).offset == -1


@pytest.mark.parametrize(
    "value", [b"", b"\xff\x00random", plain_wire.encode(NamedCursor(cell=CELL, offset=1))]
)
def test_what_is_no_such_record_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidControlRecord):
        decode(value, "id")


def test_a_later_version_is_refused() -> None:
    with pytest.raises(LaterCursorVersion):
        decode(RedrivenOffsets(redriven_version=2).SerializeToString(), "id")
