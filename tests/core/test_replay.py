"""What a batch holds whose run died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.batch import BatchPlan, Delivery
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, Lease
from spark_cursor_source.core.marker import Leave
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.poison import max_group_size
from spark_cursor_source.core.replay import leave_to_leases, plan_replay
from spark_cursor_source.core.tracker import Redeliver
from tests.core.batches import (
    DEAD,
    announced,
    announcements,
    at,
    cell,
    delivered,
    handed_back,
    offset_sets,
    ranges,
    some,
    span,
)


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
        available=tuple((Available(n, True), held) for n, held in (available or {}).items()),
        delayed=tuple((Delayed(60_000, n, True), held) for n, held in (delayed or {}).items()),
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


def test_what_died_is_replayed_whether_its_backoff_is_over_or_not() -> None:
    # S(0-9, 1) -- the lease is over, and 5 s of backoff begin -- 0-9 again, in the same batch
    assert delivered(replay(snapshot(read=10, delayed={1: span(0, 10)}))) == {(0, 2): ((0, 10),)}


def test_what_a_handler_gave_back_with_a_delay_waits_for_it() -> None:
    given_back = replace(snapshot(read=10), delayed=((Delayed(60_000, 1, False), span(0, 4)),))
    assert replay(given_back) == BatchPlan(deliveries=())


def test_a_batch_of_first_deliveries_is_replayed_whole_unless_it_would_be_the_last() -> None:
    for limit in (3, 4, 5, None):
        batch = replay(snapshot(read=10, leases={1: span(0, 10)}, max_deliveries=limit))
        assert delivered(batch) == {(0, 2): ((0, 10),)}
        assert not batch.alone, "a death in this max_group_size is not that of a group of suspects"


def test_suspects_that_died_in_a_group_are_not_replayed_together() -> None:
    grouped = ((Lease(60_000, 4, DEAD, grouped=True), span(0, 3)),)
    batch = replay(replace(snapshot(read=10), leases=grouped), announced(span(0, 3), count=3, run=DEAD))
    assert batch.deliveries == ()
    assert handed_back(batch) == {(0, 4): ((0, 3),)}


def test_a_replay_of_few_suspects_is_one_of_suspects() -> None:
    record = announced(some(9), count=3, run=DEAD)
    batch = replay(snapshot(read=10, leases={4: some(9)}), record, start=10)
    assert (delivered(batch), batch.alone) == ({(0, 5): ((9, 10),)}, True)


def test_what_was_not_due_is_left_to_its_announcement() -> None:
    # S(0-9, 1) -- R(4-6, not due) -- 4 announced, S(4, 1) -- crash: 4 was delivered, 5 and 6 never
    cursor = snapshot(read=10, leases={1: some(4, 9)}, available={0: some(5)}, delayed={0: some(6)})
    batch = replay(cursor, announced(some(4), count=0))
    assert delivered(batch) == {(0, 2): ((4, 5), (9, 10))}
    assert not batch.hand_backs


def test_a_message_at_its_last_delivery_is_left_to_its_lease() -> None:
    # 12 is of another batch, and the sink has left 5 itself
    cursor = snapshot(read=20, leases={1: some(4, 12)}, max_deliveries=1)
    by_sink = Lease(60_000, 1, DEAD, left=True), some(5)
    batch = replay(replace(cursor, leases=(*cursor.leases, by_sink)))
    left = Leave(cell=cell(), offsets=some(4), delivery_count=1, run_id=DEAD)
    assert batch == BatchPlan(deliveries=(), leaves=(left,))


def test_the_part_of_a_batch_in_partitions_that_a_replay_does_not_hold_is_left_to_the_leases() -> None:
    # partition 0 is held, 1 is not: there the batch was 0-9, and 3 for the third time
    start, end = at({0: 0, 1: 0}), replace(at({0: 10, 1: 10, 2: 0}), runs=("a", "b"))
    records = [announced(some(3), count=2, partition=1), announced(some(4), partition=0)]
    left = leave_to_leases("s", start, end, records, [("t", 1), ("t", 2)])
    assert [(one.cell.partition, one.offsets, one.delivery_count, one.run_id) for one in left] == [
        (1, span(0, 10), 1, "a"),
        (1, span(0, 10), 1, "b"),
        (1, some(3), 3, "a"),
        (1, some(3), 3, "b"),
    ]


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
    left = {n for one in batch.leaves for n in one.offsets}
    exhausted = {n for n, count in counts.items() if limit is not None and count >= limit}
    assert {n for n in cursor.leased & inside if n not in exhausted} <= set(planned) | set(back)
    assert set(unseen) <= set(planned)
    assert left == exhausted & set(cursor.leased & inside), "what is neither delivered nor given back"


@given(cursors_of_dead_runs(), ranges)
def test_near_their_last_delivery_no_more_suspects_share_a_replay_than_may(
    cursor: CursorSnapshot, queue: list[int]
) -> None:
    batch = replay(cursor, start=queue[0], stop=queue[1])
    size = sum(len(d.offsets) for d in batch.deliveries)
    for delivery in batch.deliveries:
        count, limit = delivery.delivery_count, cursor.max_deliveries
        if count > 2 or (count == 2 and limit == 2):
            most = max_group_size(
                delivery.delivery_count,
                max_deliveries=cursor.max_deliveries,
                suspects=len(delivery.offsets),
            )
            assert most is None or size <= most


def test_hand_backs_name_the_delivery_that_is_given_back() -> None:
    batch = replay(snapshot(read=10, leases={3: some(1), 2: some(2)}))
    assert batch.hand_backs == (
        Delivery(cell=cell(), offsets=some(3 - 2), delivery_count=3),
        Delivery(cell=cell(), offsets=some(2), delivery_count=2),
    )
