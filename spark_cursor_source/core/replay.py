"""What a batch holds when the run that planned it has died: DESIGN's rules of replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_cursor_source.core.batch import BatchPlan, Delivery, HandBack, SourceOffset, queue_ranges
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, Lease
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.poison import max_group_size
from spark_cursor_source.core.tracker import Redeliver


def plan_replay(
    subscription: str,
    start: SourceOffset,
    end: SourceOffset,
    records: Iterable[Redeliver],
    *,
    cursors: Mapping[Cell, CursorSnapshot],
) -> BatchPlan:
    """The batch between two offsets after the run that planned it died.

    The first time, the same messages less those that have ended or that a handler gave back with a delay;
    what was replayed before, or would come near its last delivery in company, is handed back. ``records`` are
    those of every run.
    """
    read_positions = {cell: cursor.read_position for cell, cursor in cursors.items()}
    planned: dict[Cell, dict[int, OffsetSet]] = {}
    for cell, offsets in queue_ranges(subscription, start, end, {}).items():
        planned.setdefault(cell, {})[1] = offsets
    for record in records:
        counts = planned.setdefault(record.cell, {})
        count = record.delivery_count + 1
        counts[count] = counts.get(count, EMPTY) | record.offsets
    deliveries: list[Delivery] = []
    hand_backs: list[HandBack] = []
    for cell, counts in planned.items():
        unseen = counts.get(1, EMPTY).starting_at(read_positions.get(cell, 0))
        if unseen:
            deliveries.append(Delivery(cell=cell, offsets=unseen, delivery_count=1))
        cursor = cursors.get(cell)
        if cursor is not None:
            again, back = _replay_cell(cursor, counts)
            deliveries += again
            hand_backs += back
    return _keep_apart(deliveries, hand_backs, cursors)


def _replay_cell(
    cursor: CursorSnapshot, planned: Mapping[int, OffsetSet]
) -> tuple[list[Delivery], list[HandBack]]:
    again: dict[int, OffsetSet] = {}
    back: dict[int, OffsetSet] = {}
    groups: list[tuple[Lease | Available | Delayed, OffsetSet]] = [*cursor.leases, *cursor.available]
    # The backoff of a delivery whose run died is not waited for: this batch is where the messages belong.
    groups += [(delay, offsets) for delay, offsets in cursor.delayed if delay.died]
    batch = OffsetSet.union(planned.values())
    for group, offsets in groups:
        count = group.delivery_count
        if cursor.max_deliveries is not None and count >= cursor.max_deliveries:
            continue  # no Start would hold it: its lease runs out and it is a dead letter
        same = offsets & planned.get(count, EMPTY)
        if same:
            again[count] = again.get(count, EMPTY) | same
        later = (offsets & batch) - same
        # Leased with another count than planned: this batch was replayed before. Available ones were
        # announced to this run already.
        if later and isinstance(group, Lease):
            back[count] = back.get(count, EMPTY) | later
    return (
        [Delivery(cell=cursor.cell, offsets=o, delivery_count=c + 1) for c, o in again.items()],
        [HandBack(cell=cursor.cell, offsets=o, delivery_count=c) for c, o in back.items()],
    )


def _keep_apart(
    deliveries: list[Delivery], hand_backs: list[HandBack], cursors: Mapping[Cell, CursorSnapshot]
) -> BatchPlan:
    """Suspects near their last delivery are handed back, unless they are few enough to be replayed."""
    size = sum(len(delivery.offsets) for delivery in deliveries)
    kept: list[Delivery] = []
    alone = False
    for delivery in deliveries:
        cursor = cursors.get(delivery.cell)
        most = None if cursor is None else _company(delivery, cursor)
        if most is None or size <= most:
            kept.append(delivery)
            alone = alone or most is not None
            continue
        leased = cursor.leased & delivery.offsets if cursor is not None else EMPTY
        if leased:
            hand_backs.append(
                HandBack(cell=delivery.cell, offsets=leased, delivery_count=delivery.delivery_count - 1)
            )
    return BatchPlan(deliveries=tuple(kept), hand_backs=tuple(hand_backs), alone=alone)


def _company(delivery: Delivery, cursor: CursorSnapshot) -> int | None:
    """How many may be in a replay with these suspects; None: any number."""
    count, limit = delivery.delivery_count, cursor.max_deliveries
    if count == 1 or (count == 2 and limit is not None and count < limit):
        return None  # a batch of first deliveries is the same batch once more, unless it would be the last
    groups: list[tuple[Lease | Available | Delayed, OffsetSet]]
    groups = [*cursor.leases, *cursor.available, *cursor.delayed]
    grouped = any(group.grouped and not held.isdisjoint(delivery.offsets) for group, held in groups)
    return max_group_size(count, max_deliveries=limit, suspects=len(delivery.offsets), grouped=grouped)
