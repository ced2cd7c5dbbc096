"""What a batch holds: pure arithmetic over offsets, told everything and asking nothing.

Follows ``KafkaMicroBatchStream`` of Spark's Kafka source where the meaning is the same (admission).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.tracker import Redeliver

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """A position of the source: the next offset of every queue partition and redeliveries partition."""

    queue: Mapping[TopicPartition, int]
    redeliveries: Mapping[int, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)  #: of the queue topics, as the broker tells
    #: where the markers partitions ended before the Starts of the batch that ends here; V1 markers only
    markers: Mapping[int, int] = field(default_factory=dict)
    #: how often a batch ended where the one before it had: it had read again what somebody sought back to
    laps: int = 0
    #: where the batch that ends here begins, where that is not the end of the one before: it was sought, or
    #: a batch was logged and then not planned, because the partition was not this query's just then
    origins: Mapping[TopicPartition, int] = field(default_factory=dict)

    def origin(self, tp: TopicPartition, before: SourceOffset) -> int:
        """Where the batch that ends here, after the one that ends ``before``, begins in a queue partition."""
        return self.origins.get(tp, before.queue.get(tp, 0))

    def begun_elsewhere(self, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Of where the next batch begins: what is not where this one ended, the ``origins`` of the next."""
        return {tp: at for tp, at in begins.items() if at != self.queue.get(tp)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryRecord:
    """A record of the redeliveries topic."""

    partition: int
    offset: int
    redeliver: Redeliver


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Offsets of a cell that a batch delivers for the same time."""

    cell: Cell
    offsets: OffsetSet
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandBack:
    """Offsets of a cell, leased in a run that died, that are given back for another batch."""

    cell: Cell
    offsets: OffsetSet
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What a batch delivers, and what it gives back instead of delivering it again."""

    deliveries: tuple[Delivery, ...]
    hand_backs: tuple[HandBack, ...] = ()


class Taken:
    """What one run has started, so that an announcement of an earlier delivery is known as stale.

    Messages that were never delivered are announced to a run once, after the tracker has taken their delivery
    back: that is never stale, and with their first delivery those before it are forgotten.

    >>> taken, cell = Taken(), Cell(subscription="s", topic="t", partition=0)
    >>> taken.add(Delivery(cell=cell, offsets=OffsetSet.of((0, 5)), delivery_count=2))
    >>> taken.fresh(cell, OffsetSet.of((3, 8)), delivery_count=1).ranges
    ((5, 8),)
    >>> taken.fresh(cell, OffsetSet.of((3, 8)), delivery_count=2).ranges
    ((3, 8),)
    """

    def __init__(self) -> None:
        self._by_cell: dict[Cell, dict[int, OffsetSet]] = {}

    def add(self, delivery: Delivery) -> None:
        """A delivery was started; of first ones only what they follow matters."""
        if delivery.delivery_count > 1:
            counts = self._by_cell.setdefault(delivery.cell, {})
            counts[delivery.delivery_count] = counts.get(delivery.delivery_count, EMPTY) | delivery.offsets
            return
        counts = self._by_cell.get(delivery.cell, {})
        for count, taken in counts.items():
            counts[count] = taken - delivery.offsets

    def fresh(self, cell: Cell, offsets: OffsetSet, *, delivery_count: int) -> OffsetSet:
        """The offsets of an announcement after ``delivery_count`` deliveries that no later one has taken."""
        if delivery_count == 0:
            return offsets
        for count, taken in self._by_cell.get(cell, {}).items():
            if count > delivery_count:
                offsets = offsets - taken
        return offsets


def admit_redeliveries(
    pending: Sequence[RedeliveryRecord],
    start: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    budget: int | None,
    alone_next: bool,
) -> tuple[dict[int, int], int, bool]:
    """Up to where a batch takes the redeliveries: (next positions, messages taken, planned alone).

    ``pending`` holds the records from ``start`` to ``ends`` that are for this run, in order within a
    partition. A record that is to be planned alone stops its partition; where ``alone_next`` allows it, the
    first such record makes a batch of its own. At least one record is taken, even above the budget.
    """
    first_alone: dict[int, int] = {}
    first_ordinary: dict[int, int] = {}
    for record in pending:
        firsts = first_alone if record.redeliver.alone else first_ordinary
        firsts.setdefault(record.partition, record.offset)
    # What stands before a record to be planned alone, in its partition, goes first, with an ordinary batch.
    heads = [p for p, offset in first_alone.items() if offset < first_ordinary.get(p, offset + 1)]
    if heads and (alone_next or not first_ordinary.keys() - heads):
        # Out of turn too where nothing ordinary can go: or nothing would, for as long as the queue is empty.
        head = next(r for r in pending if r.redeliver.alone and r.partition == heads[0])
        return {**start, head.partition: head.offset + 1}, len(head.redeliver.offsets), True
    positions = {partition: max(end, start.get(partition, 0)) for partition, end in ends.items()}
    positions |= first_alone
    taken = 0
    stopped: set[int] = set()
    for record in pending:
        if record.partition in stopped or record.offset >= positions[record.partition]:
            continue
        size = len(record.redeliver.offsets)
        if budget is not None and taken and taken + size > budget:
            positions[record.partition] = record.offset
            stopped.add(record.partition)
        else:
            taken += size
    return positions, taken, False


def admit_queue(
    start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, budget: int | None
) -> dict[TopicPartition, int]:
    """Up to where a batch reads the queue; a budget is shared in proportion to what waits, as Spark does it.

    >>> admit_queue({("t", 0): 0, ("t", 1): 0}, {("t", 0): 300, ("t", 1): 100}, budget=40)
    {('t', 0): 30, ('t', 1): 10}
    """
    waiting = {tp: max(end - start.get(tp, 0), 0) for tp, end in ends.items()}
    total = sum(waiting.values())
    if budget is None or total <= budget:
        return {tp: max(end, start.get(tp, 0)) for tp, end in ends.items()}
    shares = {tp: budget * size // total for tp, size in waiting.items()}
    left = max(budget, 0) - sum(shares.values())
    for tp in sorted(waiting, key=lambda tp: -waiting[tp]):
        # What the division leaves over goes to the longest ones, so that a small budget moves at all.
        if left > 0 and shares[tp] < waiting[tp]:
            shares[tp] += 1
            left -= 1
    return {tp: start.get(tp, 0) + share for tp, share in shares.items()}


def plan(
    subscription: str,
    start: SourceOffset,
    end: SourceOffset,
    records: Iterable[Redeliver],
    *,
    read_positions: Mapping[Cell, int],
    taken: Taken,
) -> BatchPlan:
    """The batch between two offsets, planned for the first time by this run.

    Queue offsets below the read position belong to the tracker: only an announcement brings them back.
    """
    again: dict[tuple[Cell, int], OffsetSet] = {}
    for record in records:
        offsets = taken.fresh(record.cell, record.offsets, delivery_count=record.delivery_count)
        key = (record.cell, record.delivery_count + 1)
        again[key] = again.get(key, EMPTY) | offsets
    for cell, offsets in queue_ranges(subscription, start, end, read_positions).items():
        again[cell, 1] = again.get((cell, 1), EMPTY) | offsets
    deliveries: list[Delivery] = []
    planned: dict[Cell, OffsetSet] = {}
    # Once each: of several announcements of a message, and of one and the queue, the latest delivery counts.
    for (cell, count), offsets in sorted(again.items(), key=lambda item: -item[0][1]):
        fresh = offsets - planned.get(cell, EMPTY)
        planned[cell] = planned.get(cell, EMPTY) | fresh
        if fresh:
            deliveries.append(Delivery(cell=cell, offsets=fresh, delivery_count=count))
    return BatchPlan(deliveries=tuple(deliveries))


def queue_ranges(
    subscription: str, start: SourceOffset, end: SourceOffset, read_positions: Mapping[Cell, int]
) -> dict[Cell, OffsetSet]:
    """The queue offsets of a batch, of each cell; none below its read position."""
    ranges = {}
    for (topic, partition), stop in end.queue.items():
        cell = Cell(subscription=subscription, topic=topic, partition=partition)
        begin = max(end.origin((topic, partition), start), read_positions.get(cell, 0))
        ranges[cell] = OffsetSet.of((begin, stop))
    return ranges
