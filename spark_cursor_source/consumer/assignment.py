"""Queue partitions held by a query: acquired, confirmed by the tracker, and released."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from spark_cursor_source.consumer.membership import Membership
from spark_cursor_source.consumer.progress import GroupProgress
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import BatchPlan, Delivery, SourceOffset, TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.errors import RunSuperseded
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.topics.cursors import CursorTable

log = logging.getLogger(__name__)


class PartitionAssignment:
    """Partitions that the consumer group assigns to this query, and the next offset of each.

    A partition that was read before resumes at the position in the tracker's answer. The tracker answers
    after it has read every marker of the previous owner. Until then the partition is held, and no batch is
    planned from it.
    """

    def __init__(
        self,
        options: SourceOptions,
        queue: SourceTopics,
        membership: Membership,
        group: GroupProgress,
        run: TrackerSession,
        cursors: CursorTable,
    ) -> None:
        self._options = options
        self._queue = queue
        self._membership = membership
        self._group = group
        self._run = run
        self._cursors = cursors
        self._held: frozenset[TopicPartition] = frozenset()
        # partitions released until their stream is resumed
        self._paused: frozenset[TopicPartition] = frozenset()
        self._topic_ids: dict[str, str] = {}  # topic id by name, for topics with held partitions
        self._beginning: SourceOffset | None = None
        #: next offset to plan, for each partition that batches may be planned from
        self.next: dict[TopicPartition, int] = {}

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
        # A resumed partition sends a new Hello, and the tracker announces all its pending redeliveries again.
        # So a paused partition does not block redeliveries of other partitions.
        self._paused = held & self._queue.paused & (self._paused | self.next.keys())
        held -= self._paused
        ids = self._queue.topic_ids
        self._give_up(self._held - held)
        # Known positions belong to a deleted topic, so the partition starts again with a new Hello.
        self._give_up([tp for tp in self._held if self._topic_ids[tp[0]] != ids.get(tp[0])])
        if (new := held - self._held) and not self._adopt(new, start):
            held -= new
        self._held = held
        if wait:
            self._run.wait_for([self.cell(*tp) for tp in held if tp not in self.next], self._still_mine)
        self._run.listen()
        for tp in held - self.next.keys():
            answer = self._run.answers.get(self.cell(*tp))
            if answer is not None:
                # The checkpoint is not used here: Spark may have logged a batch that was never planned.
                self.next[tp] = answer.read_position

    def check_ownership(self) -> None:
        """Checks that redeliveries are still addressed to this run. After a Seek, the cell is greeted again.

        Raises:
            RunSuperseded: redeliveries go to a later run although this run is the only member of the
                subscription.
        """
        for cell, owner in self._run.taken_over().items():
            tp = (cell.topic, cell.partition)
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
        """Returns the given partitions that are still assigned. Releases all partitions that were revoked."""
        self._give_up(self._held - self._membership.assigned_partitions(self._queue.partitions))
        return self._held & frozenset(partitions)

    def _still_mine(self, cells: Sequence[Cell]) -> Sequence[Cell]:
        """Returns the cells that are still assigned according to the broker."""
        self._membership.confirm(in_doubt=True)
        held = self.still_owned([(cell.topic, cell.partition) for cell in cells])
        return [cell for cell in cells if (cell.topic, cell.partition) in held]

    def drop_revoked(self, batch: BatchPlan) -> tuple[BatchPlan, Sequence[Delivery]]:
        """Splits the batch into deliveries still owned and deliveries revoked during a pause.

        A delivery is revoked if its partition was reassigned while this process was paused. The caller must
        release those. Otherwise, if the source acks, a later run would treat them as delivered.
        """
        if not self._membership.confirm():
            return batch, ()
        kept: list[Delivery] = []
        lost: list[Delivery] = []
        held = self.still_owned({(one.cell.topic, one.cell.partition) for one in batch.deliveries})
        for one in batch.deliveries:
            (kept if (one.cell.topic, one.cell.partition) in held else lost).append(one)
        log.warning(
            "This process was paused, and another query took over partitions meanwhile. "
            "event=process_paused kept=%d of=%d",
            len(kept),
            len(batch.deliveries),
        )
        return replace(batch, deliveries=tuple(kept)), lost

    def owns(self, cell: Cell) -> bool:
        """True if the cell belongs to this query."""
        return cell.subscription == self._options.subscription and (cell.topic, cell.partition) in self._held

    def cell(self, topic: str, partition: int) -> Cell:
        return Cell(subscription=self._options.subscription, topic=topic, partition=partition)

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
        found = {tp: begun[tp] for tp in fresh if tp in begun} | self._queue.beginnings(unknown)
        # Committed before any batch is planned: a later run would resolve `latest` to another position.
        kept = {tp: at for tp, at in past.items() if tp not in committed or tp in remade}
        if not self._group.keep(found | kept):
            return False
        positions = {self.cell(*tp): at for tp, at in (past | found).items()}
        cells = frozenset(self.cell(*tp) for tp in remade)
        self._run.greet(positions, self._queue.topic_ids, remade=cells)
        self._topic_ids |= self._queue.topic_ids
        self.next |= found
        return True

    def _give_up(self, gone: Collection[TopicPartition]) -> None:
        self._held -= frozenset(gone)
        self._run.give_up([self.cell(*tp) for tp in gone])
        for tp in gone:
            self.next.pop(tp, None)
