"""What a batch holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.batch import (
    BatchPlan,
    Delivery,
    RedeliveryRecord,
    SourceOffset,
    StartedDeliveries,
    plan,
    redelivered_between,
)
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.core.tracker import Redeliver
from tests.core.batches import (
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

# ---- a batch that is planned for the first time


def first_plan(
    start: SourceOffset,
    end: SourceOffset,
    *records: Redeliver,
    read_positions: Mapping[Cell, int] | None = None,
    taken: StartedDeliveries | None = None,
) -> BatchPlan:
    return plan(
        "s", start, end, records, read_positions=read_positions or {}, taken=taken or StartedDeliveries()
    )


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
    taken = StartedDeliveries()
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
    taken = StartedDeliveries()
    for one in records:
        before = taken.fresh(one.cell, one.offsets, delivery_count=one.delivery_count)
        taken.add(Delivery(cell=one.cell, offsets=before, delivery_count=one.delivery_count + 1))
        assert taken.fresh(one.cell, one.offsets, delivery_count=one.delivery_count) == EMPTY
        later = taken.fresh(one.cell, before, delivery_count=one.delivery_count + 1)
        assert later - before == EMPTY


def test_first_deliveries_are_not_remembered() -> None:
    taken = StartedDeliveries()
    taken.add(delivery(0, 10))
    assert taken.fresh(cell(), span(0, 10), delivery_count=1) == span(0, 10)


def test_what_was_never_delivered_is_fresh_whatever_was_taken_before() -> None:
    taken = StartedDeliveries()
    taken.add(delivery(0, 4, count=2))
    assert taken.fresh(cell(), span(0, 4), delivery_count=0) == span(0, 4)
    assert taken.fresh(cell(), span(0, 4), delivery_count=1) == EMPTY
    taken.add(delivery(0, 2))  # the second delivery was taken back
    assert taken.fresh(cell(), span(0, 4), delivery_count=1) == span(0, 2)


def test_what_has_ended_by_the_cursor_is_not_fresh_and_not_remembered() -> None:
    taken = StartedDeliveries()
    for first in range(0, 1000, 10):
        taken.add(delivery(first, first + 10, count=2))
    assert len(taken) == 1000
    taken.forget_below(cell(), 990)
    assert len(taken) == 10
    assert taken.fresh(cell(), span(0, 1000), delivery_count=2) == span(990, 1000)
    assert taken.fresh(cell(), span(980, 990), delivery_count=1) == EMPTY
    assert taken.fresh(cell(), span(980, 990), delivery_count=0) == span(980, 990), "it was queued again"
    taken.add(delivery(5, 7))  # somebody sought back
    assert taken.fresh(cell(), span(0, 8), delivery_count=1) == span(5, 8)


def test_a_batch_holds_of_the_record_at_its_end_what_is_below_the_cut() -> None:
    one = RedeliveryRecord(partition=0, offset=4, redeliver=announced(span(0, 10)))
    start = SourceOffset(queue={}, redeliveries={0: 4}, cuts={0: 3})
    end = SourceOffset(queue={}, redeliveries={0: 4}, cuts={0: 5})
    later = SourceOffset(queue={}, redeliveries={0: 9})
    assert [one.redeliver.offsets for one in redelivered_between([one], start, end)] == [span(3, 5)]
    assert [one.redeliver.offsets for one in redelivered_between([one], end, later)] == [span(5, 10)]


def test_suspects_have_a_position_of_their_own() -> None:
    alone = RedeliveryRecord(partition=0, offset=4, redeliver=announced(span(0, 2), alone=True))
    start = SourceOffset(queue={}, redeliveries={0: 4})
    passed = SourceOffset(queue={}, redeliveries={0: 9}, suspects={0: 4})
    assert redelivered_between([alone], start, passed) == []
    assert redelivered_between([alone], passed, replace(passed, suspects={0: 5})) == [alone]
    # One that was written when there was one position stood for both.
    assert redelivered_between([alone], start, SourceOffset(queue={}, redeliveries={0: 9})) == [alone]
