"""Statistics of all subscriptions, followed by a process that shows them for a long time."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from spark_cursor_source.admin.oldest import ONE_MESSAGE, OldestReader
from spark_cursor_source.admin.stats import consumers_of
from spark_cursor_source.consumer.named_members import (
    NamedMember,
    is_named_by_commits,
    named_members,
    with_names,
)
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.durability import WeakTopic
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
)
from spark_cursor_source.core.stats import PartitionStats, Stats, SubscriptionStats
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX, group_id
from spark_cursor_source.errors import NotAuthorized
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.deadline import Deadline, Pace
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.tracker_progress import read_progress
from spark_cursor_source.wire import cursor as cursor_wire

_SLOW_EVERY_MS = 10_000  # interval of the requests whose answers change rarely
_MEMBERS_MS = 3_000  # interval of the requests about one consumer group
_Key = TypeVar("_Key", Partition, str)
_FEW_GROUPS = 16  # up to so many groups are read one by one; the request for many reads all of the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerState:
    """Progress of the tracker in the markers topic. Empty if it may not be read."""

    #: (first marker that is not read, end of the log, query id of the tracker) by markers partition
    partitions: Mapping[int, tuple[int, int, str | None]] = field(default_factory=dict)
    denied: str | None = None  #: error of a client without rights on the tracker's group

    @property
    def unread(self) -> int:
        """Number of markers that no tracker has read yet."""
        return sum(max(0, end - at) for at, end, _ in self.partitions.values())

    @property
    def owners(self) -> tuple[str, ...]:
        """Query ids of the trackers that have committed progress."""
        return tuple(sorted({owner for _, _, owner in self.partitions.values() if owner}))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """Statistics of all subscriptions, and the cursors that they were taken from."""

    stats: Stats
    cursors: Mapping[Cell, CursorSnapshot]
    bounds: Mapping[Partition, tuple[int, int]]  #: first and last stable offset of the existing partitions
    tracker: TrackerState
    marker_ms: int | None  #: broker time of the newest marker
    unknown_members: frozenset[str]  #: subscriptions whose consumers have not been read yet
    #: cells of deleted topics whose names other topics have now
    of_deleted: frozenset[Cell] = frozenset()
    fetch_s: float = 0.0  #: time that the new records of the cursors topic took


class LiveStats:
    """Statistics of all subscriptions, refreshed at the cost of what has changed. Not thread-safe.

    A refresh decodes the cursors that changed. The times of the oldest messages and the consumers are read
    within a budget of time for each refresh. With many subscriptions they are therefore some seconds old.
    With ``sizes``, the statistics have the sizes of the cursors. ``subscription`` and ``topic`` leave out
    others.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        *,
        markers_topic: str = DEFAULT_MARKERS_TOPIC,
        redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC,
        cursors_topic: str = DEFAULT_CURSORS_TOPIC,
        group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX,
        timeout_ms: int = 10_000,
        subscription: str | None = None,
        topic: str | None = None,
        sizes: bool = False,
    ) -> None:
        self._kafka = kafka
        self._markers_topic = markers_topic
        self._control_topics = (markers_topic, redeliveries_topic, cursors_topic)
        self._only = {"subscription": subscription, "topic": topic}
        self._sizes = sizes
        self._topics = ClusterAdmin(client_config(kafka, "admin"), timeout_ms=timeout_ms)
        config = client_config(kafka, "consumer")
        self._table = CursorTable(config, cursors_topic, timeout_ms=timeout_ms, stall_timeout_ms=timeout_ms)
        self._parts: dict[Cell, tuple[CursorSnapshot, PartitionStats]] = {}
        self._oldest = _OldestTimes(config)
        self._members = _Members(self._topics, group_id_prefix)
        self._slow = Pace(_SLOW_EVERY_MS)
        self._ends: dict[Partition, int] = {}  # the last known ones
        self._starts: dict[Partition, int] = {}
        self._newest: dict[str, int] = {}
        self._ids: dict[str, str] = {}  # of the present topics, by name
        self._weak: tuple[WeakTopic, ...] = ()

    def refresh(self, *, budget_ms: int | None = 400) -> LiveView:
        """Returns the state as of now. Without a budget, nothing in it is older.

        Raises:
            TopicNotFound: the cursors topic or the markers topic does not exist.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        began = time.monotonic()
        self._table.refresh()
        fetch_s = time.monotonic() - began
        cursors = self._table.of(**self._only)
        partitions = sorted({cell.topic_partition for cell in cursors})
        ends, unknown = self._topics.known_ends(partitions, committed=True)
        if self._slow.is_time() or ends.keys() - self._starts.keys():
            self._look_slowly(ends, unknown)
        markers = self._topics.partitions_of(self._markers_topic)
        marker_ms = self._topics.newest_ms(markers).get(self._markers_topic)
        deleted = {cell for cell, one in cursors.items() if one.is_of_another(self._ids.get(cell.topic))}
        self._oldest.refresh(
            {cell: one for cell, one in cursors.items() if cell not in deleted},
            ends,
            unknown,
            None if budget_ms is None else Deadline.after_ms(budget_ms),
        )
        self._members.refresh(cursors, None if budget_ms is None else Deadline.after_ms(budget_ms))
        tracker = self._tracker_state(markers)
        self._ends = _last_known(self._ends, unknown) | ends
        return LiveView(
            stats=Stats(
                subscriptions=tuple(self._subscriptions(cursors, deleted, unknown, marker_ms)),
                weak_topics=self._weak,
                markers_unread=None if tracker.denied else tracker.unread,
            ),
            cursors=cursors,
            bounds={one: (self._starts.get(one, 0), end) for one, end in self._ends.items()},
            tracker=tracker,
            marker_ms=marker_ms,
            unknown_members=self._members.unknown(cursors),
            of_deleted=frozenset(deleted),
            fetch_s=fetch_s,
        )

    def close(self) -> None:
        """Closes the clients."""
        self._table.close()

    def _look_slowly(self, ends: Mapping[Partition, int], unknown: Collection[Partition]) -> None:
        self._starts = _last_known(self._starts, {*unknown, *ends}) | self._topics.known_beginnings(ends)
        self._ids = self._topics.known_ids(topic for topic, _ in ends)
        self._weak = self._topics.weak(self._control_topics)
        self._newest = _last_known(self._newest, {topic for topic, _ in unknown})
        for topic, at_ms in self._topics.newest_ms(ends, known_only=True).items():
            self._newest[topic] = max(self._newest.get(topic, 0), at_ms)

    def _tracker_state(self, markers: Collection[Partition]) -> TrackerState:
        try:
            progress = read_progress(self._topics, self._markers_topic, stable=False)
        except NotAuthorized as denied:
            return TrackerState(denied=str(denied))
        return TrackerState(
            partitions={
                number: (progress.next_markers.get(number, begin), end, progress.owners.get(number))
                for (_, number), (begin, end) in self._topics.bounds(markers).items()
            }
        )

    def _subscriptions(
        self,
        cursors: Mapping[Cell, CursorSnapshot],
        deleted: Collection[Cell],
        unknown: Mapping[Partition, str],
        marker_ms: int | None,
    ) -> Iterator[SubscriptionStats]:
        parts: dict[tuple[str, str], list[PartitionStats]] = {}
        for cell, cursor in sorted(cursors.items()):
            place = cell.topic_partition
            end = None if cell in deleted else self._ends.get(place)
            part = self._part(cell, cursor, end, unknown.get(place))
            parts.setdefault((cell.topic, cell.subscription), []).append(part)
        self._parts = {cell: self._parts[cell] for cell in cursors}
        for (topic, name), own in sorted(parts.items()):
            yield SubscriptionStats(
                topic=topic,
                subscription=name,
                partitions=tuple(own),
                consumers=consumers_of(self._members.of(name), topic, own),
                newest_ms=max(marker_ms or 0, self._newest.get(topic, 0)) or None,
            )

    def _part(
        self, cell: Cell, cursor: CursorSnapshot, log_end: int | None, end_trouble: str | None
    ) -> PartitionStats:
        known = self._parts.get(cell)
        if known is None or known[0] is not cursor:
            size = len(cursor_wire.encode(cursor)) if self._sizes else 0
            known = (
                cursor,
                PartitionStats.of(cursor, log_end=log_end, oldest_ms=None, cursor_bytes=size),
            )
        part = known[1]
        told = log_end, end_trouble, self._oldest.of(cell), self._oldest.trouble(cell)
        if (part.log_end, part.end_trouble, part.oldest_unacked_ms, part.oldest_trouble) != told:
            log_end, end_trouble, oldest_ms, trouble = told
            part = replace(
                part,
                log_end=log_end,
                end_trouble=end_trouble,
                oldest_unacked_ms=oldest_ms,
                oldest_trouble=trouble,
            )
        self._parts[cell] = (cursor, part)
        return part


def _last_known(values: Mapping[_Key, int], unknown: Collection[_Key]) -> dict[_Key, int]:
    """Returns those of the values that cannot be read again for now."""
    return {key: value for key, value in values.items() if key in unknown}


class _OldestTimes:
    """Times of the first unacked messages, read again when another message becomes the first."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = ONE_MESSAGE | dict(config) | {"isolation.level": "read_committed"}
        self._reader = OldestReader()
        # cell -> first unacked offset, its time, why it cannot be read
        self._known: dict[Cell, tuple[int, int | None, str | None]] = {}

    def of(self, cell: Cell) -> int | None:
        known = self._known.get(cell)
        return None if known is None else known[1]

    def trouble(self, cell: Cell) -> str | None:
        known = self._known.get(cell)
        return None if known is None else known[2]

    def refresh(
        self,
        cursors: Mapping[Cell, CursorSnapshot],
        ends: Mapping[Partition, int],
        unknown: Collection[Partition],
        deadline: Deadline | None,
    ) -> None:
        self._known = {cell: known for cell, known in self._known.items() if cell in cursors}
        wanted: list[tuple[Cell, CursorSnapshot, int, int]] = []
        for cell, cursor in cursors.items():
            first, end = cursor.mark_delete + 1, ends.get(cell.topic_partition)
            if cell.topic_partition in unknown:
                continue
            if end is None or first >= end:
                self._known[cell] = (first, None, None)
            elif self._reader.rests(cell):
                self._known[cell] = (first, None, self._reader.trouble(cell))
            elif (known := self._known.get(cell)) is None or known[0] != first or known[1] is None:
                wanted.append((cell, cursor, first, end))
        # Cells without a time come first, then those that waited longest since their last reading: a reading
        # puts a cell to the end of the known ones.
        turn = {cell: at for at, cell in enumerate(self._known)}
        wanted.sort(key=lambda item: (self.of(item[0]) is not None, turn.get(item[0], -1)))
        if not wanted:
            return
        times: dict[tuple[str, int, int], int | None] = {}  # of messages that several subscriptions wait for
        with borrowed_consumer(self._config) as consumer:
            for cell, cursor, first, end in wanted:
                place = (cell.topic, cell.partition, first)
                if place in times:
                    at_ms = times[place]
                else:
                    found = self._reader.read(consumer, cursor, end)
                    at_ms = None if found is None else found.at_ms
                    if found is not None and found.offset == first:  # and no offset without a message
                        times[place] = at_ms
                self._known.pop(cell, None)
                self._known[cell] = (first, at_ms, self._reader.trouble(cell))
                if deadline is not None and deadline.over:
                    return


class _Members:
    """Members of the consumer groups, read in turn."""

    def __init__(self, topics: ClusterAdmin, prefix: str) -> None:
        self._topics = topics
        self._prefix = prefix
        self._known: dict[str, list[NamedMember]] = {}  # in the order of the last reading
        self._fresh: dict[str, Deadline] = {}  # until when a reading is good enough

    def of(self, subscription: str) -> list[NamedMember]:
        return self._known.get(subscription, [])

    def unknown(self, cursors: Iterable[Cell]) -> frozenset[str]:
        return frozenset({cell.subscription for cell in cursors} - self._known.keys())

    def refresh(self, cursors: Iterable[Cell], deadline: Deadline | None) -> None:
        cells: dict[str, list[Partition]] = {}
        for cell in cursors:
            cells.setdefault(cell.subscription, []).append(cell.topic_partition)
        for gone in self._known.keys() - cells.keys():
            del self._known[gone], self._fresh[gone]
        turn = [name for name in cells if name not in self._known]
        turn += [name for name in self._known if self._fresh[name].over]
        if len(turn) > _FEW_GROUPS:
            turn = self._take_most(turn, cells)
        for name in turn:
            try:
                found = named_members(self._topics, group_id(self._prefix, name), cells[name])
            except NotAuthorized:
                found = []  # the group is not visible to this client
            self._take(name, found)
            if deadline is not None and deadline.over:
                return

    def _take_most(self, turn: Iterable[str], cells: Mapping[str, list[Partition]]) -> list[str]:
        """Reads many groups at once. Returns those whose members are named by their commits only."""
        groups = {group_id(self._prefix, name): name for name in turn}
        left = []
        for group, infos in self._topics.members_by_group(groups).items():
            name = groups[group]
            if any(map(is_named_by_commits, infos)):
                left.append(name)
            else:
                self._take(name, with_names(self._topics, group, infos, cells[name]))
        return left

    def _take(self, name: str, found: list[NamedMember]) -> None:
        self._known.pop(name, None)
        self._known[name], self._fresh[name] = found, Deadline.after_ms(_MEMBERS_MS)
