"""Contents of a batch, as pure arithmetic over offsets without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Leave
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.tracker import Redeliver

TopicPartition = tuple[str, int]
MAX_RUNS = 8  #: limit of the run ids in an offset. All batches but the last one are acked when it is logged.


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """Position of the source: the next offset of every queue partition and redeliveries partition."""

    queue: Mapping[TopicPartition, int]
    redeliveries: Mapping[int, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)  #: ids of the queue topics, from the broker
    #: id of the redeliveries topic of these positions; None: unknown, as in offsets of earlier versions
    redeliveries_id: str | None = None
    #: end of each markers partition before the Starts of the batch that ends here; V1 markers only
    markers: Mapping[int, int] = field(default_factory=dict)
    #: number of batches that ended where the previous batch ended, because they replayed after a Seek
    laps: int = 0
    #: start of the batch that ends here, in partitions where it differs from the end of the previous batch.
    #: It differs after a Seek, and after a logged batch was not planned because the partition was reassigned.
    origins: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: redeliveries positions of messages that are planned alone, where they differ from ``redeliveries``
    suspects: Mapping[int, int] = field(default_factory=dict)
    #: messages below this offset are taken from the record at the position in ``redeliveries``
    cuts: Mapping[int, int] = field(default_factory=dict)
    suspect_cuts: Mapping[int, int] = field(default_factory=dict)  #: the same for ``suspects``
    #: leader epoch of queue partitions whose log had reached the position by then; missing: unknown
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: run ids of the runs that planned the last batches of this checkpoint, where the source acks and keeps
    #: no order of keys; the last run comes last. A later run acks the leases of no other run.
    runs: tuple[str, ...] = ()

    def lane(self, *, alone: bool) -> Lane:
        """Returns the progress through the redeliveries that are planned alone, or through all others."""
        if alone:
            return Lane(positions={**self.redeliveries, **self.suspects}, cuts=self.suspect_cuts)
        return Lane(positions=self.redeliveries, cuts=self.cuts)

    def with_lanes(self, ordinary: Lane, suspects: Lane) -> SourceOffset:
        """Returns a copy with other positions of redeliveries."""
        apart = {p: at for p, at in suspects.positions.items() if at != ordinary.positions.get(p)}
        return replace(
            self,
            redeliveries=ordinary.positions,
            cuts=ordinary.cuts,
            suspects=apart,
            suspect_cuts=suspects.cuts,
        )

    def origin(self, tp: TopicPartition, before: SourceOffset) -> int:
        """Returns where the batch between ``before`` and this offset begins in a queue partition."""
        return self.origins.get(tp, before.queue.get(tp, 0))

    def planned_by(self, run_ids: Iterable[str]) -> tuple[str, ...]:
        """Returns the ``runs`` of the next batch, if it is planned under these run ids.

        >>> SourceOffset(queue={}, redeliveries={}, runs=("a", "b")).planned_by({"c", "a"})
        ('b', 'a', 'c')
        """
        new = sorted(set(run_ids))
        return (*(one for one in self.runs if one not in new), *new)[-MAX_RUNS:]

    def begun_elsewhere(self, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the ``origins`` of the next batch: the start positions that differ from this end."""
        return {tp: at for tp, at in begins.items() if at != self.queue.get(tp)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryRecord:
    """Announcement read from the redeliveries topic."""

    partition: int
    offset: int
    redeliver: Redeliver


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Progress through redeliveries of one kind: a position per partition, and a cut in the record at it.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> one = Redeliver(cell=cell, offsets=OffsetSet.of((0, 9)), delivery_count=1, run_id="r", alone=False)
    >>> lane = Lane(positions={0: 5}, cuts={0: 3})
    >>> [lane.rest(RedeliveryRecord(partition=0, offset=n, redeliver=one)).ranges for n in (4, 5, 6)]
    [(), ((3, 9),), ((0, 9),)]
    """

    positions: Mapping[int, int]
    cuts: Mapping[int, int]

    def rest(self, record: RedeliveryRecord) -> OffsetSet:
        """Returns the messages of a record that are not taken."""
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
    """Returns the parts of the records that the batch between two offsets holds."""
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
    """Offsets of a cell that a batch delivers, or gives back, with the same delivery count."""

    cell: Cell
    offsets: OffsetSet
    delivery_count: int


class OfCell(Protocol):
    """Offsets of a cell: a delivery, a marker of messages, or an announcement."""

    @property
    def cell(self) -> Cell: ...

    @property
    def offsets(self) -> OffsetSet: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Messages that a batch delivers, and messages that it releases instead of redelivering them."""

    deliveries: tuple[Delivery, ...]
    hand_backs: tuple[Delivery, ...] = ()  #: leased by a dead run, and released for another batch
    leaves: tuple[Leave, ...] = ()  #: messages of a replayed batch that stay with the lease of a dead run
    alone: bool = False  #: the batch holds suspects and no other messages


def offsets_by_cell(some: Iterable[OfCell]) -> dict[Cell, OffsetSet]:
    """Returns the offsets of each cell in deliveries or markers."""
    found: dict[Cell, OffsetSet] = {}
    for one in some:
        found[one.cell] = found.get(one.cell, EMPTY) | one.offsets
    return found


class StartedDeliveries:
    """Deliveries that one run has started, to detect stale announcements of earlier deliveries.

    Never-delivered messages are announced to a run once, after the tracker has cancelled their delivery. That
    announcement is never stale. The first delivery of a message discards all deliveries recorded before it.

    >>> taken, cell = StartedDeliveries(), Cell(subscription="s", topic="t", partition=0)
    >>> taken.add(Delivery(cell=cell, offsets=OffsetSet.of((0, 5)), delivery_count=2))
    >>> taken.fresh(cell, OffsetSet.of((3, 8)), delivery_count=1).ranges
    ((5, 8),)
    >>> taken.fresh(cell, OffsetSet.of((3, 8)), delivery_count=2).ranges
    ((3, 8),)
    """

    def __init__(self) -> None:
        # Pieces of falling size: a batch is added without copying all earlier offsets.
        self._by_cell: dict[Cell, dict[int, list[OffsetSet]]] = {}
        self._gone_below: dict[Cell, int] = {}

    def add(self, delivery: Delivery) -> None:
        """Records a started delivery; a first delivery only discards the earlier ones of its messages."""
        cell, offsets = delivery.cell, delivery.offsets
        if delivery.delivery_count > 1:
            pieces = self._by_cell.setdefault(cell, {}).setdefault(delivery.delivery_count, [])
            pieces.append(offsets)
            while len(pieces) > 1 and len(pieces[-2]) <= 2 * len(pieces[-1]):
                pieces[-2:] = [pieces[-2] | pieces[-1]]
            return
        if offsets.first is not None and offsets.first < self._gone_below.get(cell, 0):
            self._gone_below[cell] = offsets.first  # a Seek moved the read position back
        for pieces in self._by_cell.get(cell, {}).values():
            pieces[:] = [left for one in pieces if (left := one - offsets)]

    def cancel(self, cell: Cell, offsets: OffsetSet, *, delivery_count: int) -> None:
        """Forgets a delivery of these messages that does not count."""
        pieces = self._by_cell.get(cell, {}).get(delivery_count, [])
        pieces[:] = [left for one in pieces if (left := one - offsets)]

    def fresh(self, cell: Cell, offsets: OffsetSet, *, delivery_count: int) -> OffsetSet:
        """Returns the announced offsets that no delivery after the ``delivery_count``-th has taken."""
        if delivery_count == 0:
            return offsets  # announced once; a Requeue may name messages that ended long ago
        offsets = offsets.starting_at(self._gone_below.get(cell, 0))
        for count, pieces in self._by_cell.get(cell, {}).items():
            if count > delivery_count:
                for taken in pieces:
                    offsets = offsets - taken
        return offsets

    def forget_below(self, cell: Cell, position: int) -> None:
        """Forgets all messages below the position, which have ended; announcements of them are stale."""
        if position <= self._gone_below.get(cell, 0):
            return
        self._gone_below[cell] = position
        for count, pieces in list(self._by_cell.get(cell, {}).items()):
            pieces[:] = [left for one in pieces if (left := one.starting_at(position))]
            if not pieces:
                del self._by_cell[cell][count]

    def forget(self, cell: Cell) -> None:
        """Forgets all messages of a cell."""
        self._gone_below.pop(cell, None)
        self._by_cell.pop(cell, None)

    def __len__(self) -> int:
        """Returns the number of recorded deliveries of messages."""
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
    """Plans the batch between two offsets for the first time in this run.

    Queue offsets below the read position belong to the tracker: only an announcement redelivers them.
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
    # A message goes once. If announcements and the queue name it several times, the highest delivery
    # count wins.
    for (cell, count), offsets in sorted(again.items(), key=lambda item: -item[0][1]):
        fresh = offsets - planned.get(cell, EMPTY)
        planned[cell] = planned.get(cell, EMPTY) | fresh
        if fresh:
            deliveries.append(Delivery(cell=cell, offsets=fresh, delivery_count=count))
    return BatchPlan(deliveries=tuple(deliveries), alone=alone)


def queue_ranges(
    subscription: str, start: SourceOffset, end: SourceOffset, read_positions: Mapping[Cell, int]
) -> dict[Cell, OffsetSet]:
    """Returns the queue offsets of a batch by cell, without those below the read position."""
    ranges = {}
    for (topic, partition), stop in end.queue.items():
        cell = Cell(subscription=subscription, topic=topic, partition=partition)
        begin = max(end.origin((topic, partition), start), read_positions.get(cell, 0))
        ranges[cell] = OffsetSet.of((begin, stop))
    return ranges


def paused_queue_ends(
    ends: Mapping[TopicPartition, int],
    origin: Mapping[TopicPartition, int],
    paused: Collection[TopicPartition],
) -> Mapping[TopicPartition, int]:
    """Returns the end of the batch in each queue partition; a paused partition does not advance.

    >>> paused_queue_ends({("t", 0): 9, ("t", 1): 9}, {("t", 0): 4, ("t", 1): 4}, {("t", 0)})
    {('t', 0): 4, ('t', 1): 9}
    """
    if not paused:
        return ends
    return {tp: min(end, origin.get(tp, end)) if tp in paused else end for tp, end in ends.items()}
