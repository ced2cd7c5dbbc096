"""Which messages are planned apart after a death."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.poison import (
    MAX_ANNOUNCED,
    isolation_groups,
    max_group_size,
)


@pytest.mark.parametrize(
    ("limit", "by_delivery"),
    [
        (2, {2: 100}),
        (3, {2: 100, 3: 100}),
        (4, {2: None, 3: 100, 4: 100}),
        (5, {2: None, 3: None, 4: 100, 5: 100}),
        (None, {2: None, 3: None, 4: 100, 5: 100, 6: 100, 1_000: 100}),
    ],
)
def test_company_shrinks_towards_the_last_delivery(
    limit: int | None, by_delivery: dict[int, int | None]
) -> None:
    told = {n: max_group_size(n, max_deliveries=limit, suspects=10_000) for n in by_delivery}
    assert told == by_delivery


@pytest.mark.parametrize(("limit", "next_delivery"), [(2, 2), (2, 3), (5, 5), (None, 5), (None, 1_000)])
def test_suspects_that_died_in_a_group_go_alone_at_their_last_delivery(
    limit: int | None, next_delivery: int
) -> None:
    assert max_group_size(next_delivery, max_deliveries=limit, suspects=10_000, grouped=True) == 1


def test_few_suspects_go_alone_at_their_last_delivery_where_groups_save_no_batch() -> None:
    told = [max_group_size(2, max_deliveries=2, suspects=n) for n in range(1, 10)]
    assert told == [1, 1, 1, 1, 1, 1, 3, 3, 3]


def test_a_delivery_beyond_a_lowered_limit_is_in_groups_and_then_alone() -> None:
    assert max_group_size(7, max_deliveries=3, suspects=10_000) == 100
    assert max_group_size(8, max_deliveries=3, suspects=100, grouped=True) == 1


sets = st.builds(OffsetSet.from_offsets, st.frozensets(st.integers(0, 10_000), max_size=300))


@settings(max_examples=60, deadline=None)
@given(sets, st.integers(1, 6), st.booleans(), st.none() | st.integers(2, 7))
def test_groups_are_the_set_parted(held: OffsetSet, count: int, died: bool, limit: int | None) -> None:
    groups = list(isolation_groups(held, count, died=died, max_deliveries=limit))
    assert OffsetSet.union(group for group, _ in groups) == held
    assert sum(len(group) for group, _ in groups) == len(held)
    assert all(1 <= len(group) <= MAX_ANNOUNCED for group, _ in groups)
    most = max_group_size(count + 1, max_deliveries=limit, suspects=len(held)) if died else None
    assert all(alone == (most is not None) for _, alone in groups)
    assert most is None or all(len(group) <= most for group, _ in groups)


def test_the_innocent_share_batches_at_any_delivery() -> None:
    held = OffsetSet.of((0, 100))
    assert list(isolation_groups(held, 4, died=False, max_deliveries=5)) == [(held, False)]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_nothing_is_no_group(count: int) -> None:
    assert list(isolation_groups(EMPTY, count, died=True, max_deliveries=5)) == []


def test_even_the_root_of_very_many_fits_a_record() -> None:
    held = OffsetSet.of((0, 10**9))
    group, alone = next(iter(isolation_groups(held, 3, died=True, max_deliveries=5)))
    assert (len(group), alone) == (MAX_ANNOUNCED, True)
