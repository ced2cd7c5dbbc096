"""Last phase of a run: it plans batches of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from spark_cursor_source.consumer.idle_wait import IdleWait
from spark_cursor_source.consumer.limits import ConsumerLimits
from spark_cursor_source.consumer.outstanding_view import OutstandingView
from spark_cursor_source.consumer.run_parts import RunParts
from spark_cursor_source.consumer.trigger import InputEnds, MinOffsetsDelay
from spark_cursor_source.core.admission import Admitted, Turns, admit
from spark_cursor_source.core.batch import BatchPlan, SourceOffset, TopicPartition, plan
from spark_cursor_source.core.limits import Limits
from spark_cursor_source.kafka.admin import epochs_of
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.options.source import AckMode, Isolation, Ordering

_RATE_WAIT_S = 0.1  # at most; also the interval of looks at the limits with Trigger.AvailableNow
_TRANSACTION_MS = 10_000  # a transaction that is open for longer may be one of a dead program


class RunningPhase:
    """Admits waiting messages to the next batch, and computes the content of the admitted batch."""

    def __init__(
        self,
        parts: RunParts,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._parts, self._options = parts, parts.options
        self._read_committed = parts.options.isolation is Isolation.READ_COMMITTED
        self.ends = InputEnds(self._read_ends)  #: the ends up to which messages are admitted
        self._delay = MinOffsetsDelay(parts.options, self.ends)
        options = Limits(max_outstanding=parts.options.max_outstanding)
        self.limits = ConsumerLimits(
            parts.options.subscription, parts.cursors, options, now_s=now_s, sleep=sleep
        )
        self._turns = Turns()
        self._idle = IdleWait(parts.appends)
        self.view = OutstandingView()  #: what the progress of the query shows of the cursors
        # the first offset of the admitted batch, for each partition that it was admitted from
        self._origin: Mapping[TopicPartition, int] = {}
        self._admitted: Mapping[TopicPartition, int] = {}  # the ends of the admitted batch

    @property
    def outstanding(self) -> int | None:
        """Outstanding messages of the assigned partitions. With a limit, including the admitted batch."""
        limited = self.limits.outstanding
        return self.view.outstanding if limited is None else limited

    @property
    def behind(self) -> list[int]:
        """Offsets from the end of the admitted batch to the end of the log, for each assigned partition."""
        position = {**self._parts.assignment.next, **self._admitted}
        return [max(end - position[tp], 0) for tp, end in self.ends.latest.queue.items() if tp in position]

    def begin(self, start: SourceOffset) -> RunningPhase:
        """Returns this phase: the run has begun."""
        return self

    def run(self) -> RunningPhase:
        """Returns this phase: it is the last one."""
        return self

    # -- the next batch ------------------------------------------------------------------------------------

    def next_end(self, start: SourceOffset, *, max_offsets: int | None) -> SourceOffset:
        """Returns the end offset of the next batch, or ``start`` itself if no message can be delivered.

        ``start`` is returned as it is, also with positions of topics that were deleted or created again. A
        batch to another offset would deliver the last batch again where that one has ``origins``.

        Raises:
            SubscriptionInUse, MemberFenced, RunSuperseded: another member holds the subscription.
            NoTracker, TrackerSilent: the tracker does not work.
            TopicNotFound, QueueTopicRecreated, RedeliveriesTopicRecreated, QueueTopicEndsEarlier
        """
        parts = self._parts
        here = self._discover(start)
        while self._waits_for_rate():
            here = self._discover(start)
        self._admitted = {}
        parts.assignment.sync(here, wait=self.ends.is_bounded and not self.ends.is_fixed)
        if parts.lost_members is not None:
            parts.lost_members.look(parts.assignment.cell(*tp) for tp in parts.assignment.next)
        if not self.ends.is_bounded and self._idle.goes_on(self._places()):
            return start
        known = parts.queue.topic_ids
        ends = parts.queue.unless_deleted(self.ends.read)
        if ends is None:
            return start
        parts.queue.watch_ends(parts.assignment.next, ends.queue, ends.epochs)
        wanted = self._wait_for_all(start, here, ends) if self.ends.has_one_batch else 1
        admitted = self._admit(here, ends, self.limits.budget(max_offsets, wanted=wanted))
        if admitted is None:
            self._rest(ends)
            parts.group.follow(parts.assignment.next, force=True, wait=self.ends.is_bounded)
            return start
        self._idle.end()
        parts.queue.refresh()
        if any(parts.queue.topic_ids.get(topic) != known[topic] for topic, _ in admitted.queue):
            # the topic was deleted or created again: plan from the new topic at the next trigger
            return start
        self.limits.took(new=admitted.new, again=admitted.again)
        self._admitted = admitted.queue
        return self._end_of(admitted, here)

    def _wait_for_all(self, start: SourceOffset, here: SourceOffset, ends: SourceOffset) -> int:
        """Waits until the rate allows all messages that the next batch can hold. Returns their number."""
        found = self._admit(here, ends, None)
        wanted = 1 if found is None else found.new + found.again
        while self._waits_for_rate(wanted):
            self._parts.assignment.sync(self._discover(start))
        return wanted

    def _waits_for_rate(self, wanted: int = 1) -> bool:
        """Waits a little if the operator's rate allows less than ``wanted`` messages now.

        True: the caller looks again.

        Without the wait, Spark would ask a hundred times a second. With Trigger.AvailableNow, a query that
        gets no batch would end.
        """
        self.limits.follow(self._parts.assignment.limits)
        return self.limits.wait(_RATE_WAIT_S, wanted=wanted) and self.ends.is_bounded

    def _places(self) -> list[TopicPartition]:
        """Returns the partitions whose ends decide on the next batch, of queues and redeliveries."""
        return [*sorted(self._parts.assignment.next), *self._parts.pending.partitions]

    def _rest(self, ends: SourceOffset) -> None:
        """Lets the query rest if no message waits below these ends, also none that waits for room."""
        read_to = self._parts.assignment.next
        waits = self._parts.pending.kept or any(read_to.get(tp, end) < end for tp, end in ends.queue.items())
        if waits or self._parts.assignment.waiting or self.ends.is_bounded:
            self._idle.end()
            return
        topic_of = {number: topic for topic, number in self._parts.pending.partitions}
        redeliveries = {(topic_of[number], number): end for number, end in ends.redeliveries.items()}
        self._idle.rest({**ends.queue, **redeliveries})

    def _discover(self, start: SourceOffset) -> SourceOffset:
        """Looks for new partitions, take-overs and a silent tracker at intervals.

        Returns ``start`` without positions of topics that were deleted or created again.
        """
        parts = self._parts
        if not parts.queue.discover():
            return parts.here(start)
        parts.assignment.check_ownership()
        parts.tracker.look()
        parts.pending.count_partitions()
        cells = [parts.assignment.cell(*tp) for tp in parts.assignment.next]
        parts.pending.forget_ended(cells, parts.cursors)
        self.view.look(parts.cursors.get(cell) for cell in cells)
        return parts.here(start)

    def _admit(self, start: SourceOffset, ends: SourceOffset, budget: int | None) -> Admitted | None:
        order = self._parts.key_order
        if order is not None and self._parts.pending.is_behind(ends.redeliveries):
            # A message that was held back may be announced again, with the same count as before.
            order.follow(self._parts.pending.taken)
        pending = self._parts.pending.pending(start, ends.redeliveries)
        self._origin = self._find_origin(ends.queue)
        if budget == 0:
            return None
        return admit(
            pending,
            start,
            ends.redeliveries,
            origin=self._origin,
            queue_ends=ends.queue,
            budget=budget,
            room=self.limits.room(self._origin),
            turns=self._turns,
            is_enough=lambda waiting: not self._delay.waits_for_more(waiting),
        )

    def _end_of(self, admitted: Admitted, start: SourceOffset) -> SourceOffset:
        end = SourceOffset(
            queue={**start.queue, **admitted.queue},
            redeliveries=start.redeliveries,
            topic_ids={**start.topic_ids, **self._parts.queue.topic_ids},
            redeliveries_id=self._parts.pending.topic_id,
            laps=start.laps,
            origins=start.begun_elsewhere(self._origin),
            epochs={**start.epochs, **self.ends.latest.epochs},
            runs=self._runs(start),
        ).with_lanes(admitted.ordinary, admitted.suspects)
        # After a seek back, a batch can end at the offset where it starts. Spark runs no batch between equal
        # offsets.
        return replace(end, laps=start.laps + 1) if end == start else end

    def _runs(self, start: SourceOffset) -> tuple[str, ...]:
        """Returns the run ids of the runs of this checkpoint. A later run acks what they have leased.

        With ``ordering=key`` there are none: a later run, perhaps without an order, cannot know which
        messages the tasks held back.
        """
        options, assignment = self._options, self._parts.assignment
        is_sole, keeps_order = options.subscription_type.is_sole, options.ordering is Ordering.KEY
        if options.ack_mode is AckMode.INDIVIDUAL or keeps_order or not is_sole:
            return ()
        return start.planned_by(self._parts.session.id_of(assignment.cell(*tp)) for tp in assignment.next)

    def _find_origin(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Returns the first offset of the next batch by queue partition, never below the read position."""
        parts = self._parts
        origin = {tp: parts.assignment.next[tp] for tp in ends if tp in parts.assignment.next}
        if all(origin[tp] >= ends[tp] for tp in origin):
            return origin
        if self._messages_expire():
            # Refreshed as late as possible: expired messages must be neither leased nor delivered.
            parts.cursors.refresh()
        for tp, position in origin.items():
            cell = parts.assignment.cell(*tp)
            cursor = parts.cursors.get(cell)
            # Expiry and a skip move the read position. A Seek is handled by the next `check_ownership`.
            if cursor is not None and cursor.owner == parts.session.id_of(cell):
                origin[tp] = max(position, cursor.read_position)
        return origin

    def _messages_expire(self) -> bool:
        answers, cursors = self._parts.session.answers, self._parts.cursors
        return any((cursors.get(cell) or answer).ages.ttl_ms is not None for cell, answer in answers.items())

    def _read_ends(self) -> SourceOffset:
        # One broker request if possible: a query calls this before each batch, and for a moment after it.
        topics, redeliveries = self._parts.topics, self._parts.pending.partitions
        queue = sorted(self._parts.assignment.next)
        if self.ends.is_bounded:
            # The answer of the tracker may be visible before all partitions of its transaction are.
            topics.settled_ends(redeliveries, Deadline.after_ms(_TRANSACTION_MS))
        if self._read_committed:
            ends = topics.log_ends([*queue, *redeliveries], committed=True)
        else:
            ends = topics.log_ends(queue, committed=False)
            ends |= topics.log_ends(redeliveries, committed=True)
        return SourceOffset(
            queue={tp: ends[tp].offset for tp in queue},
            redeliveries={partition: ends[topic, partition].offset for topic, partition in redeliveries},
            epochs=epochs_of({tp: ends[tp] for tp in queue}),
        )

    # -- the admitted batch --------------------------------------------------------------------------------

    def content(self, start: SourceOffset, end: SourceOffset) -> BatchPlan:
        """Returns the content of the batch that :meth:`next_end` has admitted, without lost partitions."""
        assignment, pending = self._parts.assignment, self._parts.pending
        held = assignment.still_owned(self._origin)
        ends = {tp: end.queue[tp] for tp in held if tp in end.queue}
        batch = plan(
            self._options.subscription,
            start,
            replace(end, queue=ends),
            pending.between(start, end),
            read_positions={},
            taken=pending.taken,
        )
        assignment.advance({tp: max(at, self._origin[tp]) for tp, at in ends.items()})
        return batch

    def planned(self, batch: BatchPlan) -> None:
        """Records a planned batch, also a replayed one, for the turns and the delay of the next batch."""
        self._turns.planned(alone=batch.alone)
        self._delay.planned()
