"""Which of the messages that wait go next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.admission import Admitted, Turns, admit, admit_queue
from spark_cursor_source.core.batch import (
    RedeliveryRecord,
    SourceOffset,
    TopicPartition,
    redelivered_between,
)
from tests.core.batches import TOPIC, announced, span

QUEUE = (TOPIC, 0)
START = SourceOffset(queue={QUEUE: 0}, redeliveries={0: 0, 1: 0})


def record(offset: int, size: int = 1, *, partition: int = 0, alone: bool = False) -> RedeliveryRecord:
    offsets = span(1000 * offset, 1000 * offset + size)
    return RedeliveryRecord(
        partition=partition, offset=offset, redeliver=announced(offsets, partition=partition, alone=alone)
    )


# ---- the queue's share of a batch


def test_without_a_budget_everything_that_waits_is_admitted() -> None:
    ends = {(TOPIC, 0): 30, (TOPIC, 1): 5}
    assert admit_queue({(TOPIC, 0): 10}, ends, budget=None) == ends


def test_a_budget_is_shared_in_proportion_to_what_waits() -> None:
    start, ends = {(TOPIC, 0): 100, (TOPIC, 1): 0}, {(TOPIC, 0): 400, (TOPIC, 1): 100}
    assert admit_queue(start, ends, budget=40) == {(TOPIC, 0): 130, (TOPIC, 1): 10}


def test_a_partition_with_few_messages_does_not_wait_for_a_long_backlog_of_another() -> None:
    ends = {(TOPIC, 0): 10_000_000, (TOPIC, 1): 3}
    assert admit_queue({}, ends, budget=1_000) == {(TOPIC, 0): 999, (TOPIC, 1): 1}


@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_partitions_take_turns_if_the_budget_is_smaller_than_their_number(budget: int) -> None:
    ends = {(TOPIC, number): waiting for number, waiting in enumerate((900, 1, 500, 2, 700))}
    start = dict.fromkeys(ends, 0)
    for _ in range(2 * ceil(len(ends) / budget)):
        start = admit_queue(start, ends, budget=budget)
    assert (start[TOPIC, 1], start[TOPIC, 3]) == (1, 2)


def test_a_partition_that_was_cut_short_is_not_read_backwards() -> None:
    start = {(TOPIC, 0): 50, (TOPIC, 1): 0}
    assert admit_queue(start, {(TOPIC, 0): 20, (TOPIC, 1): 9}, budget=None) == {(TOPIC, 0): 50, (TOPIC, 1): 9}
    assert admit_queue(start, {(TOPIC, 0): 20, (TOPIC, 1): 9}, budget=4) == {(TOPIC, 0): 50, (TOPIC, 1): 4}


partitions = st.integers(0, 5).map(lambda number: (TOPIC, number))
positions = st.dictionaries(partitions, st.integers(0, 1_000), max_size=6)


@given(positions, positions, st.integers(0, 5_000))
def test_admission_of_the_queue_spends_the_whole_budget_and_no_more(
    start: dict[TopicPartition, int], ends: dict[TopicPartition, int], budget: int
) -> None:
    admitted = admit_queue(start, ends, budget=budget)
    assert admitted.keys() == ends.keys()
    sizes = {tp: admitted[tp] - start.get(tp, 0) for tp in ends}
    waiting = {tp: max(ends[tp] - start.get(tp, 0), 0) for tp in ends}
    assert all(0 <= sizes[tp] <= waiting[tp] for tp in ends)
    assert sum(sizes.values()) == min(budget, sum(waiting.values()))


# ---- a batch


def go(
    pending: Sequence[RedeliveryRecord],
    *,
    start: SourceOffset = START,
    queue: int = 0,
    budget: int | None = None,
    room: int | None = None,
    turns: Turns | None = None,
    least: int = 1,
) -> Admitted | None:
    return admit(
        pending,
        start,
        {0: 10, 1: 10},
        origin=start.queue,
        queue_ends={QUEUE: queue},
        budget=budget,
        room=room,
        turns=Turns() if turns is None else turns,
        is_enough=lambda waiting: waiting >= least,
    )


def end_of(admitted: Admitted | None, start: SourceOffset = START) -> SourceOffset:
    assert admitted is not None
    return replace(start, queue=admitted.queue).with_lanes(admitted.ordinary, admitted.suspects)


def held(
    pending: Sequence[RedeliveryRecord], end: SourceOffset, start: SourceOffset = START
) -> list[tuple[int, int, int]]:
    """(partition, offset of the record, messages) of the redeliveries of a batch."""
    found = redelivered_between(pending, start, end)
    return [(one.partition, one.offset, len(one.redeliver.offsets)) for one in found]


def test_where_nothing_waits_there_is_no_batch() -> None:
    assert go([]) is None


def test_records_of_other_runs_are_passed_over() -> None:
    assert end_of(go([], queue=1)).redeliveries == {0: 10, 1: 10}


def test_a_record_is_split_where_the_budget_ends() -> None:
    pending = [record(2, 50), record(3, 50)]
    end = end_of(go(pending, budget=60))
    assert (end.redeliveries, end.cuts) == ({0: 3, 1: 10}, {0: 3010})
    assert held(pending, end) == [(0, 2, 50), (0, 3, 10)]
    rest = end_of(go(pending, start=end, budget=60), end)
    assert (rest.redeliveries, rest.cuts) == ({0: 10, 1: 10}, {})
    assert held(pending, rest, end) == [(0, 3, 40)]


def test_new_messages_keep_half_of_the_budget_beside_redeliveries() -> None:
    pending = [record(2, 500)]
    end = end_of(go(pending, queue=500, budget=10))
    assert (end.queue, held(pending, end)) == ({QUEUE: 5}, [(0, 2, 5)])


def test_an_unused_half_goes_to_the_other() -> None:
    few, many = [record(2, 2)], [record(2, 500)]
    assert end_of(go(few, queue=500, budget=10)).queue == {QUEUE: 8}
    end = end_of(go(many, queue=2, budget=10))
    assert (end.queue, held(many, end)) == ({QUEUE: 2}, [(0, 2, 8)])


def test_a_budget_of_one_goes_to_new_messages_and_to_redeliveries_by_turns() -> None:
    pending, turns, start, took = [record(2, 10)], Turns(), START, []
    for _ in range(4):
        end = end_of(go(pending, start=start, queue=10, budget=1, turns=turns), start)
        took.append((end.queue[QUEUE] - start.queue[QUEUE], sum(n for *_, n in held(pending, end, start))))
        turns.planned(alone=False)
        start = end
    assert took == [(1, 0), (0, 1), (1, 0), (0, 1)]


def test_redeliveries_share_their_half_between_partitions() -> None:
    pending = [record(2, 500), record(3, 100, partition=1)]
    assert held(pending, end_of(go(pending, budget=60))) == [(0, 2, 50), (1, 3, 10)]


@pytest.mark.parametrize("budget", [1, 2, 60])
def test_a_few_redeliveries_do_not_wait_for_many_in_another_partition(budget: int) -> None:
    pending, turns, start = [record(2, 900), record(3, 1, partition=1)], Turns(), START
    batches = 0
    while start.redeliveries[1] < 10:
        start = end_of(go(pending, start=start, budget=budget, turns=turns), start)
        turns.planned(alone=False)
        batches += 1
    assert batches <= 20


def test_the_limit_of_outstanding_messages_holds_up_new_ones_only() -> None:
    pending = [record(2, 4)]
    end = end_of(go(pending, queue=100, budget=10, room=0))
    assert (end.queue, held(pending, end)) == ({QUEUE: 0}, [(0, 2, 4)])
    assert go([], queue=100, room=0) is None


def test_suspects_go_by_themselves_and_in_every_other_batch() -> None:
    pending = [record(1, 3, alone=True), record(2, 3, alone=True), record(3, 2)]
    turns, start, took = Turns(), START, []
    for _ in range(4):
        end = end_of(go(pending, start=start, queue=4, budget=2, turns=turns), start)
        taken = redelivered_between(pending, start, end)
        took.append((end.queue[QUEUE] - start.queue[QUEUE], held(pending, end, start)))
        turns.planned(alone=any(one.redeliver.alone for one in taken))
        start = end
    # Each suspect group is split to the budget; beside the others a suspect never stands.
    assert took == [(0, [(0, 1, 2)]), (1, [(0, 3, 1)]), (0, [(0, 1, 1)]), (1, [(0, 3, 1)])]


def test_new_messages_alone_are_reason_enough_to_keep_suspects_to_every_other_batch() -> None:
    pending = [record(1, alone=True)]
    end = end_of(go(pending, queue=5, turns=Turns(after_alone=True)))
    assert (end.queue, held(pending, end)) == ({QUEUE: 5}, [])


def test_suspects_follow_each_other_where_nothing_else_waits() -> None:
    pending = [record(1, alone=True), record(2, alone=True)]
    assert held(pending, end_of(go(pending, turns=Turns(after_alone=True)))) == [(0, 1, 1)]
    # A message that may not be leased does not wait for them either.
    assert held(pending, end_of(go(pending, queue=5, room=0, turns=Turns(after_alone=True)))) == [(0, 1, 1)]


def test_a_suspect_does_not_wait_for_the_many_that_come_again_and_again_in_another_partition() -> None:
    lone, start = record(1, 1, partition=1, alone=True), START
    many = [record(number, 5, alone=True) for number in range(1, 10)]
    for batch in range(1, 10):  # another group comes before each batch
        pending = [lone, *many[:batch]]
        end = end_of(go(pending, start=start, budget=2), start)
        if (1, 1, 1) in held(pending, end, start):
            return
        start = end
    pytest.fail("it was in none of nine batches")


def test_what_stands_behind_suspects_does_not_wait_for_them() -> None:
    pending = [record(1, alone=True), record(2), record(3, alone=True), record(4)]
    end = end_of(go(pending, turns=Turns(after_alone=True)))
    assert held(pending, end) == [(0, 2, 1), (0, 4, 1)]
    assert held(pending, end_of(go(pending, start=end), end), end) == [(0, 1, 1)]


def test_a_batch_waits_for_enough_messages_counted_together() -> None:
    pending = [record(1, 3)]
    assert go(pending, queue=3, least=7) is None
    assert go(pending, queue=4, least=7) is not None
    assert go(pending, queue=40, least=7, budget=2) is not None, "what the budget leaves out waits too"


def test_suspects_wait_for_no_others() -> None:
    pending = [record(1, alone=True), record(2)]
    for turns in (Turns(), Turns(after_alone=True)):
        assert held(pending, end_of(go(pending, queue=3, least=100, turns=turns))) == [(0, 1, 1)]


def test_a_million_new_messages_are_enough_whatever_suspects_wait() -> None:
    end = end_of(go([record(1, alone=True)], queue=10**6, least=10, turns=Turns(after_alone=True)))
    assert end.queue == {QUEUE: 10**6}


made_records = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40), st.booleans()), max_size=12).map(
    lambda made: list(numbered(made))
)


def numbered(made: Iterable[tuple[int, int, bool]]) -> Iterator[RedeliveryRecord]:
    """Records with ascending offsets in each partition, with holes where records of other runs are."""
    next_offset = Counter[int]()
    for partition, size, alone in made:
        next_offset[partition] += 1 + size % 3
        yield record(next_offset[partition], size, partition=partition, alone=alone)


@given(made_records, st.integers(0, 60), st.none() | st.integers(1, 60))
def test_batch_by_batch_every_message_is_planned_once_within_the_budget(
    pending: list[RedeliveryRecord], queue: int, budget: int | None
) -> None:
    start, turns = START, Turns()
    planned: Counter[tuple[int, int]] = Counter()
    ends = {0: 100, 1: 100}
    batches = 0
    while True:
        admitted = admit(
            pending,
            start,
            ends,
            origin=start.queue,
            queue_ends={QUEUE: queue},
            budget=budget,
            room=None,
            turns=turns,
            is_enough=lambda waiting: True,
        )
        if admitted is None:
            break
        end = end_of(admitted, start)
        of_batch = redelivered_between(pending, start, end)
        size = sum(len(one.redeliver.offsets) for one in of_batch) + end.queue[QUEUE] - start.queue[QUEUE]
        assert size
        assert budget is None or size <= budget
        alone = any(one.redeliver.alone for one in of_batch)
        if alone:
            assert len(of_batch) == 1
            assert end.queue == start.queue
        planned.update((one.partition, offset) for one in of_batch for offset in one.redeliver.offsets)
        turns.planned(alone=alone)
        start = end
        batches += 1
    assert planned == Counter((one.partition, o) for one in pending for o in one.redeliver.offsets)
    assert start.queue[QUEUE] == queue
