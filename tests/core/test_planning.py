"""What a batch holds: admission, plans, replays, tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Delay, Lease, Wait
from spark_cursor_source.core.isolation import company
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.planning import (
    BatchPlan,
    Delivery,
    HandBack,
    RedeliveryRecord,
    SourceOffset,
    Taken,
    TopicPartition,
    admit_queue,
    admit_redeliveries,
    plan,
    plan_replay,
    split,
)
from spark_cursor_source.core.tracker import Redeliver

RUN, DEAD = "this run", "a run that died"
TOPIC = "t"


def cell(partition: int = 0) -> Cell:
    return Cell(subscription="s", topic=TOPIC, partition=partition)


def some(*offsets: int) -> OffsetSet:
    return OffsetSet.from_offsets(offsets)


def span(start: int, stop: int) -> OffsetSet:
    return OffsetSet.of((start, stop))


def announced(
    offsets: OffsetSet, *, count: int = 1, partition: int = 0, alone: bool = False, run: str = RUN
) -> Redeliver:
    return Redeliver(cell=cell(partition), offsets=offsets, delivery_count=count, run_id=run, alone=alone)


def record(offset: int, size: int = 1, *, partition: int = 0, alone: bool = False) -> RedeliveryRecord:
    offsets = span(1000 * offset, 1000 * offset + size)
    return RedeliveryRecord(
        partition=partition, offset=offset, redeliver=announced(offsets, partition=partition, alone=alone)
    )


def at(queue: Mapping[int, int], redeliveries: Mapping[int, int] | None = None) -> SourceOffset:
    return SourceOffset(queue={(TOPIC, p): n for p, n in queue.items()}, redeliveries=redeliveries or {0: 0})


def delivered(batch: BatchPlan) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Ranges by (partition, delivery count)."""
    return {(d.cell.partition, d.delivery_count): d.offsets.ranges for d in batch.deliveries}


def handed_back(batch: BatchPlan) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    return {(b.cell.partition, b.delivery_count): b.offsets.ranges for b in batch.hand_backs}


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


offset_sets = st.frozensets(st.integers(0, 30), max_size=12).map(OffsetSet.from_offsets)
announcements = st.lists(
    st.builds(announced, offset_sets.filter(bool), count=st.integers(1, 4), partition=st.integers(0, 1)),
    max_size=6,
)
ranges = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)


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
    for delivery in batch.deliveries:
        if delivery.delivery_count == 1:
            assert (delivery.offsets.first or 0) >= read.get(delivery.cell.partition, 0)


# ---- a batch whose run died


def snapshot(
    *,
    read: int,
    leases: Mapping[int, OffsetSet] | None = None,
    available: Mapping[int, OffsetSet] | None = None,
    delayed: Mapping[int, OffsetSet] | None = None,
    max_deliveries: int | None = 5,
) -> CursorSnapshot:
    """A cursor: offsets by delivery count; what is leased was leased by a run that died."""
    return CursorSnapshot(
        cell=cell(),
        read_position=read,
        next_marker=0,
        leases=tuple((Lease(60_000, n, DEAD), held) for n, held in (leases or {}).items()),
        available=tuple((Wait(n, True), held) for n, held in (available or {}).items()),
        delayed=tuple((Delay(60_000, n, True), held) for n, held in (delayed or {}).items()),
        max_deliveries=max_deliveries,
    )


def replay(cursor: CursorSnapshot | None, *records: Redeliver, start: int = 0, stop: int = 10) -> BatchPlan:
    cursors = {} if cursor is None else {cursor.cell: cursor}
    return plan_replay("s", at({0: start}), at({0: stop}), records, cursors=cursors)


def test_a_batch_whose_starts_were_never_written_is_delivered_for_the_first_time() -> None:
    assert delivered(replay(None)) == {(0, 1): ((0, 10),)}
    assert delivered(replay(snapshot(read=0))) == {(0, 1): ((0, 10),)}


def test_the_first_replay_delivers_the_same_messages_less_those_that_have_ended() -> None:
    # S(0-9, 1) -- End(0-3, 7) -- crash: 4-6, 8, 9 again, which is their second delivery
    batch = replay(snapshot(read=10, leases={1: span(4, 10) - some(7)}))
    assert delivered(batch) == {(0, 2): ((4, 7), (8, 10))}
    assert not batch.hand_backs


def test_the_second_replay_hands_back_what_is_still_open() -> None:
    # S(0-9, 1) -- crash -- S(0-9, 2) -- End(0-4) -- crash: nothing is delivered
    batch = replay(snapshot(read=10, leases={2: span(5, 10)}))
    assert batch.deliveries == ()
    assert handed_back(batch) == {(0, 2): ((5, 10),)}


def test_a_batch_that_was_started_in_part_goes_on_with_the_rest() -> None:
    # the Start of 0-9 was cut in two records, and the second one was lost with the run
    batch = replay(snapshot(read=6, leases={1: span(0, 6)}))
    assert delivered(batch) == {(0, 1): ((6, 10),), (0, 2): ((0, 6),)}


def test_a_redelivery_that_died_is_replayed_with_its_next_count() -> None:
    batch = replay(snapshot(read=10, leases={2: some(3)}), announced(some(3), run=DEAD), start=10, stop=10)
    assert delivered(batch) == {(0, 3): ((3, 4),)}


def test_what_is_available_is_left_to_its_announcement() -> None:
    # announced to the dead run, planned, never started: this run's Hello has announced it again
    batch = replay(snapshot(read=10, available={1: some(3)}), announced(some(3), run=DEAD), start=10, stop=10)
    assert batch == BatchPlan(deliveries=())


def test_what_waits_for_its_backoff_is_not_replayed() -> None:
    assert replay(snapshot(read=10, delayed={1: span(0, 10)})) == BatchPlan(deliveries=())


def test_what_was_not_due_is_left_to_its_announcement() -> None:
    # S(0-9, 1) -- R(4-6, not due) -- 4 announced, S(4, 1) -- crash: 4 was delivered, 5 and 6 never
    cursor = snapshot(read=10, leases={1: some(4, 9)}, available={0: some(5)}, delayed={0: some(6)})
    batch = replay(cursor, announced(some(4), count=0))
    assert delivered(batch) == {(0, 2): ((4, 5), (9, 10))}
    assert not batch.hand_backs


def test_a_message_at_its_last_delivery_is_left_to_its_lease() -> None:
    assert replay(snapshot(read=10, leases={1: some(4)}, max_deliveries=1)) == BatchPlan(deliveries=())


def test_near_the_last_delivery_suspects_are_handed_back_rather_than_replayed_in_company() -> None:
    # next would be the 2nd of 2: each alone, and a replay cannot be split
    batch = replay(snapshot(read=10, leases={1: span(0, 10)}, max_deliveries=2))
    assert batch.deliveries == ()
    assert handed_back(batch) == {(0, 1): ((0, 10),)}


def test_a_lone_suspect_is_replayed_to_the_last() -> None:
    batch = replay(snapshot(read=10, leases={1: some(9)}, max_deliveries=2))
    assert delivered(batch) == {(0, 2): ((9, 10),)}


def test_a_suspect_takes_no_innocent_one_along_in_a_replay() -> None:
    # 0-4 were never started and 5 is at its last delivery: 5 goes back, the others are delivered
    batch = replay(
        snapshot(read=0, leases={4: some(5)}), announced(some(5), count=3, run=DEAD), start=6, stop=10
    )
    assert delivered(batch) == {(0, 1): ((6, 10),)}
    assert handed_back(batch) == {(0, 4): ((5, 6),)}


counted_sets = st.dictionaries(st.integers(1, 5), offset_sets, max_size=3)


@st.composite
def cursors_of_dead_runs(draw: st.DrawFn) -> CursorSnapshot:
    """Disjoint groups below a read position."""
    read = draw(st.integers(0, 30))
    left = span(0, read)
    groups: list[dict[int, OffsetSet]] = [{}, {}, {}]
    for group in groups:
        for count, offsets in draw(counted_sets).items():
            if held := offsets & left:
                group[count], left = held, left - held
    limit = draw(st.none() | st.integers(1, 6))
    leases, available, delayed = groups
    return snapshot(read=read, leases=leases, available=available, delayed=delayed, max_deliveries=limit)


@given(cursors_of_dead_runs(), ranges, announcements)
def test_a_replay_delivers_or_hands_back_each_open_message_once_and_nothing_that_has_ended(
    cursor: CursorSnapshot, queue: list[int], records: list[Redeliver]
) -> None:
    records = [one for one in records if one.cell == cursor.cell]
    batch = replay(cursor, *records, start=queue[0], stop=queue[1])
    planned = Counter(n for d in batch.deliveries for n in d.offsets)
    back = Counter(n for b in batch.hand_backs for n in b.offsets)
    assert all(times == 1 for times in (planned + back).values())
    inside = OffsetSet.of((queue[0], queue[1])) | OffsetSet.union(one.offsets for one in records)
    unseen = OffsetSet.of((queue[0], queue[1])).starting_at(cursor.read_position)
    counts = {n: count for count, offsets in cursor.delivery_counts().items() for n in offsets}
    limit = cursor.max_deliveries
    for delivery in batch.deliveries:
        assert delivery.offsets - inside == EMPTY
        for n in delivery.offsets:
            assert delivery.delivery_count == counts.get(n, 0) + 1
            assert n in unseen or n in cursor.outstanding, "it has ended"
            assert limit is None or delivery.delivery_count <= limit
    for one in batch.hand_backs:
        assert one.offsets - cursor.leased == EMPTY, "only what is leased can be released"
        assert all(one.delivery_count == counts[n] for n in one.offsets)
    exhausted = {n for n, count in counts.items() if limit is not None and count >= limit}
    assert {n for n in cursor.leased & inside if n not in exhausted} <= set(planned) | set(back)
    assert set(unseen) <= set(planned)


@given(cursors_of_dead_runs(), ranges)
def test_near_their_last_delivery_no_more_suspects_share_a_replay_than_may(
    cursor: CursorSnapshot, queue: list[int]
) -> None:
    batch = replay(cursor, start=queue[0], stop=queue[1])
    size = sum(len(d.offsets) for d in batch.deliveries)
    for delivery in batch.deliveries:
        if delivery.delivery_count > 1:
            most = company(
                delivery.delivery_count,
                max_deliveries=cursor.max_deliveries,
                suspects=len(delivery.offsets),
            )
            assert most is None or size <= most


# ---- tasks


def delivery(start: int, stop: int, *, partition: int = 0, count: int = 1) -> Delivery:
    return Delivery(cell=cell(partition), offsets=span(start, stop), delivery_count=count)


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


def test_hand_backs_name_the_delivery_that_is_given_back() -> None:
    batch = replay(snapshot(read=10, leases={3: some(1), 2: some(2)}))
    assert batch.hand_backs == (
        HandBack(cell=cell(), offsets=some(3 - 2), delivery_count=3),
        HandBack(cell=cell(), offsets=some(2), delivery_count=2),
    )
