"""The map of a partition: the state of each offset, exactly and in cells."""

from __future__ import annotations

import json
import random

import pytest

from spark_cursor_source.admin.partition_map import (
    MAP_STATES,
    PartitionMap,
    partition_map_of,
    read_partition_map,
)
from spark_cursor_source.cli.holes import letter_of, lines_of
from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, HeldLetters, Lease
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import UnknownSubscription
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire import cursor as cursor_wire
from tests.kafka.control_plane import Control, cell_of, offsets, produce


def cursor_of(topic: str = "orders") -> CursorSnapshot:
    # 0..1 acked | 2 leased | 3 acked | 4 available | 5 delayed | 6 held | 7 blocked | 8 acked | 9 unread
    return CursorSnapshot(
        cell=cell_of(topic),
        read_position=9,
        next_marker=1,
        leases=((Lease(60_000, 1, "run"), offsets((2, 3))),),
        available=((Available(1, False), offsets((4, 5))),),
        delayed=((Delayed(99_000, 1, False), offsets((5, 6))),),
        held=((HeldLetters(5, "bad"), offsets((6, 7))),),
        blocked=Blocked(offsets=offsets((7, 8)), behind=(2,), delivery_counts=(0,)),
    )


def test_each_offset_has_one_state() -> None:
    one = partition_map_of(cursor_of(), log_start=0, log_end=10)
    assert one.runs == (
        (2, 3, "leased"),
        (3, 4, "acked"),
        (4, 5, "available"),
        (5, 6, "delayed"),
        (6, 7, "held"),
        (7, 8, "blocked"),
        (8, 9, "acked"),
        (9, 10, "unread"),
    )
    assert one.runs_between(4, 9)[0] == (4, 5, "available")
    assert one.runs_between(4, 9)[-1] == (8, 9, "acked")
    assert [one.state_of(offset) for offset in (0, 2, 3, 6, 7, 9)] == [
        "acked",
        "leased",
        "acked",
        "held",
        "blocked",
        "unread",
    ]
    assert "".join(map(letter_of, one.cells(8))) == "L.ADHB._"
    assert list(lines_of(one, 3)) == [
        "orders/0  2 to 10: 2 acked, 1 leased, 1 available, 1 delayed, 1 blocked, 1 held, 1 unread",
        "LHb",
    ]
    assert json.loads(one.to_json())["runs"][0] == [2, 3, "leased"]


def test_cells_count_what_the_runs_say() -> None:
    pick = random.Random(7)
    numbers = pick.sample(range(50, 950), 400)
    cursor = CursorSnapshot(
        cell=cell_of("orders"),
        read_position=950,
        next_marker=1,
        leases=((Lease(60_000, 1, "run"), OffsetSet.from_offsets(numbers[:200])),),
        held=((HeldLetters(5, "bad"), OffsetSet.from_offsets(numbers[200:])),),
    )
    one = partition_map_of(cursor, log_start=0, log_end=1_003)
    states = {offset: state for first, end, state in one.runs for offset in range(first, end)}
    for width in (1, 7, 120, 5_000):
        cells = one.cells(width)
        assert (cells[0].first, cells[-1].end) == (one.first, one.end)
        assert len(cells) == min(width, one.end - one.first)
        for cell in cells:
            found = [states[offset] for offset in range(cell.first, cell.end)]
            assert cell.counts == tuple(found.count(state) for state in MAP_STATES)
            assert cell.counts[MAP_STATES.index(cell.state)] == max(cell.counts)
    part = one.cells(10, first=100, end=200)
    assert (part[0].first, part[-1].end) == (100, 200)


def test_a_partition_where_all_is_acked_has_no_cells() -> None:
    cursor = CursorSnapshot(cell=cell_of("orders"), read_position=10, next_marker=1)
    one = partition_map_of(cursor, log_start=0, log_end=10)
    assert (one.runs, one.cells(80)) == ((), ())
    assert partition_map_of(cursor, log_start=None, log_end=None).cells(80) == ()
    with pytest.raises(ValueError, match="a map of 0 cells"):
        one.cells(0)


@pytest.mark.broker
def test_the_map_is_read_of_the_cursors_and_the_log(control: Control) -> None:
    ClusterAdmin(control.config).create({control.queue: (2, {})})
    produce(control.config, control.queue, [{"value": b"x"}] * 10)
    cursor = cursor_of(control.queue)
    produce(control.config, control.cursors, [{"key": cursor.cell.key, "value": cursor_wire.encode(cursor)}])

    def read(subscription: str, partition: int | None = None) -> tuple[PartitionMap, ...]:
        return read_partition_map(
            control.config, control.queue, subscription, partition=partition, cursors_topic=control.cursors
        )

    (one,) = read("billing")
    assert one == partition_map_of(cursor, log_start=0, log_end=10)
    assert read("billing", partition=1) == ()
    with pytest.raises(UnknownSubscription):
        read("nobody")
