"""First phase of a run: the query has not begun to read."""

from __future__ import annotations

from spark_cursor_source.consumer.replay_phase import ReplayPhase
from spark_cursor_source.consumer.run_parts import RunParts
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.errors import MarkerFormatChanged


class StartPhase:
    """Finds the beginning of a query that has no checkpoint, and begins the run where Spark says."""

    def __init__(self, parts: RunParts, replaying: ReplayPhase) -> None:
        self._parts, self._replaying = parts, replaying
        self._initial: SourceOffset | None = None
        #: end of the batches that Spark had committed when this run began; None: there is none, or not begun
        self.committed: SourceOffset | None = None

    @property
    def has_checkpoint(self) -> bool:
        """True if Spark has not asked for the initial offset: the checkpoint holds a committed batch."""
        return self._initial is None

    def initial_offset(self) -> SourceOffset:
        """Returns the offset where a query without a checkpoint begins.

        The result is the same after a crash before the first commit: the positions of a new subscription are
        committed as its consumer group's offsets before anything is planned. The result is also the same
        within one run. Spark calls this at every trigger and again to plan the first batch. A different
        second answer would start the first batch after the redeliveries that it must contain.
        """
        if self._initial is None:
            self._initial = self._find_initial()
        return self._initial

    def begin(self, start: SourceOffset) -> ReplayPhase:
        """Begins the run at ``start``: its partitions are assigned and greeted.

        Raises:
            MarkerFormatChanged: the offset was written with V1 markers.
            NotAuthorized, QueueTopicRecreated, QueueTopicEndsEarlier, SubscriptionInUse, NoTracker
        """
        parts = self._parts
        if start.markers:
            raise MarkerFormatChanged("v1", "v2")
        parts.queue.resume(start)
        if self.has_checkpoint:
            self.committed = start
            parts.check_queue_rights()
            # Taken before the Hello: announcements for this run are written after it.
            parts.pending.begin(parts.pending.ends())
        self._greet(start)
        return self._replaying

    def _find_initial(self) -> SourceOffset:
        parts, cursors = self._parts, self._parts.cursors
        parts.queue.refresh()
        parts.check_queue_rights()
        cursors.refresh()
        known = {tp: cursors.get(parts.assignment.cell(*tp)) for tp in parts.queue.partitions}
        stored = {tp: cursor.read_position for tp, cursor in known.items() if cursor is not None}
        positions = parts.group.beginning(parts.queue, stored)
        remade = [tp for tp, cursor in known.items() if parts.assignment.is_of_another(tp, cursor)]
        positions |= parts.queue.beginnings(remade)
        initial = SourceOffset(
            queue=positions,
            redeliveries=parts.pending.ends(),
            topic_ids=dict(parts.queue.topic_ids),
            redeliveries_id=parts.pending.topic_id,
        )
        parts.assignment.begin_at(initial)
        parts.pending.begin(initial.redeliveries)
        self._greet(initial)
        return initial

    def _greet(self, start: SourceOffset) -> None:
        self._parts.assignment.sync(start, wait=self._parts.options.subscription_type.is_sole)
