"""What a batch holds when the run that planned it has died: DESIGN's rules of replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease, Wait
from spark_cursor_source.core.isolation import company
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.planning import BatchPlan, Delivery, HandBack, SourceOffset, queue_ranges
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

    The first time, the same messages less those that have ended; what was replayed before, or would come near
    its last delivery in company, is handed back. ``records`` are those of every run.
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
    groups: list[tuple[Lease | Wait, OffsetSet]] = [*cursor.leases, *cursor.available]
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
    for delivery in deliveries:
        cursor = cursors.get(delivery.cell)
        most = None
        if delivery.delivery_count > 1 and cursor is not None:
            most = company(
                delivery.delivery_count, max_deliveries=cursor.max_deliveries, suspects=len(delivery.offsets)
            )
        if most is None or size <= most:
            kept.append(delivery)
            continue
        leased = cursor.leased & delivery.offsets if cursor is not None else EMPTY
        if leased:
            hand_backs.append(
                HandBack(cell=delivery.cell, offsets=leased, delivery_count=delivery.delivery_count - 1)
            )
    return BatchPlan(deliveries=tuple(kept), hand_backs=tuple(hand_backs))
