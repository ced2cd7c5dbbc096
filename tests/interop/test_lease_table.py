"""The rules of kafka-mq-go's MarkersQueue, and the columns against a dict and a loop."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.interop.lease_table import END, KEEP_ALIVE, START, LeaseTable, MessageMarkers

Row = tuple[int, int, int, int, int, int]


def start(sequence: int, offset: int, *, at_ms: int = 0, lease_ms: int = 30) -> Row:
    return sequence, at_ms, START, 0, offset, lease_ms


def end(sequence: int, offset: int) -> Row:
    return sequence, 0, END, 0, offset, 0


def keep_alive(sequence: int, offset: int, *, at_ms: int, lease_ms: int = 30) -> Row:
    return sequence, at_ms, KEEP_ALIVE, 0, offset, lease_ms


@dataclass(frozen=True, kw_only=True)
class Case:
    """Markers, and what a tracker that has read them knows."""

    markers: list[Row]
    open: dict[int, int]  #: offset -> deadline
    commit_position: int


THREE = [start(10, 1), start(11, 2), start(12, 3)]
CASES = {
    "a start opens its message": Case(markers=[start(10, 1)], open={1: 30}, commit_position=10),
    # 0 S----30 S----55
    "a duplicate start moves the deadline and keeps the commit position": Case(
        markers=[start(10, 1), start(11, 2), start(12, 1, at_ms=25)], open={1: 55, 2: 30}, commit_position=10
    ),
    "a keep-alive of an unknown message is ignored": Case(
        markers=[keep_alive(10, 1, at_ms=5)], open={}, commit_position=11
    ),
    "an end of an unknown message is ignored": Case(markers=[end(10, 1)], open={}, commit_position=11),
    "a keep-alive moves the deadline and not the position": Case(
        markers=[start(10, 1), start(11, 2), keep_alive(12, 1, at_ms=20)],
        open={1: 50, 2: 30},
        commit_position=10,
    ),
    "a keep-alive may bring the deadline nearer": Case(
        markers=[start(10, 1), keep_alive(11, 1, at_ms=5, lease_ms=1)], open={1: 6}, commit_position=10
    ),
    "an end of the first moves the position": Case(
        markers=[*THREE, end(13, 1)], open={2: 30, 3: 30}, commit_position=11
    ),
    "an end of one in the middle does not": Case(
        markers=[*THREE, end(13, 2)], open={1: 30, 3: 30}, commit_position=10
    ),
    "an end of the last does not": Case(
        markers=[*THREE, end(13, 3)], open={1: 30, 2: 30}, commit_position=10
    ),
    "without an open message the position is behind the last marker": Case(
        markers=[*THREE, end(13, 2), end(14, 1), end(15, 3)], open={}, commit_position=16
    ),
    "a keep-alive after the end is ignored": Case(
        markers=[start(10, 1), end(11, 1), keep_alive(12, 1, at_ms=9)], open={}, commit_position=13
    ),
    "a start after the end opens again, at its own place": Case(
        markers=[start(10, 1), end(11, 1), start(12, 1, at_ms=40)], open={1: 70}, commit_position=12
    ),
    "a lease is cut to 12 hours": Case(
        markers=[start(10, 1, lease_ms=10**15)], open={1: MAX_LEASE_MS}, commit_position=10
    ),
}


def known(table: LeaseTable) -> dict[int, int]:
    return dict(zip(table.offsets.tolist(), table.deadlines_ms.tolist(), strict=True))


@pytest.mark.parametrize("at_once", [True, False], ids=["in one batch", "one by one"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_rules_of_kafka_mq_go(case: Case, at_once: bool) -> None:
    table = LeaseTable.resume(None)
    for batch in [case.markers] if at_once else [[row] for row in case.markers]:
        table = table.apply(MessageMarkers.of(batch))
    assert (known(table), table.commit_position) == (case.open, case.commit_position)


def test_a_deadline_has_passed_when_now_is_after_it() -> None:
    table = LeaseTable.resume(None).apply(MessageMarkers.of([start(0, 1, lease_ms=30)]))
    assert [len(table.expire(now_ms)[0]) for now_ms in (29, 30, 31)] == [0, 0, 1]


def test_what_is_due_comes_in_the_order_of_its_deadlines_and_at_most_so_many() -> None:
    rows = [
        start(0, 7, lease_ms=50),
        start(1, 5, lease_ms=10),
        start(2, 6, lease_ms=30),
        start(3, 8, lease_ms=90),
    ]
    table = LeaseTable.resume(None).apply(MessageMarkers.of(rows))
    due, left = table.expire(80)
    assert (due.offsets.tolist(), left.offsets.tolist()) == ([5, 6, 7], [8])
    due, left = table.expire(80, most=2)
    assert (due.offsets.tolist(), left.offsets.tolist()) == ([5, 6], [7, 8])


def test_markers_that_are_in_the_table_already_are_passed_over() -> None:
    markers = MessageMarkers.of([start(10, 1), end(11, 1), start(12, 2)])
    table = LeaseTable.resume(None).apply(markers)
    again = table.apply(markers)
    assert (known(again), again.next_marker) == (known(table), 13)


def test_one_offset_of_two_partitions_is_two_messages() -> None:
    rows = [(0, 0, START, 0, 1, 30), (1, 0, START, 1, 1, 40), (2, 0, END, 0, 1, 0)]
    table = LeaseTable.resume(None).apply(MessageMarkers.of(rows))
    assert (table.partitions.tolist(), table.deadlines_ms.tolist()) == ([1], [40])


@dataclass
class SlowTable:
    """The same with a dict and a loop."""

    leases: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # id -> deadline, start

    def apply(self, row: Row) -> None:
        sequence, at_ms, kind, partition, offset, lease_ms = row
        message, deadline = (partition, offset), at_ms + min(lease_ms, MAX_LEASE_MS)
        if kind == END:
            self.leases.pop(message, None)
        elif message in self.leases:
            self.leases[message] = (deadline, self.leases[message][1])
        elif kind == START:
            self.leases[message] = (deadline, sequence)

    def expire(self, now_ms: int) -> set[tuple[int, int]]:
        due = {message for message, (deadline, _) in self.leases.items() if deadline < now_ms}
        for message in due:
            del self.leases[message]
        return due


steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from([START, START, END, KEEP_ALIVE]), st.integers(0, 2), st.integers(0, 3)),
            max_size=12,
        ),
        st.integers(0, 40),
    ),
    max_size=6,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_the_columns_do_what_a_dict_and_a_loop_do(
    batches: list[tuple[list[tuple[int, int, int]], int]],
) -> None:
    table, slow, sequence, now_ms = LeaseTable.resume(None), SlowTable(), 0, 0
    for markers, passes_ms in batches:
        rows: list[Row] = []
        for kind, partition, offset in markers:
            rows.append((sequence, now_ms, kind, partition, offset, 10 + sequence % 7))
            sequence, now_ms = sequence + 1, now_ms + 1
            slow.apply(rows[-1])
        table = table.apply(MessageMarkers.of(rows))
        now_ms += passes_ms
        due, table = table.expire(now_ms)
        ids = set(zip(due.partitions.tolist(), due.offsets.tolist(), strict=True))
        assert ids == slow.expire(now_ms)
        assert (np.diff(due.deadlines_ms) >= 0).all()
        columns = (table.partitions, table.offsets, table.deadlines_ms, table.starts)
        rows_left = zip(*(column.tolist() for column in columns), strict=True)
        left = {(partition, offset): (deadline, at) for partition, offset, deadline, at in rows_left}
        assert left == slow.leases
