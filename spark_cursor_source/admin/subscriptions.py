"""Administration of subscriptions: create, seek, skip, expire and delete, also while a query reads them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence

from spark_cursor_source.admin.snapshots import (
    Snapshot,
    check_room,
    check_snapshot_name,
    saved_states,
    snapshots_of,
)
from spark_cursor_source.admin.tracker_channel import TRACKER_TIMEOUT_MS, TrackerChannel
from spark_cursor_source.consumer.named_members import named_members
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import (
    UNDO,
    Delete,
    EndUpTo,
    ForgetState,
    Marker,
    Requeue,
    RestoreState,
    SaveState,
    Seek,
)
from spark_cursor_source.core.move_preview import MovePreview, preview_restore, preview_seek, preview_skip
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_DEAD_LETTER_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_RESCUE_TOPIC,
    why_no_dead_letters,
    why_no_subscription,
)
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX, group_id, why_no_group
from spark_cursor_source.errors import (
    CursorqError,
    GroupInUse,
    InvalidArgument,
    SnapshotNotTaken,
    SubscriptionExists,
    SubscriptionHasConsumers,
)
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.arguments import check_is_text, check_topic
from spark_cursor_source.options.topics import (
    FROM_EARLIEST,
    FromEarliest,
    FromLatest,
    FromPositions,
    FromTimestamp,
    FromTimestamps,
)
from spark_cursor_source.topics.authors import author_of
from spark_cursor_source.topics.positions import starting_positions
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.wire.instant_text import instant_text

__all__ = ["EARLIEST", "LATEST", "Position", "Subscriptions", "at_offsets", "at_time"]

log = logging.getLogger(__name__)

Position = FromEarliest | FromLatest | FromPositions | FromTimestamp | FromTimestamps
EARLIEST: Position = FROM_EARLIEST  #: the first record that is still in the log
LATEST: Position = FromLatest()  #: the end of the log


def at_time(timestamp_ms: int) -> Position:
    """Returns the position of the first record with this timestamp (ms since 1970) or a later one."""
    return FromTimestamp(timestamp_ms=timestamp_ms)


def at_offsets(topic: str, offsets: Mapping[int, int]) -> Position:
    """Returns the position with one offset for each given partition.

    >>> at_offsets("orders", {1: 40, 0: 17})
    FromPositions(positions=(('orders', 0, 17), ('orders', 1, 40)))
    """
    return FromPositions(positions=tuple((topic, number, at) for number, at in sorted(offsets.items())))


class Subscriptions(ClosedAtExit):
    """Admin client for the subscriptions of a markers topic. Not thread-safe.

    Commands are written to the markers topic and take effect in its order, among the markers of queries. A
    call returns the positions by partition after the cursors show the effect. ``CommandWaits`` is raised if
    no tracker executes the command within ``tracker_timeout_ms``. The command takes effect when a tracker
    runs, and should not be repeated.

    Each call raises InvalidArgument if the name of a subscription or topic is not a text. So a name that is
    None, for example from a variable that is not set, does not stand for all subscriptions or all topics.

    Example::

        from spark_cursor_source.admin import LATEST, Subscriptions, at_offsets

        with Subscriptions({"bootstrap.servers": "broker:9092"}) as subscriptions:
            print(subscriptions.create("billing", "orders", LATEST))  # {0: 812, 1: 790}
            print(subscriptions.seek("billing", "orders", at_offsets("orders", {0: 1})))
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        *,
        markers_topic: str = DEFAULT_MARKERS_TOPIC,
        cursors_topic: str = DEFAULT_CURSORS_TOPIC,
        group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX,
        tracker_timeout_ms: int = TRACKER_TIMEOUT_MS,
        author: str | None = None,
        rescue_topic: str = DEFAULT_RESCUE_TOPIC,
    ) -> None:
        """``kafka`` contains options of the Kafka clients.

        ``author`` is who acts, for :func:`read_audit`; None: this user and host. ``rescue_topic`` is that of
        the tracker.

        Raises:
            TopicNotFound: the markers topic or the cursors topic does not exist, because no tracker has
                created it.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self._prefix, self._markers_topic = group_id_prefix, markers_topic
        config = client_config(kafka, "admin")
        self._topics = ClusterAdmin(config).meet()
        self._rescue = Rescue(client_config(kafka, "consumer"), rescue_topic, markers_topic)
        self._tracker = TrackerChannel(
            kafka,
            self._topics,
            markers_topic=markers_topic,
            cursors_topic=cursors_topic,
            timeout_ms=tracker_timeout_ms,
            author=author_of(config, author),
        )

    def create(self, subscription: str, topic: str, at: Position) -> dict[int, int]:
        """Creates a subscription of a topic at a position, before any query reads it.

        A partition that the position does not name begins at the first record in its log.

        Raises:
            SubscriptionExists: the subscription has a cursor, or its consumer group has offsets.
            TrackedElsewhere: the tracker of another markers topic has the subscription.
            InvalidArgument, TopicNotFound, CommandWaits, MarkersNotDurable
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        partitions = self._partitions_for_new(subscription, topic)
        positions = self._positions(topic, partitions, at)
        # The positions are committed before the Seek: a query that starts now begins there.
        self._commit(subscription, positions)
        return self._seek(subscription, positions, what="create")

    def seek(self, subscription: str, topic: str, to: Position) -> dict[int, int]:
        """Moves the read position back or forward and forgets outstanding messages (Pulsar's reset-cursor).

        :meth:`undo` returns to the state before. The same holds for skips and expiries.

        Running queries follow. Partitions that the position does not name do not move. A position beyond an
        end of the log becomes that end. A partition that no consumer has begun yet moves too, from where a
        consumer would begin.

        Raises:
            UnknownSubscription: the subscription has no cursor.
            TrackedElsewhere: the tracker of another markers topic has the subscription.
            InvalidArgument, TopicNotFound, CommandWaits, MarkersNotDurable
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        known = self._known(subscription, topic)
        positions = self._sought(topic, to)
        if new := self._unbegun(subscription, positions, known):
            # A state cannot be saved, and so returned to, before its cell exists. Without an action's name,
            # the audit shows only where the subscription goes.
            self._tracker.send([Seek(cell=cell, position=one.read_position) for cell, one in new.items()])
        self._commit(subscription, positions)
        return self._seek(subscription, positions, what="seek", undoable=True)

    def preview_seek(self, subscription: str, topic: str, to: Position) -> tuple[MovePreview, ...]:
        """Returns the effect that a seek would have now, by partition. Nothing is changed.

        Raises:
            UnknownSubscription, TrackedElsewhere, InvalidArgument, TopicNotFound
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        known = self._known(subscription, topic)
        positions = self._sought(topic, to)
        cursors = known | self._unbegun(subscription, positions, known)
        moved = {cell: at for cell in cursors if (at := positions.get((topic, cell.partition))) is not None}
        return tuple(preview_seek(cursors[cell], at) for cell, at in sorted(moved.items()))

    def skip(
        self, subscription: str, topic: str, messages: int, *, partition: int | None = None
    ) -> dict[int, int]:
        """Ends the next ``messages`` outstanding or unread messages in each partition, or in ``partition``.

        Unread offsets without a message count as messages.

        Raises:
            UnknownSubscription: the subscription has no cursor.
            TrackedElsewhere: the tracker of another markers topic has the subscription.
            InvalidArgument: ``messages`` is less than 1, or the partition has no cursor.
            TopicNotFound, CommandWaits, MarkersNotDurable
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        _check_count(messages)
        cursors = self._known(subscription, topic, partition)
        what = f"skip {counted(messages, 'message')}"
        return self._end_up_to(subscription, self._past(cursors, messages), what=what)

    def preview_skip(
        self, subscription: str, topic: str, messages: int | None = None, *, partition: int | None = None
    ) -> tuple[MovePreview, ...]:
        """Returns the effect of a skip, by partition; without ``messages``, of :meth:`skip_all`.

        Nothing is changed.

        Raises:
            UnknownSubscription, TrackedElsewhere, InvalidArgument, TopicNotFound: see :meth:`skip`.
        """
        if messages is not None:
            _check_count(messages)
        cursors = self._known(subscription, topic, partition)
        positions = self._ends(cursors) if messages is None else self._past(cursors, messages)
        return tuple(preview_skip(cursors[cell], at) for cell, at in sorted(positions.items()))

    def skip_all(self, subscription: str, topic: str) -> dict[int, int]:
        """Ends all messages that are readable now (Pulsar's clear-backlog).

        Messages of an open transaction become readable later and are not skipped, nor are those of a
        partition that no consumer has begun yet.

        Raises:
            UnknownSubscription, TrackedElsewhere, CommandWaits: see :meth:`skip`.
        """
        cursors = self._known(subscription, topic)
        return self._end_up_to(subscription, self._ends(cursors), what="skip all messages")

    def skip_to(self, subscription: str, topic: str, positions: Mapping[int, int]) -> dict[int, int]:
        """Ends all messages below a position in each of these partitions, such as those of a preview.

        A position beyond the end of the log becomes that end.

        Raises:
            InvalidArgument: a partition has no cursor.
            UnknownSubscription, TrackedElsewhere, CommandWaits: see :meth:`skip`.
        """
        cursors = self._known(subscription, topic)
        ends = {cell.partition: (cell, end) for cell, end in self._ends(cursors).items()}
        for number in sorted(positions.keys() - ends.keys()):
            raise InvalidArgument("partition", number, f"'{subscription}' has no cursor of it")
        wanted = {ends[number][0]: min(at, ends[number][1]) for number, at in positions.items()}
        return self._end_up_to(subscription, wanted, what="skip to positions")

    def expire(
        self, subscription: str, topic: str, *, before_ms: int, partition: int | None = None
    ) -> dict[int, int]:
        """Ends the messages that are older than a time (Pulsar's expire-messages).

        In each partition, or in ``partition``, every outstanding or unread message below the first record
        with the timestamp ``before_ms`` or a later one ends. They count as acked, and no dead letter is
        written. An older message above a newer one stays. Partitions without an older message are not in the
        result.

        Raises:
            UnknownSubscription: the subscription has no cursor.
            TrackedElsewhere: the tracker of another markers topic has the subscription.
            InvalidArgument: the partition has no cursor.
            TopicNotFound, CommandWaits, MarkersNotDurable
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        cursors = self._known(subscription, topic, partition)
        positions = self._older(cursors, before_ms)
        if not positions:
            return {}
        return self._end_up_to(
            subscription, positions, what=f"expire messages before {instant_text(before_ms)}"
        )

    def preview_expire(
        self, subscription: str, topic: str, *, before_ms: int, partition: int | None = None
    ) -> tuple[MovePreview, ...]:
        """Returns the effect that :meth:`expire` would have now, by partition. Nothing is changed.

        Raises:
            UnknownSubscription, TrackedElsewhere, InvalidArgument, TopicNotFound
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        cursors = self._known(subscription, topic, partition)
        positions = self._older(cursors, before_ms)
        return tuple(preview_skip(cursors[cell], at) for cell, at in sorted(positions.items()))

    def snapshot(self, subscription: str, topic: str, name: str) -> dict[int, int]:
        """Saves the state of a subscription under a name, as a snapshot of Google Pub/Sub does.

        The snapshot has the ack state of each message, and the delivery counts. It replaces an earlier one of
        this name. Returns the read positions by partition. A subscription has at most eight snapshots of a
        topic.

        Raises:
            UnknownSubscription: the subscription has no cursor.
            TooManySnapshots: the subscription has eight others.
            SnapshotNotTaken: the tracker is of an earlier version.
            TrackedElsewhere, InvalidArgument, CommandWaits, MarkersNotDurable
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        check_snapshot_name(name)
        cursors = self._known(subscription, topic)
        check_room(cursors, name)
        markers = [SaveState(cell=cell, name=name) for cell in cursors]
        told = self._tracker.tell(markers, what=f"take snapshot {name}")
        found = snapshots_of(cursor for cursor in told.values() if cursor is not None)
        taken = next((one for one in found if one.name == name), None)
        if taken is None:
            raise SnapshotNotTaken(subscription, topic, name)
        return dict(taken.positions)

    def snapshots(self, subscription: str, topic: str | None = None) -> tuple[Snapshot, ...]:
        """Returns the snapshots of a subscription, of one topic or of all, the oldest of each topic first.

        The snapshot ``undo`` is the state before the last seek, skip, expiry or restore.

        Raises:
            UnknownSubscription, TrackedElsewhere, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        return snapshots_of(self._tracker.known(subscription, topic).values())

    def restore(self, subscription: str, topic: str, name: str) -> dict[int, int]:
        """Returns a subscription to the state of a snapshot. Returns the read positions by partition.

        What was acked then is acked, and everything else is delivered, with the delivery counts of then. A
        message that was in its last delivery has one more. Acks since then are forgotten. Running queries
        follow as after a seek. Messages that are no longer in the topic stay ended. Those that are in the
        rescue topic are delivered, as if for the first time. Partitions without this
        snapshot do not change. :meth:`undo` returns to the state before. The snapshot stays.

        Raises:
            UnknownSubscription: the subscription has no cursor.
            UnknownSnapshot: the subscription has no such snapshot.
            TrackedElsewhere, CommandWaits, MarkersNotDurable, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        what = "undo" if name == UNDO else f"restore snapshot {name}"
        states = saved_states(self._known(subscription, topic), subscription, topic, name)
        begins = self._topics.beginning_offsets([(topic, cell.partition) for cell in states])
        positions: dict[Partition, int] = {}
        markers: list[Marker] = []
        move = _new_move()
        for cell, saved in states.items():
            begin = begins[topic, cell.partition]
            positions[topic, cell.partition] = max(saved.read_position, begin)
            markers.append(RestoreState(cell=cell, name=name, move=move, next_marker=saved.next_marker))
            if saved.ended_below < begin:
                markers.append(EndUpTo(cell=cell, position=begin))
                if rescued := self._rescued(cell, saved.read_position, saved.offsets, begin):
                    markers.append(Requeue(cell=cell, offsets=rescued))
        self._commit(subscription, positions)
        self._tracker.tell(markers, what=what)
        log.info(
            "The subscription was restored. event=subscription_restored subscription=%s partitions=%d "
            "name=%s",
            subscription,
            len(states),
            name,
        )
        return {number: at for (_, number), at in sorted(positions.items())}

    def preview_restore(self, subscription: str, topic: str, name: str) -> tuple[MovePreview, ...]:
        """Returns the effect that a restore would have now, by partition. Nothing is changed.

        Raises:
            UnknownSubscription, UnknownSnapshot, TrackedElsewhere
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        cursors = self._known(subscription, topic)
        states = saved_states(cursors, subscription, topic, name)
        return tuple(preview_restore(cursors[cell], saved) for cell, saved in sorted(states.items()))

    def undo(self, subscription: str, topic: str) -> dict[int, int]:
        """Returns to the state before the last seek, skip, expiry or restore of this topic.

        Only the partitions that it has changed return. An undo can be undone, too. The state before is kept
        for about a week.

        Raises:
            UnknownSnapshot: there is nothing to undo.
            UnknownSubscription, TrackedElsewhere, CommandWaits, MarkersNotDurable
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        return self.restore(subscription, topic, UNDO)

    def forget_snapshot(self, subscription: str, topic: str, name: str) -> None:
        """Removes a snapshot.

        Raises:
            UnknownSubscription, UnknownSnapshot, TrackedElsewhere, CommandWaits, MarkersNotDurable
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        states = saved_states(self._known(subscription, topic), subscription, topic, name)
        markers = [ForgetState(cell=cell, name=name) for cell in states]
        self._tracker.tell(markers, what=f"forget snapshot {name}")

    def clone(
        self, subscription: str, topic: str, target: str, *, snapshot: str | None = None
    ) -> dict[int, int]:
        """Creates the subscription ``target`` with the ack state of another, or of one of its snapshots.

        Returns the read positions by partition. The clone has its own acks. Its delivery counts start at 0.

        Raises:
            SubscriptionExists: the target has a cursor, or its consumer group has offsets.
            UnknownSubscription, UnknownSnapshot: there is nothing to clone.
            TrackedElsewhere, InvalidArgument, TopicNotFound, CommandWaits, MarkersNotDurable
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        positions: dict[Partition, int] = {}
        markers: list[Marker] = []
        for cell, (position, outstanding) in self._cloned(subscription, topic, target, snapshot).items():
            positions[topic, cell.partition] = position
            markers.append(Seek(cell=cell, position=position))
            if outstanding:
                markers.append(Requeue(cell=cell, offsets=outstanding))
        self._commit(target, positions)
        self._tracker.tell(markers, what=f"clone {subscription}")
        return {number: at for (_, number), at in sorted(positions.items())}

    def preview_clone(
        self, subscription: str, topic: str, target: str, *, snapshot: str | None = None
    ) -> tuple[MovePreview, ...]:
        """Returns where the clone would begin now, by partition. Nothing is changed.

        ``again`` are the outstanding messages that the clone receives, ``dropped`` is 0.

        Raises:
            SubscriptionExists, UnknownSubscription, UnknownSnapshot, TrackedElsewhere, InvalidArgument
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        return tuple(
            MovePreview(
                topic=topic,
                partition=cell.partition,
                position_before=0,
                position=position,
                again=len(outstanding),
                dropped=0,
            )
            for cell, (position, outstanding) in sorted(
                self._cloned(subscription, topic, target, snapshot).items()
            )
        )

    def _cloned(
        self, subscription: str, topic: str, target: str, snapshot: str | None
    ) -> dict[Cell, tuple[int, OffsetSet]]:
        """Returns read position and outstanding messages of a new subscription, by its cells."""
        self._partitions_for_new(target, topic)
        cursors = self._known(subscription, topic)
        if snapshot is None:
            states = {cell: (one.read_position, one.outstanding) for cell, one in cursors.items()}
        else:
            saved = saved_states(cursors, subscription, topic, snapshot)
            states = {cell: (one.read_position, one.offsets) for cell, one in saved.items()}
        begins = self._topics.beginning_offsets([(topic, cell.partition) for cell in states])
        found: dict[Cell, tuple[int, OffsetSet]] = {}
        for source, (position, outstanding) in states.items():
            begin = begins[topic, source.partition]
            cell = Cell(subscription=target, topic=topic, partition=source.partition)
            rescued = self._rescued(source, position, outstanding, begin)
            found[cell] = max(position, begin), outstanding.starting_at(begin) | rescued
        return found

    def latest_marker_ms(self) -> int | None:
        """Returns the time of the newest marker by the brokers' clock; None: there is no marker.

        An age counts from this time. While nobody writes markers, it is behind the present.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        return self._tracker.latest_marker_ms()

    def delete(self, subscription: str, *, force: bool = False) -> bool:
        """Deletes a subscription of all its topics. Returns True if its consumer group is deleted too.

        With ``force``, a subscription with consumers is deleted too, but its consumer group remains. A query
        that still runs creates the subscription again at its present position. The messages and the dead
        letters are not deleted.

        Raises:
            SubscriptionHasConsumers: its consumer group has members, and ``force`` is False.
            UnknownSubscription: the subscription has neither a cursor nor a consumer group.
            InvalidArgument: its consumer group is the tracker's.
            TrackedElsewhere: the tracker of another markers topic has the subscription.
            TrackerBehind: the tracker has not read the earlier commands in time. Nothing was changed.
            CommandWaits, MarkersNotDurable, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        group = self._group(subscription)
        # A command that still waits may create the subscription.
        self._tracker.catch_up()
        cursors = self._tracker.find(subscription)
        # The group is deleted first: its coordinator knows whether it has members, and a failure after this
        # step loses no state.
        try:
            was_there, in_use = self._topics.delete_group(group), False
        except GroupInUse as refused:
            was_there, in_use = True, True
            if not force:
                partitions = [cell.topic_partition for cell in cursors]
                members = map(str, named_members(self._topics, group, partitions))
                raise SubscriptionHasConsumers(subscription, tuple(members)) from refused
        if not cursors and not was_there:
            raise self._tracker.unknown(subscription)
        self._tracker.tell([Delete(cell=cell) for cell in cursors], what="delete")
        log.info(
            "The subscription was deleted. event=subscription_deleted subscription=%s partitions=%d",
            subscription,
            len(cursors),
        )
        return not in_use

    def close(self) -> None:
        """Closes the clients."""
        self._tracker.close()

    def _known(
        self, subscription: str, topic: str, partition: int | None = None
    ) -> dict[Cell, CursorSnapshot]:
        check_is_text("topic", topic)  # None would select all topics
        found = self._tracker.find(subscription, topic)
        cursors = {cell: one for cell, one in found.items() if partition in (None, cell.partition)}
        if not found:
            raise self._tracker.unknown(subscription, topic)
        if not cursors:
            raise InvalidArgument("partition", partition, f"'{subscription}' has no cursor of it")
        return cursors

    def _partitions_for_new(self, subscription: str, topic: str) -> list[Partition]:
        """Checks that a subscription can be created. Returns the partitions of its topic."""
        if (why := why_no_subscription(subscription)) is not None:
            raise InvalidArgument("subscription", subscription, why)
        check_topic("topic", topic)
        template = DEFAULT_DEAD_LETTER_TOPIC
        if (why := why_no_dead_letters(template, topic=topic, subscription=subscription)) is not None:
            raise InvalidArgument("subscription", subscription, why)
        group = self._group(subscription)
        partitions = self._topics.partitions_of(topic)
        if self._tracker.find(subscription, topic) or self._topics.committed(group, partitions):
            raise SubscriptionExists(subscription, topic)
        return partitions

    def _group(self, subscription: str) -> str:
        """Returns the consumer group of a subscription.

        Raises:
            InvalidArgument: it is the tracker's.
        """
        if (why := why_no_group(self._prefix, subscription, self._markers_topic)) is not None:
            raise InvalidArgument("subscription", subscription, why)
        return group_id(self._prefix, subscription)

    def _positions(
        self, topic: str, partitions: Sequence[Partition], wanted: Position
    ) -> dict[Partition, int]:
        there = set(self._topics.partitions_of(topic))
        for name, number in sorted((_named(wanted) or set()) - there):
            raise InvalidArgument("position", f"{name} {number}", f"'{topic}' has no such partition")
        begins = self._topics.beginning_offsets(partitions)
        ends = self._topics.end_offsets(partitions, committed=False)
        found = starting_positions(wanted, partitions, self._topics)
        return {tp: min(max(at, begins[tp]), ends[tp]) for tp, at in found.items()}

    def _sought(self, topic: str, to: Position) -> dict[Partition, int]:
        named = _named(to)
        partitions = [tp for tp in self._topics.partitions_of(topic) if named is None or tp in named]
        return self._positions(topic, partitions, to)

    def _unbegun(
        self, subscription: str, partitions: Iterable[Partition], known: Collection[Cell]
    ) -> dict[Cell, CursorSnapshot]:
        """Returns, of the cells that are not known, the state in which a consumer would begin them."""
        cells = {
            Cell(subscription=subscription, topic=topic, partition=n): (topic, n) for topic, n in partitions
        }
        new = {cell: tp for cell, tp in cells.items() if cell not in known}
        if not new:
            return {}
        begins = self._topics.beginning_offsets(new.values())
        committed = self._topics.committed(self._group(subscription), new.values())
        return {
            cell: CursorSnapshot(
                cell=cell, read_position=max(begins[tp], committed.get(tp, 0)), next_marker=0
            )
            for cell, tp in new.items()
        }

    def _past(self, cursors: Mapping[Cell, CursorSnapshot], messages: int) -> dict[Cell, int]:
        ends = self._ends(cursors)
        return {cell: one.position_past(messages, end=ends[cell]) for cell, one in cursors.items()}

    def _older(self, cursors: Mapping[Cell, CursorSnapshot], before_ms: int) -> dict[Cell, int]:
        ends = self._ends(cursors)
        found = self._topics.offsets_for_time([cell.topic_partition for cell in cursors], before_ms)
        # A message of an open transaction may be older. It stays unread until the transaction ends.
        positions = {cell: min(found[cell.topic_partition], end) for cell, end in ends.items()}
        return {cell: at for cell, at in positions.items() if preview_skip(cursors[cell], at).dropped}

    def _ends(self, cursors: Mapping[Cell, CursorSnapshot]) -> dict[Cell, int]:
        partitions = [cell.topic_partition for cell in cursors]
        ends = self._topics.end_offsets(partitions, committed=True)
        return {cell: ends[cell.topic_partition] for cell in cursors}

    def _seek(
        self,
        subscription: str,
        positions: Mapping[Partition, int],
        *,
        what: str,
        undoable: bool = False,
    ) -> dict[int, int]:
        seeks = [
            Seek(cell=Cell(subscription=subscription, topic=topic, partition=number), position=at)
            for (topic, number), at in positions.items()
        ]
        self._tracker.tell(_undoable(seeks) if undoable else seeks, what=what)
        log.info(
            "The subscription was moved to new positions. event=subscription_seek subscription=%s "
            "partitions=%d",
            subscription,
            len(seeks),
        )
        return {seek.cell.partition: seek.position for seek in seeks}

    def _end_up_to(self, subscription: str, positions: Mapping[Cell, int], *, what: str) -> dict[int, int]:
        ends = [EndUpTo(cell=cell, position=at) for cell, at in positions.items()]
        cursors = self._tracker.tell(_undoable(ends), what=what)
        log.info("Messages were skipped. event=messages_skipped partitions=%d", len(positions))
        read = {cell.topic_partition: one.read_position for cell, one in cursors.items() if one is not None}
        try:
            if read:
                self._commit(subscription, read)
        except CursorqError as why:
            # The messages are skipped. Who reads an error may repeat the call, and skip further ones.
            log.warning(
                "The messages are skipped, but the offsets of the consumer group are not committed. A "
                "consumer commits them when it runs. event=skip_not_committed subscription=%s why=%s",
                subscription,
                why,
            )
        return {cell.partition: at for cell, at in positions.items()}

    def _rescued(self, cell: Cell, read_position: int, outstanding: OffsetSet, begin: int) -> OffsetSet:
        """Returns the unacked offsets of a state that only the rescue topic has."""
        unread = OffsetSet.of((min(read_position, begin), begin))
        gone = outstanding.below(begin) | unread
        return self._rescue.has(cell.topic, {cell.partition: gone})[cell.partition] if gone else gone

    def _commit(self, subscription: str, positions: Mapping[Partition, int]) -> None:
        """Commits the positions as group offsets, unless active members commit their own."""
        # A subscription with offsets and without a cursor could not be created again.
        self._tracker.check_rights()
        try:
            self._topics.commit(self._group(subscription), positions)
        except GroupInUse:
            log.info(
                "The consumer group has members, so its offsets are left to them. event=group_in_use "
                "subscription=%s",
                subscription,
            )


def _undoable(moves: Iterable[Seek | EndUpTo]) -> list[Marker]:
    """Returns the moves, and before each the marker that saves the state for an undo.

    The two are next to each other, so that they are in one batch of the producer.
    """
    markers: list[Marker] = []
    move_id = _new_move()
    for move in moves:
        markers += [SaveState(cell=move.cell, name=UNDO, move=move_id), move]
    return markers


def _new_move() -> str:
    return uuid.uuid4().hex


def _check_count(messages: int) -> None:
    if messages < 1:
        raise InvalidArgument("messages", messages, "there is nothing to skip")


def _named(position: Position) -> set[Partition] | None:
    """Returns the partitions that a position names; None if it applies to all."""
    match position:
        case FromPositions(positions=named) | FromTimestamps(timestamps_ms=named):
            return {(topic, number) for topic, number, _ in named}
        case _:
            return None
