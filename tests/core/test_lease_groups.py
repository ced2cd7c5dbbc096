"""Many open batches share few groups, and no lease ends early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.lease_groups import (
    MANY_GROUPS,
    START_GRAIN_MS,
    LeaseGroups,
    coarser,
    rounded_deadline,
)
from spark_cursor_source.core.marker import MAX_LEASE_MS, End, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import CellTracker
from spark_cursor_source.wire import cursor as cursor_wire

CELL = Cell(subscription="s", topic="t", partition=0)
LEASES = st.lists(
    st.builds(
        Lease,
        st.integers(1, MAX_LEASE_MS),
        st.integers(1, 2),
        st.sampled_from("ab"),
        st.integers(0, 9).map(lambda n: n * START_GRAIN_MS),
        st.booleans(),
    ),
    unique=True,
    max_size=60,
)


@given(leases=LEASES, now_ms=st.integers(0, MAX_LEASE_MS))
def test_deadlines_move_a_little_later_and_nothing_else_changes(leases: list[Lease], now_ms: int) -> None:
    held = [(lease, OffsetSet.of((at, at + 1))) for at, lease in enumerate(leases)]
    merged = coarser(LeaseGroups(held), now_ms)
    assert sum(len(offsets) for _, offsets in merged) == len(leases)
    for before, one in held:
        (after,) = (lease for lease, offsets in merged if one & offsets)
        assert after[1:3] == before[1:3]
        assert after.grouped == before.grouped
        assert after.started_ms <= before.started_ms
        moved_ms = after.deadline_ms - before.deadline_ms
        assert 0 <= moved_ms <= max(before.deadline_ms - now_ms, 0) / 64
    for _ in range(3):
        merged = coarser(merged, now_ms)
    for before, one in held:
        (after,) = (lease for lease, offsets in merged if one & offsets)
        assert after.deadline_ms - before.deadline_ms <= max(before.deadline_ms - now_ms, 0) / 32


@given(at_ms=st.integers(0, 10**12), after_ms=st.integers(0, MAX_LEASE_MS))
def test_a_deadline_is_late_by_less_than_a_50th_of_its_lease_and_never_early(
    at_ms: int, after_ms: int
) -> None:
    late_ms = rounded_deadline(at_ms, after_ms) - at_ms - after_ms
    assert 0 <= late_ms < max(1, min(200, after_ms / 50))


@given(after_ms=st.integers(1, 50_000), began_ms=st.integers(0, 999))
def test_open_leases_of_one_length_are_in_few_groups(after_ms: int, began_ms: int) -> None:
    starts = range(began_ms, began_ms + after_ms, max(1, after_ms // 1_000))
    assert len({rounded_deadline(at_ms, after_ms) for at_ms in starts}) <= 257


def many(batches: int, every_ms: int, *, tick: bool = True) -> CellTracker:
    """A cell with so many open batches of a lease of twelve hours, after the next tick or the next marker."""
    leases = [
        (
            Lease(MAX_LEASE_MS + every_ms * number, 1, "r", every_ms * number),
            OffsetSet.of((2 * number, 2 * number + 1)),
        )
        for number in range(batches)
    ]
    cursor = CursorSnapshot(
        cell=CELL, read_position=2 * batches, next_marker=batches, owner="r", leases=tuple(leases)
    )
    tracker = CellTracker.resume(cursor, cell=CELL, policy=RedeliveryPolicy())
    if not tick:
        marker = End(cell=CELL, offsets=OffsetSet.of((1, 2)))  # which nobody has leased
        tracker.apply(marker, at_ms=every_ms * batches, marker_offset=batches)
    tracker.advance(every_ms * batches if tick else None)
    return tracker


@pytest.mark.parametrize("tick", [True, False])
def test_ten_hours_of_open_batches_fit_into_a_small_cursor_whether_or_not_the_time_is_known(
    tick: bool,
) -> None:
    batches, every_ms = 40_000, 1_000
    snapshot = many(batches, every_ms, tick=tick).snapshot()
    assert snapshot is not None
    assert len(snapshot.outstanding) == batches
    assert len(snapshot.leases) < MANY_GROUPS
    assert len(cursor_wire.encode(snapshot)) < 100_000
    assert min(lease.deadline_ms for lease, _ in snapshot.leases) >= MAX_LEASE_MS


def test_a_message_of_a_merged_group_that_was_not_due_is_given_back() -> None:
    tracker = many(4_000, 10_000)
    offsets, now_ms = OffsetSet.of((7_000, 7_001)), 10_000 * 4_000
    release = Release(cell=CELL, offsets=offsets, delivery_count=1, due_ms=10_000 * 3_500 + 1)
    tracker.apply(release, at_ms=now_ms, marker_offset=10**6)
    snapshot = tracker.snapshot()
    assert snapshot is not None
    assert not any(offsets & held for _, held in snapshot.leases)
