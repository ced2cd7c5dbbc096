"""Contents of a batch that is replayed because the run that planned it died."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from spark_cursor_source.core.batch import (
    BatchPlan,
    Delivery,
    SourceOffset,
    TopicPartition,
    offsets_by_cell,
    queue_ranges,
)
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, Lease
from spark_cursor_source.core.marker import Leave
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.poison import max_group_size
from spark_cursor_source.core.tracker import Redeliver


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedLeases:
    """Outstanding messages when the tracker answered a run."""

    committed: Mapping[Cell, OffsetSet]  #: messages leased by dead runs, in batches that Spark has committed
    unsure: Mapping[Cell, OffsetSet]  #: other messages, which a cumulative ack would end


def orphaned_leases(
    cursors: Mapping[Cell, CursorSnapshot],
    *,
    start: SourceOffset | None,
    later: Callable[[], Iterable[Redeliver]],
    replayed: Mapping[Cell, OffsetSet],
    delivered: Mapping[Cell, OffsetSet],
) -> OrphanedLeases:
    """Returns the leases of dead runs, by the cursors with which the tracker answered this run.

    ``start`` is the end of the batches that Spark had committed when this run began, None without a
    checkpoint. A lease of a run that it does not name is of another query, or of a batch after it: a message
    below its positions may have been delivered by another query. ``later`` reads the announcements after
    ``start``: batches unknown to this checkpoint took their messages. ``replayed`` messages are left to their
    replayed batch. ``delivered`` messages belong to this run.
    """
    committed: dict[Cell, OffsetSet] = {}
    for cell, cursor in cursors.items():
        if start is None:
            break
        dead = OffsetSet.union(
            offsets for lease, offsets in cursor.leases if lease.run_id in start.runs and not lease.left
        )
        position = start.queue.get(cell.topic_partition, 0)
        if known := dead.below(position) - replayed.get(cell, EMPTY):
            committed[cell] = known
    if committed:  # most runs find none, and the announcements since their start may be many
        announced = offsets_by_cell(later())
        committed = {
            cell: left for cell, some in committed.items() if (left := some - announced.get(cell, EMPTY))
        }
    unsure = {
        cell: left
        for cell, cursor in cursors.items()
        if (left := cursor.outstanding - committed.get(cell, EMPTY) - delivered.get(cell, EMPTY))
    }
    return OrphanedLeases(committed=committed, unsure=unsure)


def plan_replay(
    subscription: str,
    start: SourceOffset,
    end: SourceOffset,
    records: Iterable[Redeliver],
    *,
    cursors: Mapping[Cell, CursorSnapshot],
) -> BatchPlan:
    """Plans the batch between two offsets again after the run that planned it died.

    The first replay has the same messages, except those that have ended or that a handler released with a
    delay. The plan releases messages that were replayed before. It also releases messages that would come
    near their last delivery together with others. It leaves messages at their last delivery to their leases:
    once Spark has committed the batch, a later run would take them for delivered. ``records`` are the
    announcements to all runs.
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
    hand_backs: list[Delivery] = []
    leaves: list[Leave] = []
    for cell, counts in planned.items():
        unseen = counts.get(1, EMPTY).starting_at(read_positions.get(cell, 0))
        if unseen:
            deliveries.append(Delivery(cell=cell, offsets=unseen, delivery_count=1))
        cursor = cursors.get(cell)
        if cursor is not None:
            again, back = _replay_cell(cursor, counts)
            deliveries += again
            hand_backs += back
            leaves += _exhausted(cursor, OffsetSet.union(counts.values()))
    return replace(_keep_apart(deliveries, hand_backs, cursors), leaves=tuple(leaves))


def leave_to_leases(
    subscription: str,
    start: SourceOffset,
    end: SourceOffset,
    records: Iterable[Redeliver],
    places: Collection[TopicPartition],
) -> tuple[Leave, ...]:
    """Leaves the part of a batch in these partitions to the leases of the runs of its checkpoint.

    A run replays the batch without the partitions that it does not hold. Spark commits the batch, and a later
    run would take these messages for delivered.
    """
    counts: dict[tuple[Cell, int], OffsetSet] = {}
    for cell, offsets in queue_ranges(subscription, start, end, {}).items():
        counts[cell, 1] = offsets
    for record in records:
        key = (record.cell, record.delivery_count + 1)
        counts[key] = counts.get(key, EMPTY) | record.offsets
    return tuple(
        Leave(cell=cell, offsets=offsets, delivery_count=count, run_id=run_id)
        for (cell, count), offsets in counts.items()
        for run_id in end.runs
        if offsets and cell.topic_partition in places
    )


def _exhausted(cursor: CursorSnapshot, batch: OffsetSet) -> list[Leave]:
    """Returns the markers for messages of the batch that are leased for their last delivery."""
    limit = cursor.max_deliveries
    return [
        Leave(cell=cursor.cell, offsets=held, delivery_count=lease.delivery_count, run_id=lease.run_id)
        for lease, offsets in cursor.leases
        if limit is not None
        and lease.delivery_count >= limit
        and not lease.left
        and (held := offsets & batch)
    ]


def _replay_cell(
    cursor: CursorSnapshot, planned: Mapping[int, OffsetSet]
) -> tuple[list[Delivery], list[Delivery]]:
    again: dict[int, OffsetSet] = {}
    back: dict[int, OffsetSet] = {}
    groups: list[tuple[Lease | Available | Delayed, OffsetSet]] = [*cursor.leases, *cursor.available]
    # Messages of a dead run do not wait for their backoff, because they belong to this batch.
    groups += [(delay, offsets) for delay, offsets in cursor.delayed if delay.died]
    batch = OffsetSet.union(planned.values())
    for group, offsets in groups:
        count = group.delivery_count
        if cursor.max_deliveries is not None and count >= cursor.max_deliveries:
            continue  # no deliveries left: a dead letter follows when the lease expires
        same = offsets & planned.get(count, EMPTY)
        if same:
            again[count] = again.get(count, EMPTY) | same
        later = (offsets & batch) - same
        # A lease with another count than planned means that this batch was replayed before. Available
        # messages were already announced to this run.
        if later and isinstance(group, Lease):
            back[count] = back.get(count, EMPTY) | later
    return (
        [Delivery(cell=cursor.cell, offsets=o, delivery_count=c + 1) for c, o in again.items()],
        [Delivery(cell=cursor.cell, offsets=o, delivery_count=c) for c, o in back.items()],
    )


def _keep_apart(
    deliveries: list[Delivery], hand_backs: list[Delivery], cursors: Mapping[Cell, CursorSnapshot]
) -> BatchPlan:
    """Releases suspects near their last delivery, unless they are few enough to be replayed."""
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
                Delivery(cell=delivery.cell, offsets=leased, delivery_count=delivery.delivery_count - 1)
            )
    return BatchPlan(deliveries=tuple(kept), hand_backs=tuple(hand_backs), alone=alone)


def _company(delivery: Delivery, cursor: CursorSnapshot) -> int | None:
    """Returns the maximum size of a replay with these suspects; None: no limit."""
    count, limit = delivery.delivery_count, cursor.max_deliveries
    if count == 1 or (count == 2 and limit is not None and count < limit):
        return None  # first deliveries are replayed as the same batch, unless it is their last delivery
    groups: list[tuple[Lease | Available | Delayed, OffsetSet]]
    groups = [*cursor.leases, *cursor.available, *cursor.delayed]
    grouped = any(group.grouped and not held.isdisjoint(delivery.offsets) for group, held in groups)
    return max_group_size(count, max_deliveries=limit, suspects=len(delivery.offsets), grouped=grouped)
