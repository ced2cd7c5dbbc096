"""Feed for a consumer with this package's tracker. One Start covers many messages.

Redelivered messages are read again at their original offsets.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat

from spark_cursor_source.client.queues.ack_batcher import AckBatcher
from spark_cursor_source.client.queues.background_reads import BackgroundReads
from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.feed import LOOK_S, Feed
from spark_cursor_source.client.queues.message import QueueMessage, unreceived
from spark_cursor_source.client.queues.read_pauses import ReadPauses
from spark_cursor_source.client.queues.rescued_spans import RescuedSpans
from spark_cursor_source.consumer.client_assignment import ClientAssignment
from spark_cursor_source.consumer.client_member import ClientMember, Lost, Unread
from spark_cursor_source.consumer.known_topics import KnownTopics
from spark_cursor_source.consumer.limits import ConsumerLimits
from spark_cursor_source.consumer.lost_members import LostMembers
from spark_cursor_source.consumer.membership import GroupConfig, Membership
from spark_cursor_source.consumer.pending import ClientRedeliveries
from spark_cursor_source.consumer.session import TrackerAddress, TrackerSession
from spark_cursor_source.consumer.starts import Starts
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.core.marker import End, Marker, Release, Start
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import CursorqError
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.collector import collector_paused
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Pace
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.kafka.tail_consumer import Fetched, Record, TailConsumer, offsets_of
from spark_cursor_source.options.service import ServiceConfig
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.data_loss import report_loss
from spark_cursor_source.topics.delayed import messages_not_due
from spark_cursor_source.topics.queue import Missing
from spark_cursor_source.topics.redelivered import redelivered
from spark_cursor_source.topics.redeliveries import RedeliveryLog
from spark_cursor_source.topics.redelivery_partitions import RedeliveryPartitions
from spark_cursor_source.topics.rescue import Rescue

_RESCUE_MS = 10_000  # of one request
_UNUSED_S = 1.0  # how long an unused rate is kept: an application that is late gets no burst

_Missing = list[tuple[Missing, OffsetSet]]
_Redelivered = tuple[list[Record], _Missing]


class FeedV2(Feed):
    """A member of the subscription's consumer group, which shares the partitions with Spark queries.

    The feed follows the protocol of a query's planner. It writes a Hello for each assigned partition, and
    reads the partition after the tracker's answer. It writes a Start before it delivers a message. It
    delivers only the redeliveries announced to its own run. If a partition moves to another member, the feed
    releases the buffered messages of that partition.
    """

    def __init__(
        self,
        config: ServiceConfig,
        queue_id: bytes | None,
        subscription: str,
        topics: ClusterAdmin,
        known: KnownTopics,
        write: Callable[[Sequence[Marker]], int | None],
        batcher: AckBatcher,
        buffer: ReceiveBuffer,
    ) -> None:
        """``write`` writes markers. It returns the broker's append time in ms, or None if unknown."""
        super().__init__(config, queue_id, topics, known, batcher, buffer)
        self._reading = reading = client_config(config.kafka, "consumer")
        run_id = uuid.uuid4().hex
        self._cursors = CursorTable(
            reading, config.cursors_topic, timeout_ms=config.timeout_ms, subscription=subscription
        )
        tracker = TrackerAddress(
            markers_topic=config.marker_topic,
            cursors_topic=config.cursors_topic,
            timeout_ms=config.tracker_timeout_ms,
        )
        self._run = TrackerSession(run_id, tracker, self._cursors, write)
        part = GroupConfig(
            group=config.group_of(subscription),
            queue=config.message_topic,
            type=SubscriptionType.SHARED,
            session_ms=config.session_timeout_ms,
            query_id=run_id,
            queue_id=None if queue_id is None else queue_id.decode(),
        )
        membership = Membership(reading, topics, part)
        assignment = ClientAssignment(
            topics,
            membership,
            self._run,
            write,
            group=part.group,
            topic=config.message_topic,
            known=known,
            subscription=subscription,
            watch=TrackerWatch(topics, tracker, answers_first=True),
            lost_members=LostMembers.of(config.on_member_lost, self._cursors, self._run, membership, write),
        )
        self._reader = TailConsumer(
            reading,
            config.message_topic,
            isolation=config.isolation.value,
            on_removed=self._on_removed,
            on_truncated=self._on_truncated,
        )
        rescue_ms = min(config.timeout_ms, _RESCUE_MS)
        self._rescue = Rescue(reading, config.rescue_topic, config.marker_topic, timeout_ms=rescue_ms)
        self._pauses = ReadPauses(config.message_topic)
        self._reads: BackgroundReads[_Redelivered] = BackgroundReads()
        self._rescued = RescuedSpans(self._rescue, config.message_topic, self._on_lost, self._pauses)
        self._starts = Starts(write, self._run.id_of, lease_ms=config.redelivery_timeout_ms)
        pending = ClientRedeliveries(
            RedeliveryLog(reading, config.redeliveries_topic, subscription=subscription),
            RedeliveryPartitions(topics, config.redeliveries_topic),
            assignment,
            self._run,
        )
        self._member = ClientMember(
            assignment,
            pending,
            self._cursors,
            self._starts,
            lease_ms=config.redelivery_timeout_ms,
            on_start=self._track,
            limits=ConsumerLimits(subscription, self._cursors, longest_s=_UNUSED_S),
        )
        self._assignment = assignment
        self._look_for_announced = Pace(int(LOOK_S * 1000))
        self._new_came = False  # True if the last fetch returned new messages
        self._fetches_again = False  # True after a failed write of Starts: their messages are fetched again

    def stop(self) -> None:
        """Stops fetching, releases the buffered messages, and waits for the reads that still run."""
        super().stop()
        self._reads.close()
        self._rescued.close()

    def _close(self) -> None:
        self._member.close()
        for client in (self._reader, self._cursors):
            client.close()

    def _step(self) -> None:
        if self._look_for_announced.is_time():
            self._member.read_announcements()
        self._leave(self._member.drop_lost())
        if begin := self._member.greet():
            self._pauses.forget(begin)
            self._rescued.drop(begin)
            self._reader.follow(begin)
        self._assignment.report_positions()
        if not self._buffer.wait_for_room(LOOK_S):
            return
        self._deliver(self._paused())

    def _deliver(self, paused: frozenset[int]) -> None:
        """Delivers suspects, redeliveries or new messages, by the same turns as a query's planner."""
        if self._read_started():
            return
        quota = self._member.next(
            round(time.monotonic() * 1000),
            room=self._buffer.room,
            paused=paused,
            is_holding=bool(self._batcher.held),
            new_came=self._new_came,
        )
        if quota is None:
            self._closing.wait(LOOK_S)
        elif quota.suspects:
            self._deliver_again(quota.suspects, paused, alone=True)
        else:
            came_again = self._deliver_again(quota.again, paused, alone=False)
            if quota.most_new and (quota.new or not came_again):
                self._deliver_new(paused, quota.most_new, 0.0 if came_again else LOOK_S)

    def _paused(self) -> frozenset[int]:
        return super()._paused() | self._assignment.paused

    # -- assigned partitions ---------------------------------------------------------------------------

    def _leave(self, lost: Lost) -> None:
        """Releases the messages of lost partitions that no application has received."""
        if not lost.cells:
            return
        partitions = {cell.partition for cell in lost.cells}
        self._reader.leave(partitions)
        self._pauses.forget(partitions)
        self._reads.forget(partitions)
        self._rescued.drop(partitions)
        self._withdraw(lambda message: message.delivery.cell in lost.cells)
        for delivery, began_ms in lost.unread:
            release = unreceived(delivery.cell, delivery.offsets, delivery.delivery_count, began_ms=began_ms)
            self._batcher.settle(release)

    # -- new messages ----------------------------------------------------------------------------------

    def _deliver_new(self, paused: frozenset[int], room: int, wait_s: float) -> None:
        if not self._assignment.is_reading:
            self._closing.wait(wait_s)
            return
        self._reader.pause(paused)
        most = max(min(room, self._config.consumer_max_messages_per_commit), 1)
        with collector_paused():
            fetched, follow = self._fetch_new(most, wait_s, paused)
            self._new_came = bool(fetched)
        try:
            with collector_paused():
                ours = {span.partition: self._wanted(span) for span in fetched}
            started = self._start_new({number: messages for number, messages in ours.items() if messages})
        except BaseException:
            starts = {span.partition: span.start for span in fetched}
            self._rescued.drop(starts)
            self._reader.follow({number: starts[number] for number in starts if self._holds(number)})
            self._fetches_again = True
            raise
        self._fetches_again = False
        for span in fetched:
            self._assignment.examined(span.partition, span.stop)
        for number in started:
            self._put(number, ours[number], 1, self._starts.began_ms)
        if follow := {number: at for number, at in follow.items() if self._holds(number)}:
            self._reader.follow(follow)

    def _fetch_new(
        self, most: int, wait_s: float, paused: frozenset[int]
    ) -> tuple[list[Fetched], dict[int, int]]:
        """Returns the next messages, and the partitions to read on from a position after their delivery.

        While messages of a partition come from the rescue topic, the messages that follow them wait.
        """
        if (rescued := self._rescued.next(most, paused=paused)) is not None:
            span, is_last = rescued
            return [span], {span.partition: span.stop} if is_last else {}
        fetched = self._reader.read(most, wait_s)
        if removed := self._rescued.partitions:
            self._reader.leave(removed)
            fetched = [span for span in fetched if span.partition not in removed]
        return fetched, {}

    def _on_removed(self, partition: int, first: int, past: int) -> None:
        self._rescued.add(partition, first, past)

    def _on_lost(self, partition: int, offsets: OffsetSet) -> None:
        report_loss(self._config.message_topic, partition, offsets, fail=self._config.fail_on_data_loss)

    def _holds(self, number: int) -> bool:
        return self._assignment.owns(self._assignment.cell_of(number))

    def _wanted(self, fetched: Fetched) -> Sequence[Record]:
        """Returns the messages of the queue, without those that the tracker has expired or skipped."""
        messages, cell = fetched.of_queue(self._queue_id), self._assignment.cell_of(fetched.partition)
        known = self._cursors.get(cell)
        # After a failed write, the messages may have come as redeliveries meanwhile.
        if known is not None and (known.ages.ttl_ms is not None or self._fetches_again):
            self._cursors.refresh()
            known = self._cursors.get(cell)
        if not messages or known is None or offset_of(messages[0]) >= known.read_position:
            return messages
        # A Start of this run without a broker response may have moved the read position. Its messages are
        # neither expired nor skipped. Those without a lease have ended, or come again as redeliveries.
        unconfirmed = self._member.unconfirmed(cell) & known.leased
        return [
            message
            for message in messages
            if offset_of(message) >= known.read_position or offset_of(message) in unconfirmed
        ]

    def _start_new(self, ours: Mapping[int, Sequence[Record]]) -> list[int]:
        """Writes the Starts of fetched messages. Returns the partitions still assigned to this consumer."""
        if not ours:
            return []
        started, lost = self._member.start_new({number: offsets_of(some) for number, some in ours.items()})
        self._leave(lost)
        return started

    def _track(self, start: Start) -> None:
        count = start.delivery_count
        self._batcher.track(start.cell, start.offsets, run_id=start.run_id, delivery_count=count)

    def _put(
        self, partition: int, messages: Sequence[Record], delivery_count: int, began_ms: int | None
    ) -> None:
        """Buffers messages whose Starts are stored. Releases delayed messages until their delivery time."""
        cell = self._assignment.cell_of(partition)
        if self._config.delayed_delivery:
            piece = Slice(topic=cell.topic, partition=partition, offsets=EMPTY, delivery_count=delivery_count)
            messages, early = messages_not_due(piece, messages, self._starts.now_ms)
            for again_ms, offsets in early:
                later = Release(cell=cell, offsets=offsets, delivery_count=delivery_count, due_ms=again_ms)
                self._batcher.settle(later)
        delivery = self._delivery(cell, delivery_count, began_ms)
        with collector_paused():
            received = list(map(QueueMessage, messages, repeat(delivery)))
        self._buffer.put(received)

    # -- redeliveries ----------------------------------------------------------------------------------

    def _deliver_again(self, most: int, paused: frozenset[int], *, alone: bool) -> bool:
        """Delivers up to ``most`` redelivered messages. False if none are waiting.

        With ``alone``, delivers suspects. Otherwise delivers other redeliveries.
        """
        is_any = self._member.start_again(most, paused, alone=alone)
        self._read_started()
        return is_any

    def _read_started(self) -> bool:
        """Reads the started redeliveries, except those of partitions in a pause or without an answer.

        False if there are no others.
        """
        is_any = False
        for number in self._member.unread.keys() - self._pauses.partitions:
            unread = self._member.unread[number]
            if len(unread.piece.offsets) > self._buffer.room:  # others came during a pause
                self._closing.wait(LOOK_S)
                is_any = True
                continue
            if not self._reads.has_result(number, unread, partial(self._read, unread.piece)):
                continue
            with self._pauses.reading(number):
                is_any = True
                self._put_again(unread, *self._reads.take(number))
                del self._member.unread[number]
        return is_any

    def _trouble(self) -> CursorqError | None:
        return self._pauses.trouble({cell.partition for cell in self._assignment.cells})

    def _read(self, piece: Slice) -> _Redelivered:
        return redelivered(
            self._reading | {"isolation.level": self._config.isolation.value},
            piece,
            stall_timeout_ms=self._config.timeout_ms,
            rescue=self._rescue,
        )

    def _put_again(self, unread: Unread, messages: list[Record], missing: _Missing) -> None:
        piece = unread.piece
        self._put(piece.partition, messages, piece.delivery_count, unread.began_ms)
        for why, offsets in missing:
            if why is Missing.RETENTION:
                # Before the End: a loss that ends this consumer is told to the next one, too.
                self._on_lost(piece.partition, offsets)
            # Without this End, offsets without a message would be redelivered forever.
            cell, gap = self._assignment.cell_of(piece.partition), why is Missing.GAP
            self._batcher.settle(End(cell=cell, offsets=offsets, no_message=gap))
