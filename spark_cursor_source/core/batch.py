"""What a batch holds: pure arithmetic over offsets, told everything and asking nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

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
    #: of the redeliveries topic that the positions are of; None: not told, as by earlier versions
    redeliveries_id: str | None = None
    #: where the markers partitions ended before the Starts of the batch that ends here; V1 markers only
    markers: Mapping[int, int] = field(default_factory=dict)
    #: how often a batch ended where the one before it had: it had read again what somebody sought back to
    laps: int = 0
    #: where the batch that ends here begins, where that is not the end of the one before: it was sought, or
    #: a batch was logged and then not planned, because the partition was not this query's just then
    origins: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: the same as ``redeliveries`` of those that are planned alone, where it is another position
    suspects: Mapping[int, int] = field(default_factory=dict)
    #: of the record at a position of ``redeliveries``: the messages below are taken
    cuts: Mapping[int, int] = field(default_factory=dict)
    suspect_cuts: Mapping[int, int] = field(default_factory=dict)  #: the same at ``suspects``

    def lane(self, *, alone: bool) -> Lane:
        """How far the redeliveries are taken: those that are planned alone, or all others."""
        if alone:
            return Lane(positions={**self.redeliveries, **self.suspects}, cuts=self.suspect_cuts)
        return Lane(positions=self.redeliveries, cuts=self.cuts)

    def with_lanes(self, ordinary: Lane, suspects: Lane) -> SourceOffset:
        """The same with other positions of redeliveries."""
        apart = {p: at for p, at in suspects.positions.items() if at != ordinary.positions.get(p)}
        return replace(
            self,
            redeliveries=ordinary.positions,
            cuts=ordinary.cuts,
            suspects=apart,
            suspect_cuts=suspects.cuts,
        )

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
class Lane:
    """How far redeliveries of one kind are taken: the records below a position, and a part of the one at it.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> one = Redeliver(cell=cell, offsets=OffsetSet.of((0, 9)), delivery_count=1, run_id="r", alone=False)
    >>> lane = Lane(positions={0: 5}, cuts={0: 3})
    >>> [lane.rest(RedeliveryRecord(partition=0, offset=n, redeliver=one)).ranges for n in (4, 5, 6)]
    [(), ((3, 9),), ((0, 9),)]
    """

    positions: Mapping[int, int]
    cuts: Mapping[int, int]

    def rest(self, record: RedeliveryRecord) -> OffsetSet:
        """The messages of a record that are not taken."""
        position = self.positions.get(record.partition, 0)
        if record.offset < position:
            return EMPTY
        offsets = record.redeliver.offsets
        return (
            offsets.starting_at(self.cuts.get(record.partition, 0)) if record.offset == position else offsets
        )


def redelivered_between(
    records: Iterable[RedeliveryRecord], start: SourceOffset, end: SourceOffset
) -> list[RedeliveryRecord]:
    """What of the records the batch between two offsets holds."""
    found = []
    begin = start.lane(alone=False), start.lane(alone=True)
    stop = end.lane(alone=False), end.lane(alone=True)
    for record in records:
        alone = record.redeliver.alone
        offsets = begin[alone].rest(record) - stop[alone].rest(record)
        if offsets:
            found.append(replace(record, redeliver=replace(record.redeliver, offsets=offsets)))
    return found


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
    alone: bool = False  #: it holds suspects, and nothing else


class StartedDeliveries:
    """What one run has started, so that an announcement of an earlier delivery is known as stale.

    Messages that were never delivered are announced to a run once, after the tracker has taken their delivery
    back: that is never stale, and with their first delivery those before it are forgotten.

    >>> taken, cell = StartedDeliveries(), Cell(subscription="s", topic="t", partition=0)
    >>> taken.add(Delivery(cell=cell, offsets=OffsetSet.of((0, 5)), delivery_count=2))
    >>> taken.fresh(cell, OffsetSet.of((3, 8)), delivery_count=1).ranges
    ((5, 8),)
    >>> taken.fresh(cell, OffsetSet.of((3, 8)), delivery_count=2).ranges
    ((3, 8),)
    """

    def __init__(self) -> None:
        # In pieces whose sizes fall, so that a batch is added without a copy of all that came before.
        self._by_cell: dict[Cell, dict[int, list[OffsetSet]]] = {}
        self._gone_below: dict[Cell, int] = {}

    def add(self, delivery: Delivery) -> None:
        """A delivery was started; of first ones only what they follow matters."""
        cell, offsets = delivery.cell, delivery.offsets
        if delivery.delivery_count > 1:
            pieces = self._by_cell.setdefault(cell, {}).setdefault(delivery.delivery_count, [])
            pieces.append(offsets)
            while len(pieces) > 1 and len(pieces[-2]) <= 2 * len(pieces[-1]):
                pieces[-2:] = [pieces[-2] | pieces[-1]]
            return
        if offsets.first is not None and offsets.first < self._gone_below.get(cell, 0):
            self._gone_below[cell] = offsets.first  # somebody sought back
        for pieces in self._by_cell.get(cell, {}).values():
            pieces[:] = [left for one in pieces if (left := one - offsets)]

    def fresh(self, cell: Cell, offsets: OffsetSet, *, delivery_count: int) -> OffsetSet:
        """The offsets of an announcement after ``delivery_count`` deliveries that no later one has taken."""
        offsets = offsets.starting_at(self._gone_below.get(cell, 0))
        if delivery_count == 0:
            return offsets
        for count, pieces in self._by_cell.get(cell, {}).items():
            if count > delivery_count:
                for taken in pieces:
                    offsets = offsets - taken
        return offsets

    def forget_below(self, cell: Cell, position: int) -> None:
        """Everything below has ended: nothing of it is fresh, and nothing more is to be known of it."""
        if position <= self._gone_below.get(cell, 0):
            return
        self._gone_below[cell] = position
        for count, pieces in list(self._by_cell.get(cell, {}).items()):
            pieces[:] = [left for one in pieces if (left := one.starting_at(position))]
            if not pieces:
                del self._by_cell[cell][count]

    def __len__(self) -> int:
        """How many deliveries are known."""
        return sum(
            len(one) for counts in self._by_cell.values() for pieces in counts.values() for one in pieces
        )


def plan(
    subscription: str,
    start: SourceOffset,
    end: SourceOffset,
    records: Iterable[Redeliver],
    *,
    read_positions: Mapping[Cell, int],
    taken: StartedDeliveries,
) -> BatchPlan:
    """The batch between two offsets, planned for the first time by this run.

    Queue offsets below the read position belong to the tracker: only an announcement brings them back.
    """
    again: dict[tuple[Cell, int], OffsetSet] = {}
    alone = False
    for record in records:
        alone = alone or record.alone
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
    return BatchPlan(deliveries=tuple(deliveries), alone=alone)


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
