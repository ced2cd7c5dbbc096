"""Second phase of a run: Spark may request a batch again that an earlier run has logged."""

from __future__ import annotations

import logging
from dataclasses import replace

from spark_cursor_source.consumer.run_parts import RunParts
from spark_cursor_source.consumer.running_phase import RunningPhase
from spark_cursor_source.core.batch import BatchPlan, SourceOffset, TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.replay import leave_to_leases, plan_replay
from spark_cursor_source.options.source import AckMode

log = logging.getLogger(__name__)


class ReplayPhase:
    """Plans a batch again with the same messages, without those that are settled.

    A second replay releases the messages instead: the batch runs empty, and they return as redeliveries.
    """

    def __init__(self, parts: RunParts, running: RunningPhase) -> None:
        self._options, self._assignment = parts.options, parts.assignment
        self._session, self._pending, self._running = parts.session, parts.pending, running
        #: all messages of replayed batches, whether delivered again or not
        self.held: dict[Cell, OffsetSet] = {}

    def begin(self, start: SourceOffset) -> ReplayPhase:
        """Returns this phase: the run has begun."""
        return self

    def run(self) -> RunningPhase:
        """Returns the next phase: Spark asks for new batches, so that it has no batch to replay."""
        return self._running

    def content(self, start: SourceOffset, end: SourceOffset) -> BatchPlan:
        """Returns the present content of a batch that an earlier run has logged."""
        if not self._options.subscription_type.is_sole:
            # The partitions may belong to other members now. Started messages are redelivered when their
            # leases expire. Other messages are planned from the position that the tracker reports.
            log.info(
                "A batch of an earlier run is not replayed. Its messages return when their leases "
                "expire. event=batch_replay_skipped run=%s",
                self._session.run_id,
            )
            return BatchPlan(deliveries=())
        batch_records = self._pending.replayed(start, end)
        records = [one for one in batch_records if self._assignment.owns(one.redeliver.cell)]
        held = self._assignment.still_owned(end.queue)
        origins = {tp: end.origin(tp, start) for tp in end.queue}
        ends = {
            tp: at for tp, at in end.queue.items() if tp in held and not self._goes_on_below(tp, origins[tp])
        }
        batch = plan_replay(
            self._options.subscription,
            start,
            replace(end, queue=ends),
            [record.redeliver for record in records],
            cursors=self._session.answers,
        )
        if self._options.ack_mode is AckMode.INDIVIDUAL:
            batch = replace(batch, leaves=())
        elif others := end.queue.keys() - held:
            redelivers = [record.redeliver for record in batch_records]
            left = leave_to_leases(self._options.subscription, start, end, redelivers, others)
            batch = replace(batch, leaves=(*batch.leaves, *left))
        # covers partitions that this run does not hold: nothing of them is delivered either
        for tp, stop in end.queue.items():
            self.held[self._assignment.cell(*tp)] = OffsetSet.of((origins[tp], stop))
        self._assignment.advance(ends)
        for record in batch_records:
            cell = record.redeliver.cell
            self.held[cell] = self.held.get(cell, EMPTY) | record.redeliver.offsets
        log.info(
            "A batch of an earlier run is replayed. event=batch_replayed run=%s delivered=%d handed_back=%d",
            self._session.run_id,
            sum(len(d.offsets) for d in batch.deliveries),
            sum(len(b.offsets) for b in batch.hand_backs),
        )
        return batch

    def _goes_on_below(self, tp: TopicPartition, origin: int) -> bool:
        """True if the read position is below the batch.

        The batch then delivers no new message of the partition.
        """
        answer = self._session.answers.get(self._assignment.cell(*tp))
        return answer is not None and answer.read_position < origin
