"""Plain cursors as bytes: four fields, an epoch where there is one, and trackers' cursors read the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.named_cursor import NamedCursor
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire.control_pb2 import Cursor as CursorPb
from spark_cursor_source.wire.named_cursor import decode, encode

GOLDEN = Path(__file__).parent.parent / "golden"
CELL = Cell(subscription="mailer", topic="orders", partition=3)


@pytest.mark.parametrize("offset", [-1, 0, 7, 2**63 - 1])
@pytest.mark.parametrize("epoch", [None, 0, 2**63 - 1])
def test_a_cursor_comes_back_as_it_was(offset: int, epoch: int | None) -> None:
    cursor = NamedCursor(cell=CELL, offset=offset, epoch=epoch)
    assert decode(encode(cursor), CELL) == cursor


def test_the_bytes_of_today_are_read_for_ever() -> None:
    cursor = NamedCursor(cell=CELL, offset=7, epoch=2)
    golden = (GOLDEN / "plain_cursor.bin").read_bytes()
    assert decode(golden, CELL) == cursor
    assert encode(cursor) == golden


def test_a_trackers_cursor_is_one_of_any_version() -> None:
    cursor = CursorSnapshot(cell=CELL, read_position=10, next_marker=3)
    expected = NamedCursor(cell=CELL, offset=9, of_tracker=True)
    assert decode(cursor_wire.encode(cursor), CELL) == expected
    later = CursorPb(cursor_id="mailer", stream="orders", partition=3, offset=9, version=99)
    assert decode(later.SerializeToString(), CELL) == expected


@pytest.mark.parametrize("value", [b"", b"\xff\x00random", encode(NamedCursor(cell=CELL, offset=1))])
def test_what_is_not_about_the_cell_is_refused(value: bytes) -> None:
    other = Cell(subscription="audit", topic="orders", partition=3)
    with pytest.raises(InvalidControlRecord, match="'audit,orders,3'"):
        decode(value, other)
