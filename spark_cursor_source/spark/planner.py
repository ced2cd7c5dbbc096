"""The driver's side of a streaming query: what each batch holds, under which leases, and what follows it.

One planner is one run of the query. Its memory is a cache: a second planner that is built from the same
checkpoint and the same topics plans the same.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.leftovers import leftovers
from spark_cursor_source.core.marker import End, EndUpTo, KeepAlive, Marker, Release, Start
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
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
    plan_replay,
    split,
)
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.source_options import AckMode, Isolation, SourceOptions
from spark_cursor_source.errors import MarkerFormatChanged
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.cursors import CursorTail
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.markers import MarkerSender
from spark_cursor_source.kafka.redeliveries import RedeliveryTail
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.spark.group_progress import GroupProgress
from spark_cursor_source.spark.lease_keeper import LeaseKeeper
from spark_cursor_source.spark.patience import Patience
from spark_cursor_source.spark.queue_view import QueueView
from spark_cursor_source.spark.run import Run

log = logging.getLogger(__name__)
HANDED_BACK = "the run that held it died"


class Planner:
    """One run: from the first question of Spark to the last."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topics = Topics(client_config(options.kafka, "admin"), timeout_ms=PATIENCE_MS)
        control = self._topics.ensure_control(
            markers=options.markers_topic,
            redeliveries=options.redeliveries_topic,
            cursors=options.cursors_topic,
        )
        self.markers_partitions = control.markers
        self._redelivery_partitions = range(control.redeliveries)
        self._sender = MarkerSender(
            client_config(options.kafka, "producer"), options.markers_topic, control.markers
        )
        self._cursors = CursorTail(
            client_config(options.kafka, "consumer"), options.cursors_topic, timeout_ms=PATIENCE_MS
        )
        self._redeliveries = RedeliveryTail(
            client_config(options.kafka, "consumer"), options.redeliveries_topic
        )
        self._queue = QueueView(options, self._topics)
        self._run = Run(uuid.uuid4().hex, options, self._cursors, self._send)
        self._keeper = LeaseKeeper(self._extend, lease_ms=options.lease_ms)
        self._group = GroupProgress(self._topics, options.subscription)
        self._patience = Patience(options)
        self._began = False
        self._new_subscription = False  # found so by initial_offset
        self._asked_for_latest = False
        self._pending: list[RedeliveryRecord] = []
        self._scanned: dict[int, int] = {}
        self._taken = Taken()
        self._alone_last = False
        self._first_planned: dict[TopicPartition, int] = {}
        self._is_full = False  # maxOutstanding is reached
        self.outstanding: int | None = None  #: with the batch to come, where there is a limit
        self.now_ms = 0  #: broker time of the last plan, by its Starts
        self._in_progress: BatchPlan | None = None
        self._beginning: SourceOffset | None = None  # of a query without a checkpoint
        self._replayed: dict[Cell, OffsetSet] = {}
        self._looked_back = False  # at what dead runs left
        self._apart: set[Cell] = set()  # with messages that a cumulative ack must not end
        self._last_ends = SourceOffset(queue={}, redeliveries={})
        self._bound: SourceOffset | None = None

    # -- what Spark asks -------------------------------------------------------------------------------

    def initial_offset(self) -> SourceOffset:
        """Where a query without a checkpoint begins.

        The same answer again after a crash before the first commit: where a new subscription begins is made
        durable, as its consumer group's offsets, before anything is planned. And the same again in this run:
        Spark asks at every trigger and then to plan the first batch, which would else begin after the
        redeliveries that it was to take.
        """
        if self._beginning is None:
            self._beginning = self._find_beginning()
        return self._beginning

    def latest_offset(self, start: SourceOffset, *, max_offsets: int | None) -> SourceOffset:
        """Up to where the next batch goes; ``start`` where there is nothing to deliver."""
        self._begin(start)
        self._asked_for_latest = True
        self._finish_batch(start)
        if self._queue.discover():
            self._cursors.refresh()
            self._run.check_alone()
        self._run.listen()
        queue_ends, redelivery_ends = self._ends()
        self._collect(start, redelivery_ends)
        origin = self._origin(start, queue_ends)
        positions, taken, alone = admit_redeliveries(
            self._pending,
            {p: start.redeliveries.get(p, 0) for p in self._redelivery_partitions},
            redelivery_ends,
            budget=max_offsets,
            alone_next=not self._alone_last,
        )
        if alone:
            queue = origin
        else:
            limits = [] if max_offsets is None else [max(max_offsets - taken, 0)]
            limits += self._room(origin)
            queue = admit_queue(origin, queue_ends, budget=min(limits, default=None))
        new = sum(max(queue[tp] - origin[tp], 0) for tp in queue)
        waiting = taken + new
        if not waiting or self._patience.waits_for_more(waiting):
            self._group.follow(start.queue, force=True)
            return start
        self._queue.refresh()
        if self.outstanding is not None:
            self.outstanding += new
        return SourceOffset(
            queue={**start.queue, **queue},
            redeliveries=positions,
            topic_ids={**start.topic_ids, **self._queue.topic_ids},
        )

    def plan(self, start: SourceOffset, end: SourceOffset) -> list[tuple[Slice, ...]]:
        """The slices of each task of a batch, its Starts acknowledged by the broker.

        Called once a batch, after Spark has logged its offsets and before any row of it reaches anybody.
        """
        self._begin(start)
        records = self._redeliveries.between(start.redeliveries, end.redeliveries)
        if self._asked_for_latest:
            own = [
                record.redeliver
                for record in records
                if record.redeliver.run_id == self._run.run_id and self._is_ours(record.redeliver.cell)
            ]
            batch = plan(
                self._options.subscription,
                start,
                end,
                own,
                read_positions=self._read_positions(),
                taken=self._taken,
            )
            self._alone_last = any(redeliver.alone for redeliver in own)
        else:
            batch = self._replay(start, end, records)
        # Start before the rows: a crash in between delivers twice; the other order, never.
        self._sender.send([*self._starts(batch), *self._releases(batch)])
        self.now_ms = max(self.now_ms, self._sender.flush() or 0)
        for delivery in batch.deliveries:
            self._taken.add(delivery)
        self._keeper.hold(batch.deliveries)
        self._in_progress = batch
        self._patience.planned()
        self._redeliveries.discard(end.redeliveries)
        return split(
            batch.deliveries,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def completed(self, end: SourceOffset) -> None:
        """Spark has committed the batch that ends here."""
        self._finish_batch(end)

    def bound_by_now(self) -> None:
        """Trigger.AvailableNow: deliver what is there at the first question after this, then nothing more."""
        self._patience.drain = True

    def latest_known(self) -> SourceOffset:
        """The ends that the last question found, for Spark's progress reports."""
        return self._last_ends

    def close(self) -> None:
        """Stop extending leases and close the clients. What is still leased runs out."""
        self._keeper.stop()
        self._sender.close()
        self._cursors.close()
        self._redeliveries.close()

    # -- the beginning of a run ------------------------------------------------------------------------

    def _find_beginning(self) -> SourceOffset:
        self._queue.refresh()
        self._check_rights()
        self._cursors.refresh()
        cursors = {tp: self._cursors.get(self._cell(*tp)) for tp in self._queue.partitions}
        stored = {tp: cursor.read_position for tp, cursor in cursors.items() if cursor is not None}
        known, self._new_subscription = self._group.beginning(self._queue, stored)
        return SourceOffset(
            queue=known, redeliveries=self._redelivery_ends(), topic_ids=dict(self._queue.topic_ids)
        )

    def _begin(self, start: SourceOffset) -> None:
        if self._began:
            return
        if start.markers:
            raise MarkerFormatChanged("v1", "v2")
        self._queue.resume(start)
        if self._beginning is None:
            self._check_rights()
        self._cursors.refresh()
        positions = {self._cell(*tp): at for tp, at in start.queue.items()}
        self._run.greet(positions, self._queue.topic_ids)
        if not self._new_subscription:
            self._run.wait_for(list(positions))
        self._scanned = dict(start.redeliveries)
        self._began = True

    def _check_rights(self) -> None:
        # Before anything is delivered: a right that is missed later stops a query in the middle of its work.
        self._topics.check_allowed(
            dict.fromkeys(self._queue.topic_ids, ("read",))
            | {
                self._options.markers_topic: ("write",),
                self._options.redeliveries_topic: ("read",),
                self._options.cursors_topic: ("read",),
            }
        )

    def _replay(
        self, start: SourceOffset, end: SourceOffset, records: Sequence[RedeliveryRecord]
    ) -> BatchPlan:
        batch = plan_replay(
            self._options.subscription,
            start,
            end,
            [record.redeliver for record in records if self._is_ours(record.redeliver.cell)],
            cursors=self._run.answers,
        )
        for (topic, partition), stop in end.queue.items():
            begin = start.queue.get((topic, partition), 0)
            self._replayed[self._cell(topic, partition)] = OffsetSet.of((begin, stop))
        for record in records:
            cell = record.redeliver.cell
            self._replayed[cell] = self._replayed.get(cell, EMPTY) | record.redeliver.offsets
        log.info(
            "batch_replayed run=%s delivered=%d handed_back=%d",
            self._run.run_id,
            sum(len(d.offsets) for d in batch.deliveries),
            sum(len(b.offsets) for b in batch.hand_backs),
        )
        return batch

    # -- after a batch ---------------------------------------------------------------------------------

    def _finish_batch(self, end: SourceOffset) -> None:
        """What a completed batch brings; asked on every trigger, because Spark's commit comes late."""
        batch, self._in_progress = self._in_progress, None
        self._keeper.let_go()
        markers: list[Marker] = []
        if self._options.ack_mode is not AckMode.INDIVIDUAL:
            markers += self._ends_of_the_dead(end, batch)
            for delivery in batch.deliveries if batch else ():
                if self._options.ack_mode is AckMode.BATCH or delivery.cell in self._apart:
                    markers.append(End(cell=delivery.cell, offsets=delivery.offsets, run_id=self._run.run_id))
        if batch and self._options.ack_mode is AckMode.CUMULATIVE:
            # Only where no others are outstanding: it would end them too.
            markers += [
                EndUpTo(cell=self._cell(*tp), position=position, run_id=self._run.run_id)
                for tp, position in end.queue.items()
                if position and self._cell(*tp) not in self._apart
            ]
        if markers:
            self._send(markers)
        if batch:
            self._group.follow(end.queue)

    def _ends_of_the_dead(self, end: SourceOffset, batch: BatchPlan | None) -> list[End]:
        """Once a run: Ends for what dead runs left leased in batches that Spark has committed."""
        if self._looked_back:
            return []
        self._looked_back = True
        delivered: dict[Cell, OffsetSet] = {}
        for delivery in batch.deliveries if batch else ():
            delivered[delivery.cell] = delivered.get(delivery.cell, EMPTY) | delivery.offsets
        later = self._redeliveries.between(end.redeliveries, self._redelivery_ends())
        left = leftovers(
            self._run.answers,
            run_id=self._run.run_id,
            end=end if self._beginning is None else None,
            later=[record.redeliver for record in later],
            replayed=self._replayed,
            delivered=delivered,
        )
        self._apart |= left.unsure
        return [End(cell=cell, offsets=offsets) for cell, offsets in left.committed.items()]

    # -- looking ahead ---------------------------------------------------------------------------------

    def _origin(self, start: SourceOffset, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Where the next batch begins in each queue partition: a new one at its beginning, none below the
        read position."""
        found = self._queue.origin(start, ends)
        new = {self._cell(*tp): at for tp, at in found.items() if tp not in start.queue}
        self._run.greet(new, self._queue.topic_ids)
        answered = {cell: answer.read_position for cell, answer in self._run.answers.items()}
        origin = _not_below(found, answered)
        if all(origin[tp] >= end for tp, end in ends.items()):
            return origin
        if self._messages_expire():
            # As late as can be: what has expired is neither to be leased nor delivered.
            self._cursors.refresh()
        return _not_below(origin, self._read_positions())

    def _read_positions(self) -> dict[Cell, int]:
        """Of the cells that the tracker has answered for, as far as is known: expiry moves them too."""
        return {
            cell: max(answer.read_position, (self._cursors.get(cell) or answer).read_position)
            for cell, answer in self._run.answers.items()
        }

    def _messages_expire(self) -> bool:
        cursors = (self._cursors.get(cell) or answer for cell, answer in self._run.answers.items())
        return any(cursor.ages.ttl_ms is not None for cursor in cursors)

    def _ends(self) -> tuple[Mapping[TopicPartition, int], Mapping[int, int]]:
        if self._bound is not None:
            return self._bound.queue, self._bound.redeliveries
        # One question to the broker where one will do: an idle query asks it a hundred times a second.
        redeliveries = [(self._options.redeliveries_topic, p) for p in self._redelivery_partitions]
        queue = list(self._queue.partitions)
        if self._read_committed:
            ends = self._topics.end_offsets([*queue, *redeliveries], committed=True)
        else:
            ends = self._topics.end_offsets(queue, committed=False)
            ends |= self._topics.end_offsets(redeliveries, committed=True)
        self._last_ends = SourceOffset(
            queue={tp: ends[tp] for tp in queue},
            redeliveries={partition: ends[topic, partition] for topic, partition in redeliveries},
        )
        if self._patience.drain:
            self._bound = self._last_ends
        return self._last_ends.queue, self._last_ends.redeliveries

    def _collect(self, start: SourceOffset, ends: Mapping[int, int]) -> None:
        """Read on in the redeliveries topic and keep what is for this run."""
        self._redeliveries.poll(ends)
        self._pending = [
            one for one in self._pending if one.offset >= start.redeliveries.get(one.partition, 0)
        ]
        for record in self._redeliveries.between(self._scanned, ends):
            redeliver = record.redeliver
            if redeliver.run_id != self._run.run_id or not self._is_ours(redeliver.cell):
                continue
            if self._taken.fresh(redeliver.cell, redeliver.offsets, delivery_count=redeliver.delivery_count):
                self._pending.append(record)
        self._scanned = dict(ends)

    def _room(self, planned: Mapping[TopicPartition, int]) -> list[int]:
        """How many more messages may be outstanding, where there is a limit.

        What the tracker has not yet seen of this run counts as outstanding: the limit holds at any moment.
        """
        limit = self._options.max_outstanding
        if limit is None:
            return []
        self._cursors.refresh()
        outstanding = 0
        for tp, position in planned.items():
            cursor = self._cursors.get(self._cell(*tp))
            seen = self._first_planned.setdefault(tp, position) if cursor is None else cursor.read_position
            outstanding += max(position - seen, 0) + (len(cursor.outstanding) if cursor else 0)
        self.outstanding = outstanding
        room = max(limit - outstanding, 0)
        if (room == 0) != self._is_full:
            self._is_full = room == 0
            log.info(
                "%s subscription=%s outstanding=%d max_outstanding=%d",
                "max_outstanding_reached" if self._is_full else "max_outstanding_left",
                self._options.subscription,
                outstanding,
                limit,
            )
        return [room]

    def _redelivery_ends(self) -> dict[int, int]:
        topic = self._options.redeliveries_topic
        ends = self._topics.end_offsets([(topic, p) for p in self._redelivery_partitions], committed=True)
        return {partition: at for (_, partition), at in ends.items()}

    # -- small things ----------------------------------------------------------------------------------

    @property
    def _read_committed(self) -> bool:
        return self._options.isolation is Isolation.READ_COMMITTED

    def _starts(self, batch: BatchPlan) -> list[Start]:
        return [
            Start(
                cell=delivery.cell,
                offsets=delivery.offsets,
                lease_ms=self._options.lease_ms,
                delivery_count=delivery.delivery_count,
                run_id=self._run.run_id,
            )
            for delivery in batch.deliveries
        ]

    def _releases(self, batch: BatchPlan) -> list[Release]:
        return [
            Release(
                cell=back.cell,
                offsets=back.offsets,
                delivery_count=back.delivery_count,
                delay_ms=0,
                reason=HANDED_BACK,
            )
            for back in batch.hand_backs
        ]

    def _cell(self, topic: str, partition: int) -> Cell:
        return Cell(subscription=self._options.subscription, topic=topic, partition=partition)

    def _is_ours(self, cell: Cell) -> bool:
        return cell.subscription == self._options.subscription and (
            (cell.topic, cell.partition) in self._queue.partitions
        )

    def _extend(self, held: Sequence[Delivery]) -> None:
        lease_ms, run_id = self._options.lease_ms, self._run.run_id
        self._send(
            [KeepAlive(cell=d.cell, offsets=d.offsets, lease_ms=lease_ms, run_id=run_id) for d in held]
        )

    def _send(self, markers: Sequence[Marker]) -> None:
        """Write markers; they are on the broker when this returns."""
        self._sender.send(markers)
        self._sender.flush()


def _not_below(
    positions: Mapping[TopicPartition, int], read_positions: Mapping[Cell, int]
) -> dict[TopicPartition, int]:
    """The positions, none of a cell below its read position."""
    raised = dict(positions)
    for cell, read_position in read_positions.items():
        tp = (cell.topic, cell.partition)
        if tp in raised:
            raised[tp] = max(raised[tp], read_position)
    return raised
