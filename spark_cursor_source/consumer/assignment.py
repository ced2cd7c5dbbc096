"""Queue partitions held by one member: acquired, confirmed by the tracker, and released."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from spark_cursor_source.consumer.membership import Membership
from spark_cursor_source.consumer.progress import GroupProgress
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import BatchPlan, Delivery, SourceOffset, TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.limits import NO_LIMITS, Limits
from spark_cursor_source.errors import RunSuperseded
from spark_cursor_source.options.source import Ordering, SourceOptions
from spark_cursor_source.topics.cursors import CursorTable

log = logging.getLogger(__name__)


class Assignment:
    """Partitions that the consumer group assigns to one member, and the next offset of each.

    A partition is held from its Hello until it is given up. A partition that was read before resumes at the
    position in the tracker's answer. The tracker answers after it has read every marker of the previous
    owner. Until then nothing of the partition is started. Not thread-safe.
    """

    def __init__(self, subscription: str, membership: Membership, run: TrackerSession) -> None:
        self._subscription, self._membership, self._run = subscription, membership, run
        self._held: frozenset[TopicPartition] = frozenset()
        self._revoked: frozenset[TopicPartition] = frozenset()  # since their Hello, even if assigned again
        self._next: dict[TopicPartition, int] = {}
        self._paused_cells: frozenset[Cell] = frozenset()  # paused by an operator, at the last look
        self._limits = NO_LIMITS  # of the subscription, set by an operator, at the last look
        self._of = 0  # partitions that share the limits

    @property
    def next(self) -> Mapping[TopicPartition, int]:
        """Next offset to start, for each partition that may be read."""
        return self._next

    @property
    def waiting(self) -> frozenset[TopicPartition]:
        """Held partitions without an answer from the tracker and without a known position."""
        return self._held - self._next.keys()

    @property
    def cells(self) -> list[Cell]:
        """Cells of the held partitions."""
        return [self.cell(*tp) for tp in sorted(self._held)]

    def cell(self, topic: str, partition: int) -> Cell:
        return Cell(subscription=self._subscription, topic=topic, partition=partition)

    def owns(self, cell: Cell) -> bool:
        """True if this member holds the cell."""
        return cell.subscription == self._subscription and cell.topic_partition in self._held

    def advance(self, ends: Mapping[TopicPartition, int]) -> None:
        """Moves the next offsets to the ends of started messages. A position below does not move back."""
        for tp, end in ends.items():
            self._next[tp] = max(self._next.get(tp, 0), end)

    @property
    def limits(self) -> Limits:
        """This member's share of the limits that an operator has set, by the number of its partitions."""
        return self._limits.share(len(self._held), of=self._of)

    def _look_for_commands(self, partitions: Collection[TopicPartition]) -> None:
        """Takes from the cursors what an operator has paused, and the limits that an operator has set."""
        cells = [self.cell(*tp) for tp in partitions]
        before, self._of = self._paused_cells, len(cells)
        if (limits := self._run.limits(cells)) != self._limits:
            log.info(
                "An operator has changed the limits of the subscription: %s. "
                "event=subscription_limited subscription=%s rate=%s max_outstanding=%s",
                limits.words(),
                self._subscription,
                limits.rate,
                limits.max_outstanding,
            )
            self._limits = limits
        self._paused_cells = self._run.paused(cells)
        if self._paused_cells and not before:
            log.info(
                "An operator has paused the subscription, so no message is leased. "
                "event=subscription_paused subscription=%s partitions=%d",
                self._subscription,
                len(self._paused_cells),
            )
        elif before and not self._paused_cells:
            log.info(
                "The pause of the subscription has ended. event=subscription_resumed subscription=%s",
                self._subscription,
            )

    def _resume_answered(self) -> dict[TopicPartition, int]:
        """Resumes partitions at the positions that the tracker has answered. Returns the new positions.

        Raises:
            NoTracker, QueueTopicRecreated: see :meth:`TrackerSession.listen`.
        """
        self._run.listen()
        answers = self._run.answers
        found = {
            tp: answers[cell].read_position for tp in self.waiting if (cell := self.cell(*tp)) in answers
        }
        self._next |= found
        return found

    def _kept(self, assigned: AbstractSet[TopicPartition]) -> frozenset[TopicPartition]:
        """Returns the held partitions that this member has had all the time since their Hello.

        One that went to another member and came back must begin anew: the other member may have read it.
        """
        self._revoked = (self._revoked | self._membership.take_revoked()) & self._held
        return (self._held & assigned) - self._revoked

    def _give_up(self, gone: Collection[TopicPartition]) -> None:
        self._held -= frozenset(gone)
        self._revoked -= frozenset(gone)
        self._run.give_up([self.cell(*tp) for tp in gone])
        for tp in gone:
            self._next.pop(tp, None)


class PartitionAssignment(Assignment):
    """Partitions of a query. It reads many topics, may be the only member, and has a checkpoint."""

    def __init__(
        self,
        options: SourceOptions,
        queue: SourceTopics,
        membership: Membership,
        group: GroupProgress,
        run: TrackerSession,
        cursors: CursorTable,
    ) -> None:
        super().__init__(options.subscription, membership, run)
        self._options, self._queue, self._group, self._cursors = options, queue, group, cursors
        # partitions released until their stream or subscription is resumed
        self._paused: frozenset[TopicPartition] = frozenset()
        self._topic_ids: dict[str, str] = {}  # topic id by name, for topics with held partitions
        self._beginning: SourceOffset | None = None

    def begin_at(self, beginning: SourceOffset) -> None:
        """Sets the start of a query without a checkpoint.

        New partitions without a committed offset and without a cursor begin at these positions.
        """
        self._beginning = beginning

    def sync(self, start: SourceOffset, *, wait: bool = False) -> None:
        """Applies the current group assignment.

        With ``wait``, blocks until the assignment is known and the tracker has answered.

        Raises:
            SubscriptionInUse, MemberFenced: another member holds the subscription.
            NoTracker, QueueTopicRecreated: see :meth:`TrackerSession.listen`.
        """
        everything = self._queue.partitions
        held = (
            self._membership.wait_for_assignment(everything)
            if wait
            else self._membership.assigned_partitions(everything)
        )
        paused = self._queue.paused | {cell.topic_partition for cell in self._paused_cells}
        self._paused &= held & paused
        held -= self._paused
        ids = self._queue.topic_ids
        self._give_up(self._held - self._kept(held))
        # Known positions belong to a deleted topic, so the partition starts again with a new Hello.
        self._give_up([tp for tp in self._held if self._topic_ids[tp[0]] != ids.get(tp[0])])
        if (new := held - self._held) and not self._adopt(new, start):
            held -= new
        self._held = held
        # A resumed partition sends a new Hello, and the tracker announces all its pending redeliveries again.
        # So a paused partition does not block redeliveries of other partitions. A new partition is paused
        # after its Hello, because its beginning is committed with the Hello.
        self._paused |= held & paused
        self._give_up(held & paused)
        if wait:
            self._run.wait_for([self.cell(*tp) for tp in self.waiting], self._still_mine)
        # The checkpoint is not used here: Spark may have logged a batch that was never planned.
        self._resume_answered()

    def check_ownership(self) -> None:
        """Checks that redeliveries are still addressed to this run, and what an operator has commanded.

        After a Seek, the cell is greeted again.

        Raises:
            RunSuperseded: redeliveries go to a later run although this run is the only member of the
                subscription.
        """
        taken_over = self._run.taken_over()
        self._look_for_commands(self._queue.partitions)
        for cell, owner in taken_over.items():
            tp = cell.topic_partition
            if owner is not None and self._options.subscription_type.is_sole:
                self._membership.confirm(in_doubt=True)
                if self.still_owned([tp]):
                    raise RunSuperseded(cell.subscription, cell.topic, cell.partition)
                return  # another query is active: the partition was reassigned while this process was paused
            log.info(
                "A partition that belonged to another run was acquired again. "
                "event=partition_reacquired run=%s cell=%s owner=%s",
                self._run.run_id,
                cell,
                owner,
            )
            self._give_up({tp})

    def still_owned(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Returns the given partitions that are still held. Releases all partitions that were revoked."""
        assigned = self._membership.assigned_partitions(self._queue.partitions)
        self._give_up(self._held - self._kept(assigned))
        return self._held & frozenset(partitions)

    def _still_mine(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """Returns the cells that are still assigned according to the broker."""
        self._membership.confirm(in_doubt=True)
        held = self.still_owned([cell.topic_partition for cell in cells])
        return [cell for cell in cells if cell.topic_partition in held]

    def drop_revoked(self, batch: BatchPlan) -> tuple[BatchPlan, Sequence[Delivery]]:
        """Splits the batch into deliveries still owned and deliveries revoked during a pause.

        A delivery is revoked if its partition was reassigned while this process was paused. The caller must
        release those. Otherwise, if the source acks, a later run would treat them as delivered.
        """
        if not self._membership.confirm():
            return batch, ()
        kept: list[Delivery] = []
        lost: list[Delivery] = []
        held = self.still_owned({delivery.cell.topic_partition for delivery in batch.deliveries})
        for delivery in batch.deliveries:
            (kept if delivery.cell.topic_partition in held else lost).append(delivery)
        log.warning(
            "This process was paused, and another query took over partitions meanwhile. "
            "event=process_paused kept=%d of=%d",
            len(kept),
            len(batch.deliveries),
        )
        return replace(batch, deliveries=tuple(kept)), lost

    def is_of_another(self, tp: TopicPartition, cursor: CursorSnapshot | None) -> bool:
        """True if the cursor belongs to a topic that was deleted and created again."""
        if cursor is None:
            return False
        return self._queue.is_of_another(tp[0], cursor.topic_id)

    def _adopt(self, new: AbstractSet[TopicPartition], start: SourceOffset) -> bool:
        """Sends Hello for new partitions. Returns False, without a Hello, if this query left the group."""
        committed = self._group.known(frozenset(new))
        self._cursors.refresh()
        remade = [tp for tp in new if self.is_of_another(tp, self._cursors.get(self.cell(*tp)))]
        past: dict[TopicPartition, int] = dict(self._queue.beginnings(remade))
        fresh: list[TopicPartition] = []
        for tp in new - past.keys():
            cursor = self._cursors.get(self.cell(*tp))
            if tp in committed or cursor is not None:
                past[tp] = committed.get(tp, cursor.read_position if cursor else 0)
            elif self._beginning is None and tp in start.queue:
                past[tp] = start.queue[tp]
            else:
                fresh.append(tp)
        begun = self._beginning.queue if self._beginning is not None else {}
        unknown = [tp for tp in fresh if tp not in begun]
        first = {tp: begun[tp] for tp in fresh if tp in begun} | self._queue.beginnings(unknown)
        # Committed before any batch is planned: a later run would resolve `latest` to another position.
        kept = {tp: at for tp, at in past.items() if tp not in committed or tp in remade}
        if not self._group.keep(first | kept):
            return False
        positions = {self.cell(*tp): at for tp, at in (past | first).items()}
        cells = frozenset(self.cell(*tp) for tp in remade)
        self._run.greet(positions, self._queue.topic_ids, remade=cells)
        self._topic_ids |= self._queue.topic_ids
        if self._options.ordering is Ordering.NONE:
            self._next |= first
        # With ordering=key, also new partitions wait for the tracker's answer: it tells from which marker on
        # the planner knows what has ended.
        return True
