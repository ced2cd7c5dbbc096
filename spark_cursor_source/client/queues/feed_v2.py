"""Feed for a consumer with this package's tracker. One Start covers many messages.

Redelivered messages are read again at their original offsets.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat

from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.feed import LOOK_S, Feed
from spark_cursor_source.client.queues.message import QueueMessage, unreceived
from spark_cursor_source.client.queues.settler import AckBatcher
from spark_cursor_source.consumer.announced import AnnouncedRedeliveries
from spark_cursor_source.consumer.following import ClientAssignment
from spark_cursor_source.consumer.membership import GroupConfig
from spark_cursor_source.consumer.session import TrackerAddress, TrackerSession
from spark_cursor_source.consumer.starts import Starts
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.core.admission import Turns
from spark_cursor_source.core.batch import Delivery
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Marker, Release
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.core.suspect_turns import SuspectTurns, Turn
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.errors import NoTracker
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.collector import collector_paused
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Pace
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.kafka.tail_consumer import Fetched, Record, TailConsumer, offsets_of
from spark_cursor_source.options.service import ServiceConfig
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.delayed import messages_not_due
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.topics.queue import Missing
from spark_cursor_source.topics.redelivered import redelivered


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
        sender: MarkerSender,
        settler: AckBatcher,
        buffer: ReceiveBuffer,
    ) -> None:
        super().__init__(config, queue_id, topics, settler, buffer)
        self._sender = sender
        self._reading = reading = client_config(config.kafka, "consumer")
        run_id = uuid.uuid4().hex
        self._cursors = CursorTable(reading, config.cursors_topic, timeout_ms=config.timeout_ms)
        tracker = TrackerAddress(
            markers_topic=config.marker_topic,
            cursors_topic=config.cursors_topic,
            timeout_ms=config.tracker_timeout_ms,
        )
        self._run = TrackerSession(run_id, tracker, self._cursors, self._say_hello)
        part = GroupConfig(
            group=config.group_of(subscription),
            queue=config.message_topic,
            type=SubscriptionType.SHARED,
            session_ms=config.session_timeout_ms,
            query_id=run_id,
        )
        self._following = ClientAssignment(
            reading,
            topics,
            part,
            self._run,
            self._send,
            subscription=subscription,
            watch=TrackerWatch(topics, tracker),
        )
        self._reader = TailConsumer(
            reading, config.message_topic, isolation=config.isolation.value, on_removed=self._on_removed
        )
        self._announced = AnnouncedRedeliveries(reading, config.redeliveries_topic, topics)
        self._look_for_announced = Pace(int(LOOK_S * 1000))
        self._starts = Starts(self._send, self._run.id_of, lease_ms=config.redelivery_timeout_ms)
        self._started: Slice | None = None  # a redelivery that is started and not read yet
        self._turns = Turns()
        self._suspects = SuspectTurns(lease_ms=config.redelivery_timeout_ms)
        self._new_came = False  # True if the last fetch returned new messages

    def _close(self) -> None:
        self._following.close()
        for client in (self._reader, self._announced, self._cursors):
            client.close()

    def _step(self) -> None:
        if self._look_for_announced.is_time():
            self._announced.look(self._is_ours)
        self._leave(self._following.lost())
        self._following.greet()
        self._hear_the_tracker()
        self._following.tell_how_far()
        if not self._buffer.wait_for_room(LOOK_S):
            return
        self._deliver(self._paused())

    def _deliver(self, paused: frozenset[int]) -> None:
        """Delivers suspects, redeliveries or new messages, by the same turns as a query's planner."""
        if self._started is not None:
            self._read_started()
            return
        suspects = self._announced.waiting(paused, alone=True)
        turn = self._suspects.next(
            round(time.monotonic() * 1000),
            suspect=bool(suspects),
            held=bool(self._settler.held),
            others=self._new_came or bool(self._announced.waiting(paused, alone=False)),
        )
        if turn is Turn.WAIT:
            self._closing.wait(LOOK_S)
        elif turn is Turn.SUSPECT:
            self._deliver_again(self._buffer.room, paused, alone=True)
        else:
            room = self._buffer.room
            again, new = self._turns.share(
                room,
                again=self._announced.waiting(paused, alone=False),
                new=room if self._new_came else min(room, 1),
            )
            self._turns.planned(alone=False)
            came_again = self._deliver_again(again, paused, alone=False)
            if new or not came_again:
                self._deliver_new(paused, room - again, 0.0 if came_again else LOOK_S)

    # -- assigned partitions ---------------------------------------------------------------------------

    def _leave(self, numbers: Iterable[int]) -> None:
        cells = self._following.leave(numbers)
        if not cells:
            return
        gone = {cell.partition for cell in cells}
        self._reader.leave(gone)
        self._withdraw(lambda message: message.delivery.cell in cells)
        self._announced.forget(cells)
        if self._started is not None and self._started.partition in gone:
            piece, self._started = self._started, None
            cell = self._following.cell(piece.partition)
            self._hand_back(cell, piece.offsets, piece.delivery_count, self._starts.began_ms)
        for one in self._starts.forget(cells):
            self._hand_back(one.cell, one.offsets, one.delivery_count, None)

    def _hand_back(self, cell: Cell, offsets: OffsetSet, delivery_count: int, began_ms: int | None) -> None:
        self._settler.say(unreceived(cell, offsets, delivery_count, began_ms=began_ms))

    def _hear_the_tracker(self) -> None:
        try:
            begin = self._following.heard()
        except NoTracker:
            # The next round writes a new Hello: a rebuilt tracker may have lost the first one.
            self._leave(self._following.waiting)
            raise
        if begin:
            self._reader.follow(begin)

    # -- new messages ----------------------------------------------------------------------------------

    def _deliver_new(self, paused: frozenset[int], room: int, wait_s: float) -> None:
        if not self._following.is_reading:
            self._closing.wait(wait_s)
            return
        self._reader.pause(paused)
        most = max(min(room, self._config.consumer_max_messages_per_commit), 1)
        with collector_paused():
            fetched = self._reader.read(most, wait_s)
            self._new_came = bool(fetched)
            ours = {one.partition: self._wanted(one) for one in fetched}
        try:
            started = self._start_new({number: messages for number, messages in ours.items() if messages})
        except BaseException:
            self._reader.follow(
                {one.partition: one.start for one in fetched if one.partition in self._following}
            )
            raise
        for one in fetched:
            if one.partition in self._following:
                self._following[one.partition].passed = one.stop
        for number in started:
            self._put(number, ours[number], 1)

    def _wanted(self, fetched: Fetched) -> Sequence[Record]:
        """Returns the messages of the queue, without those that the tracker has expired or skipped."""
        messages, cell = fetched.of_queue(self._queue_id), self._following.cell(fetched.partition)
        known = self._cursors.get(cell)
        if known is not None and known.ages.ttl_ms is not None:
            self._cursors.refresh()
            known = self._cursors.get(cell)
        if not messages or known is None or offset_of(messages[0]) >= known.read_position:
            return messages
        # A Start of this run without a broker response may have moved the read position. Its messages are
        # neither expired nor skipped.
        ours = self._starts.unconfirmed(cell)
        return [
            message
            for message in messages
            if offset_of(message) >= known.read_position or offset_of(message) in ours
        ]

    def _start_new(self, ours: Mapping[int, Sequence[Record]]) -> list[int]:
        """Writes the Starts of fetched messages. Returns the partitions still assigned to this consumer."""
        if not ours:
            return []
        with self._following.steady():
            mine = {number for number in self._following.assigned() if number in self._following}
            deliveries = [
                Delivery(cell=self._following.cell(number), offsets=offsets_of(messages), delivery_count=1)
                for number, messages in ours.items()
                if number in mine
            ]
            self._start(deliveries)
        self._leave(ours.keys() - mine)
        for delivery in deliveries:
            self._following[delivery.cell.partition].position = (delivery.offsets.last or 0) + 1
        return [delivery.cell.partition for delivery in deliveries]

    def _start(self, deliveries: Sequence[Delivery], *, alone: bool = False) -> None:
        """Writes Starts and begins to extend their leases."""
        starts = self._starts.write(deliveries, alone=alone)
        for start, delivery in zip(starts, deliveries, strict=True):
            self._announced.started(delivery)
            self._settler.track(start.cell, start.offsets, run_id=start.run_id)

    def _put(self, partition: int, messages: Sequence[Record], delivery_count: int) -> None:
        """Buffers messages whose Starts are stored. Releases delayed messages until their delivery time."""
        cell = self._following.cell(partition)
        if self._config.delayed_delivery:
            piece = Slice(topic=cell.topic, partition=partition, offsets=EMPTY, delivery_count=delivery_count)
            messages, early = messages_not_due(piece, messages, self._starts.now_ms)
            for again_ms, offsets in early:
                later = Release(cell=cell, offsets=offsets, delivery_count=delivery_count, due_ms=again_ms)
                self._settler.say(later)
        delivery = self._delivery(cell, delivery_count, self._starts.began_ms)
        with collector_paused():
            received = list(map(QueueMessage, messages, repeat(delivery)))
        self._buffer.put(received)

    # -- redeliveries ----------------------------------------------------------------------------------

    def _is_ours(self, one: Redeliver) -> bool:
        return one.run_id == self._run.id_of(one.cell) and one.cell in self._following.cells

    def _deliver_again(self, most: int, paused: frozenset[int], *, alone: bool) -> bool:
        """Delivers up to ``most`` redelivered messages. False if none are waiting.

        With ``alone``, delivers suspects. Otherwise delivers other redeliveries.
        """
        one = self._announced.take(most, paused, alone=alone)
        if one is None:
            return False
        try:
            self._start_again(one)
        except BaseException:
            self._announced.put_back(one)
            raise
        self._read_started()
        return True

    def _read_started(self) -> None:
        if self._started is not None:
            self._read_again(self._started)
            self._started = None

    def _start_again(self, one: Redeliver) -> None:
        delivery = Delivery(cell=one.cell, offsets=one.offsets, delivery_count=one.delivery_count + 1)
        with self._following.steady():
            if one.cell.partition not in self._following.assigned():
                return  # the tracker announces this redelivery to the next owner
            self._start([delivery], alone=one.alone)
        self._started = Slice(
            topic=one.cell.topic,
            partition=one.cell.partition,
            offsets=delivery.offsets,
            delivery_count=delivery.delivery_count,
        )

    def _read_again(self, piece: Slice) -> None:
        messages, missing = redelivered(
            self._reading | {"isolation.level": self._config.isolation.value},
            piece,
            stall_timeout_ms=self._config.timeout_ms,
        )
        self._put(piece.partition, messages, piece.delivery_count)
        for why, offsets in missing:
            # Without this End, offsets without a message would be redelivered forever.
            cell, gap = self._following.cell(piece.partition), why is Missing.GAP
            self._settler.say(End(cell=cell, offsets=offsets, no_message=gap))
            if why is Missing.RETENTION:
                self._on_removed(piece.partition, offsets.first or 0, (offsets.last or 0) + 1)

    # -- markers ---------------------------------------------------------------------------------------

    def _say_hello(self, hellos: Sequence[Marker]) -> None:
        self._send(hellos)

    def _send(self, markers: Sequence[Marker]) -> int | None:
        """Writes markers. Returns the broker's append time in ms, or None if unknown."""
        self._sender.send(markers)
        return self._sender.flush(self._config.timeout_ms / 1000)
