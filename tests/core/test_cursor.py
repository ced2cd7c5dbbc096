"""What a cursor says of a cell, read off its open leases."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, Lease
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.wire.offsets import encode_offsets

CELL = Cell(subscription="s", topic="t", partition=0)
RUN = "0123456789abcdef0123456789abcdef"


def cursor(read_position: int, *leased: tuple[int, int]) -> CursorSnapshot:
    held = OffsetSet.of(*leased)
    leases = ((Lease(60_000, 1, RUN), held),) if held else ()
    return CursorSnapshot(cell=CELL, read_position=read_position, next_marker=0, leases=leases)


def test_a_cell_that_was_never_read_has_nothing_acked() -> None:
    assert (cursor(0).mark_delete, cursor(0).ack_holes) == (-1, EMPTY)


def test_where_nothing_is_outstanding_everything_before_the_read_position_is_acked() -> None:
    assert (cursor(10).mark_delete, cursor(10).ack_holes) == (9, EMPTY)


def test_the_mark_delete_position_is_before_the_first_message_that_is_outstanding() -> None:
    # acked: 0 1 2 . 4 5 . . 8 9
    one = cursor(10, (3, 4), (6, 8))
    assert one.mark_delete == 2
    assert one.ack_holes.ranges == ((4, 6), (8, 10))


def test_a_single_message_that_is_never_acked_costs_nothing_at_any_backlog() -> None:
    one = cursor(10**9, (0, 1))
    assert (one.mark_delete, one.ack_holes.ranges) == (-1, ((1, 10**9),))
    assert len(encode_offsets(one.outstanding)) == 3


def test_three_holes_cost_the_same_at_a_backlog_of_one_and_of_a_billion() -> None:
    sizes = [
        len(encode_offsets(cursor(7 + backlog, (1, 2), (3, 4), (5, 6), (7, 7 + backlog)).outstanding))
        for backlog in (1, 10**9)
    ]
    assert sizes == [9, 13]


def test_leased_and_waiting_are_outstanding_together() -> None:
    one = CursorSnapshot(
        cell=CELL,
        read_position=10,
        next_marker=0,
        leases=((Lease(60_000, 1, RUN), OffsetSet.of((0, 2))), (Lease(61_000, 2, RUN), OffsetSet.of((4, 5)))),
        delayed=((Delayed(50_000, 2, False), OffsetSet.of((6, 7))),),
        available=((Available(1, True), OffsetSet.of((8, 9))),),
    )
    assert list(one.leased) == [0, 1, 4]
    assert list(one.waiting) == [6, 8]
    assert list(one.outstanding) == [0, 1, 4, 6, 8]
    assert {count: list(held) for count, held in one.delivery_counts().items()} == {1: [0, 1, 8], 2: [4, 6]}
    assert one.next_event_ms == 50_000


def test_what_is_available_waits_for_no_clock() -> None:
    one = CursorSnapshot(
        cell=CELL, read_position=1, next_marker=0, available=((Available(1, True), OffsetSet.of((0, 1))),)
    )
    assert one.next_event_ms is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 40), st.frozensets(st.integers(0, 39), max_size=20))
def test_mark_delete_and_holes_are_those_of_a_loop(read_position: int, offsets: frozenset[int]) -> None:
    outstanding = {offset for offset in offsets if offset < read_position}
    one = cursor(read_position, *((offset, offset + 1) for offset in outstanding))
    position = 0
    while position < read_position and position not in outstanding:
        position += 1
    assert one.mark_delete == position - 1
    assert set(one.ack_holes) == set(range(position, read_position)) - outstanding
