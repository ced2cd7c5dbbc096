"""What a batch holds: admission, and plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.core.planning import (
    BatchPlan,
    Delivery,
    RedeliveryRecord,
    SourceOffset,
    Taken,
    TopicPartition,
    admit_queue,
    admit_redeliveries,
    plan,
)
from spark_cursor_source.core.tracker import Redeliver
from tests.core.batches import (
    TOPIC,
    announced,
    announcements,
    at,
    cell,
    delivered,
    delivery,
    ranges,
    some,
    span,
)


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


def test_a_budget_smaller_than_the_number_of_partitions_moves_the_longest_ones() -> None:
    ends = {(TOPIC, 0): 5, (TOPIC, 1): 9, (TOPIC, 2): 1}
    assert admit_queue({}, ends, budget=1) == {(TOPIC, 0): 0, (TOPIC, 1): 1, (TOPIC, 2): 0}


def test_a_partition_that_was_cut_short_is_not_read_backwards() -> None:
    start = {(TOPIC, 0): 50, (TOPIC, 1): 0}
    assert admit_queue(start, {(TOPIC, 0): 20, (TOPIC, 1): 9}, budget=None) == {(TOPIC, 0): 50, (TOPIC, 1): 9}
    assert admit_queue(start, {(TOPIC, 0): 20, (TOPIC, 1): 9}, budget=4) == {(TOPIC, 0): 50, (TOPIC, 1): 4}


partitions = st.integers(0, 5).map(lambda number: (TOPIC, number))
positions = st.dictionaries(partitions, st.integers(0, 1_000), max_size=6)


@given(positions, positions, st.integers(0, 5_000))
def test_admission_spends_the_whole_budget_and_no_more(
    start: dict[TopicPartition, int], ends: dict[TopicPartition, int], budget: int
) -> None:
    admitted = admit_queue(start, ends, budget=budget)
    assert admitted.keys() == ends.keys()
    sizes = {tp: admitted[tp] - start.get(tp, 0) for tp in ends}
    waiting = {tp: max(ends[tp] - start.get(tp, 0), 0) for tp in ends}
    assert all(0 <= sizes[tp] <= waiting[tp] for tp in ends)
    assert sum(sizes.values()) == min(budget, sum(waiting.values()))


# ---- the redeliveries' share


def admit(
    pending: list[RedeliveryRecord], *, budget: int | None = None, alone_next: bool = True, end: int = 10
) -> tuple[dict[int, int], int, bool]:
    return admit_redeliveries(pending, {0: 0, 1: 0}, {0: end, 1: end}, budget=budget, alone_next=alone_next)


def test_records_of_other_runs_are_passed_over() -> None:
    assert admit([]) == ({0: 10, 1: 10}, 0, False)


def test_a_record_that_would_exceed_the_budget_stops_its_partition() -> None:
    pending = [record(2, 5), record(3, 5), record(4, 1), record(1, 4, partition=1)]
    assert admit(pending, budget=9) == ({0: 3, 1: 10}, 9, False)


def test_one_record_is_taken_even_above_the_budget() -> None:
    assert admit([record(2, 50), record(3, 50)], budget=10) == ({0: 3, 1: 10}, 50, False)


def test_a_record_to_be_planned_alone_makes_a_batch_of_its_own() -> None:
    pending = [record(2, alone=True), record(3), record(0, 7, partition=1)]
    assert admit(pending) == ({0: 3, 1: 0}, 1, True)


def test_what_stands_before_a_record_to_be_planned_alone_goes_first() -> None:
    pending = [record(2), record(3, alone=True), record(4), record(1, 7, partition=1)]
    assert admit(pending) == ({0: 3, 1: 10}, 8, False)


def test_after_a_batch_of_its_own_the_others_have_their_turn() -> None:
    pending = [record(3, alone=True), record(4), record(1, 7, partition=1)]
    assert admit(pending, alone_next=False) == ({0: 3, 1: 10}, 7, False)


def test_one_alone_follows_another_where_nothing_else_waits() -> None:
    pending = [record(3, alone=True), record(4, alone=True)]
    assert admit(pending, alone_next=False) == ({0: 4, 1: 0}, 1, True)


def test_one_alone_follows_another_where_all_else_stands_behind_it() -> None:
    # Else nothing could be planned at all, for as long as the queue is empty.
    pending = [record(3, alone=True), record(4, 6)]
    assert admit(pending, alone_next=False) == ({0: 4, 1: 0}, 1, True)


pending_records = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), st.booleans()), max_size=12).map(
    lambda made: list(numbered(made))
)


def numbered(made: Iterable[tuple[int, int, bool]]) -> Iterator[RedeliveryRecord]:
    """Records with ascending offsets in each partition, with holes where records of other runs are."""
    next_offset = Counter[int]()
    for partition, size, alone in made:
        next_offset[partition] += 1 + size % 3
        yield record(next_offset[partition], size, partition=partition, alone=alone)


@given(pending_records, st.none() | st.integers(0, 60), st.booleans())
def test_redeliveries_keep_to_the_budget_and_never_stand_still(
    pending: list[RedeliveryRecord], budget: int | None, alone_next: bool
) -> None:
    start, ends = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 100)
    reached, taken, alone = admit_redeliveries(pending, start, ends, budget=budget, alone_next=alone_next)
    inside = [one for one in pending if start[one.partition] <= one.offset < reached[one.partition]]
    assert taken == sum(len(one.redeliver.offsets) for one in inside)
    assert all(start[p] <= at <= ends[p] for p, at in reached.items())
    assert bool(pending) == bool(taken), "there is always something that can be planned"
    if budget is not None and taken > budget:
        assert len(inside) == 1, "above the budget is one record at most"
    assert alone == any(one.redeliver.alone for one in inside)
    if alone:
        assert len(inside) == 1


@given(pending_records, st.none() | st.integers(0, 60))
def test_batch_by_batch_every_redelivery_is_planned_once(
    pending: list[RedeliveryRecord], budget: int | None
) -> None:
    start, ends = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 100)
    left, planned, alone = list(pending), [], False
    while left:
        start, _, alone = admit_redeliveries(left, start, ends, budget=budget, alone_next=not alone)
        planned += [one for one in left if one.offset < start[one.partition]]
        left = [one for one in left if one.offset >= start[one.partition]]
    assert len(planned) == len(pending)
    assert {(one.partition, one.offset) for one in planned} == {(o.partition, o.offset) for o in pending}


# ---- a batch that is planned for the first time


def first_plan(
    start: SourceOffset,
    end: SourceOffset,
    *records: Redeliver,
    read_positions: Mapping[Cell, int] | None = None,
    taken: Taken | None = None,
) -> BatchPlan:
    return plan("s", start, end, records, read_positions=read_positions or {}, taken=taken or Taken())


def test_a_batch_holds_the_queue_between_two_offsets_for_the_first_time() -> None:
    batch = first_plan(at({0: 5, 1: 7}), at({0: 9, 1: 7, 2: 3}))
    assert delivered(batch) == {(0, 1): ((5, 9),), (2, 1): ((0, 3),)}


def test_nothing_below_the_read_position_is_planned_from_the_queue() -> None:
    batch = first_plan(at({0: 5}), at({0: 20}), read_positions={cell(): 12})
    assert delivered(batch) == {(0, 1): ((12, 20),)}
    assert first_plan(at({0: 5}), at({0: 20}), read_positions={cell(): 30}) == BatchPlan(deliveries=())


def test_announced_messages_are_delivered_once_more_with_the_next_count() -> None:
    records = [announced(span(0, 3), count=1), announced(some(7), count=1), announced(some(5), count=4)]
    batch = first_plan(at({0: 10}), at({0: 12}), *records)
    assert delivered(batch) == {(0, 1): ((10, 12),), (0, 2): ((0, 3), (7, 8)), (0, 5): ((5, 6),)}


def test_an_announcement_said_twice_is_planned_once() -> None:
    batch = first_plan(at({0: 10}), at({0: 10}), announced(span(0, 3)), announced(span(1, 5)))
    assert delivered(batch) == {(0, 2): ((0, 5),)}


def test_of_two_announcements_of_a_message_the_later_delivery_counts() -> None:
    batch = first_plan(at({0: 10}), at({0: 10}), announced(span(0, 3)), announced(some(1), count=2))
    assert delivered(batch) == {(0, 2): ((0, 1), (2, 3)), (0, 3): ((1, 2),)}


def test_a_message_that_is_announced_is_not_read_from_the_queue_as_well() -> None:
    # Another query of the subscription has delivered it; this one had not come so far.
    batch = first_plan(at({0: 0}), at({0: 4}), announced(some(1)))
    assert delivered(batch) == {(0, 1): ((0, 1), (2, 4)), (0, 2): ((1, 2),)}


def test_an_announcement_that_a_later_start_has_overtaken_is_stale() -> None:
    taken = Taken()
    taken.add(Delivery(cell=cell(), offsets=some(2, 3), delivery_count=2))
    batch = first_plan(at({0: 10}), at({0: 10}), announced(span(0, 5)), taken=taken)
    assert delivered(batch) == {(0, 2): ((0, 2), (4, 5))}
    # The next time round it is fresh.
    batch = first_plan(at({0: 10}), at({0: 10}), announced(some(2), count=2), taken=taken)
    assert delivered(batch) == {(0, 3): ((2, 3),)}


def test_first_deliveries_come_from_the_queue_and_from_announcements_at_once() -> None:
    batch = first_plan(at({0: 10}), at({0: 12}), announced(some(3), count=0))
    assert delivered(batch) == {(0, 1): ((3, 4), (10, 12))}


@given(ranges, ranges, announcements, st.dictionaries(st.integers(0, 1), st.integers(0, 30)))
def test_every_offset_of_a_batch_is_planned_exactly_once(
    first: list[int], second: list[int], records: list[Redeliver], read: dict[int, int]
) -> None:
    start, end = at({0: first[0], 1: second[0]}), at({0: first[1], 1: second[1]})
    read_positions = {cell(p): position for p, position in read.items()}
    batch = first_plan(start, end, *records, read_positions=read_positions)
    wanted = {
        (p, n) for p, (a, b) in enumerate((first, second)) for n in range(max(a, read.get(p, 0)), b)
    } | {(one.cell.partition, n) for one in records for n in one.offsets}
    planned = Counter((d.cell.partition, n) for d in batch.deliveries for n in d.offsets)
    assert planned == Counter(wanted)
    assert not batch.hand_backs
    for one in batch.deliveries:
        if one.delivery_count == 1:
            assert (one.offsets.first or 0) >= read.get(one.cell.partition, 0)


# ---- what a run has taken


@given(announcements)
def test_an_announcement_is_fresh_until_its_next_delivery_is_taken(records: list[Redeliver]) -> None:
    taken = Taken()
    for one in records:
        before = taken.fresh(one.cell, one.offsets, delivery_count=one.delivery_count)
        taken.add(Delivery(cell=one.cell, offsets=before, delivery_count=one.delivery_count + 1))
        assert taken.fresh(one.cell, one.offsets, delivery_count=one.delivery_count) == EMPTY
        later = taken.fresh(one.cell, before, delivery_count=one.delivery_count + 1)
        assert later - before == EMPTY


def test_first_deliveries_are_not_remembered() -> None:
    taken = Taken()
    taken.add(delivery(0, 10))
    assert taken.fresh(cell(), span(0, 10), delivery_count=1) == span(0, 10)


def test_what_was_never_delivered_is_fresh_whatever_was_taken_before() -> None:
    taken = Taken()
    taken.add(delivery(0, 4, count=2))
    assert taken.fresh(cell(), span(0, 4), delivery_count=0) == span(0, 4)
    assert taken.fresh(cell(), span(0, 4), delivery_count=1) == EMPTY
    taken.add(delivery(0, 2))  # the second delivery was taken back
    assert taken.fresh(cell(), span(0, 4), delivery_count=1) == span(0, 2)
