"""How the messages of a batch are shared out to tasks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.batch import (
    Delivery,
)
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import KeyShare
from spark_cursor_source.core.task_split import split, split_by_key
from tests.core.batches import cell, delivery, offset_sets


def sizes(tasks: list[tuple]) -> list[int]:
    return [sum(len(one.offsets) for one in task) for task in tasks]


def test_a_partition_is_one_task_with_all_its_delivery_counts() -> None:
    tasks = split(
        [delivery(5, 9), delivery(0, 2, count=2), delivery(0, 7, partition=1)],
        min_partitions=None,
        max_records=None,
    )
    assert [[(one.partition, one.delivery_count) for one in task] for task in tasks] == [
        [(0, 1), (0, 2)],
        [(1, 1)],
    ]


def test_as_many_tasks_as_partitions_need_no_split() -> None:
    assert sizes(
        split([delivery(0, 9), delivery(0, 1, partition=1)], min_partitions=2, max_records=None)
    ) == [
        9,
        1,
    ]


def test_min_partitions_splits_in_proportion_to_size() -> None:
    tasks = split([delivery(0, 90), delivery(0, 30, partition=1)], min_partitions=4, max_records=None)
    assert sizes(tasks) == [30, 30, 30, 30]


def test_max_records_bounds_each_task() -> None:
    tasks = split([delivery(0, 25), delivery(0, 4, partition=1)], min_partitions=None, max_records=10)
    assert sizes(tasks) == [10, 10, 5, 4]


def test_an_empty_batch_has_no_tasks() -> None:
    assert split([], min_partitions=4, max_records=3) == []


@pytest.mark.parametrize("max_records", [None, 7])
@given(
    sets=st.lists(offset_sets.filter(bool), min_size=1, max_size=4),
    min_partitions=st.none() | st.integers(1, 12),
)
def test_tasks_hold_every_message_of_the_batch_once(
    max_records: int | None, sets: list[OffsetSet], min_partitions: int | None
) -> None:
    deliveries = [
        Delivery(cell=cell(number // 2), offsets=offsets, delivery_count=1 + number % 2)
        for number, offsets in enumerate(sets)
    ]
    tasks = split(deliveries, min_partitions=min_partitions, max_records=max_records)
    wanted = Counter((d.cell.partition, d.delivery_count, n) for d in deliveries for n in d.offsets)
    held = Counter((s.partition, s.delivery_count, n) for task in tasks for s in task for n in s.offsets)
    assert held == wanted
    assert all(sizes(tasks))
    if max_records is not None:
        assert max(sizes(tasks)) <= max_records


def test_all_messages_of_a_key_are_in_one_task_in_order_whatever_their_delivery_counts() -> None:
    again = Delivery(cell=cell(), offsets=OffsetSet.of((2, 3), (5, 6)), delivery_count=2)
    new = Delivery(cell=cell(), offsets=OffsetSet.of((3, 5), (6, 20)), delivery_count=1)

    tasks = split_by_key([new, again], min_partitions=3)

    assert [[(one.delivery_count, one.offsets.ranges) for one in task] for task in tasks] == 3 * [
        [(2, ((2, 3),)), (1, ((3, 5),)), (2, ((5, 6),)), (1, ((6, 20),))]
    ]
    shares = [{one.share for one in task} for task in tasks]
    assert shares == [{KeyShare(index=index, of=3)} for index in range(3)]
    for key in (None, b"", b"a", b"b"):
        assert sum(share.takes(key) for (share,) in shares if share is not None) == 1


def test_a_key_shared_batch_that_is_not_to_be_split_has_a_task_a_partition() -> None:
    tasks = split_by_key(
        [Delivery(cell=one, offsets=OffsetSet.of((0, 9)), delivery_count=1) for one in (cell(), cell(1))],
        min_partitions=2,
    )
    assert [(task[0].partition, task[0].share) for task in tasks] == [(0, None), (1, None)]
