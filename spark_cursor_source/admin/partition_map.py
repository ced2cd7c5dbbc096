"""Map of one partition of a subscription: the state of each offset above the mark-delete position."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from spark_cursor_source.admin.outstanding import read_cursors
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config

#: all states of an offset at or above the mark-delete position, in the order of their counts
MAP_STATES = ("acked", "leased", "available", "delayed", "blocked", "held", "unread")
_OUTSTANDING = MAP_STATES[1:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCell:
    """Counts of offsets by state in ``[first, end)`` of a partition."""

    first: int
    end: int
    counts: tuple[int, ...]  #: offsets by state, in the order of ``MAP_STATES``

    @property
    def state(self) -> str:
        """State of most offsets of the cell; the later one in ``MAP_STATES`` if two have as many."""
        return max(zip(self.counts, range(len(MAP_STATES)), MAP_STATES, strict=True))[2]

    @property
    def present(self) -> tuple[tuple[str, int], ...]:
        """Pairs of state and count, for the states that occur."""
        return tuple((state, count) for state, count in zip(MAP_STATES, self.counts, strict=True) if count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMap:
    """States of the offsets of one partition of a subscription.

    Offsets at or below ``mark_delete`` are all acked. The map covers ``[first, end)`` above it. An offset
    without a message, such as a transaction marker, has the state of its neighbours: unread, then acked.

    >>> from spark_cursor_source.core.cursor import Lease
    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> leases = ((Lease(60_000, 1, "run"), OffsetSet.of((2, 3), (5, 6))),)
    >>> cursor = CursorSnapshot(cell=cell, read_position=8, next_marker=7, leases=leases)
    >>> one = partition_map_of(cursor, log_start=0, log_end=10)
    >>> one.runs
    ((2, 3, 'leased'), (3, 5, 'acked'), (5, 6, 'leased'), (6, 8, 'acked'), (8, 10, 'unread'))
    >>> [(cell.first, cell.end, cell.state) for cell in one.cells(3)]
    [(2, 4, 'leased'), (4, 7, 'acked'), (7, 10, 'unread')]
    """

    topic: str
    subscription: str
    partition: int
    mark_delete: int  #: every offset up to this one, inclusive, is acknowledged; -1: none is
    read_position: int  #: the first offset that was never leased
    log_start: int | None  #: offset of the first record that is left; None: deleted topic, or not readable
    log_end: int | None  #: offset after the last readable record; None: deleted topic, or not readable
    leased: OffsetSet
    available: OffsetSet
    delayed: OffsetSet
    blocked: OffsetSet
    held: OffsetSet

    @property
    def first(self) -> int:
        """First offset of the map."""
        return self.mark_delete + 1

    @property
    def end(self) -> int:
        """Offset after the last one of the map."""
        return max(self.read_position, self.log_end or 0)

    @property
    def runs(self) -> tuple[tuple[int, int, str], ...]:
        """Adjacent ranges ``(first, end, state)`` from ``first`` to ``end``.

        The number of ranges grows with the holes. ``cells`` has a bounded number.
        """
        return tuple(self._runs(self.first, self.end))

    def runs_between(self, first: int, end: int) -> tuple[tuple[int, int, str], ...]:
        """Returns the ranges in a part of the map, cut at its bounds."""
        return tuple(self._runs(max(first, self.first), min(end, self.end)))

    def counts(self, first: int, end: int) -> tuple[int, ...]:
        """Returns the number of offsets in ``[first, end)`` by state, in the order of ``MAP_STATES``."""
        outstanding = [self._of(state).count_between(first, end) for state in _OUTSTANDING]
        read = max(0, min(end, self.read_position) - first)
        return (read - sum(outstanding), *outstanding, max(0, end - max(first, self.read_position)))

    def cells(self, width: int, *, first: int | None = None, end: int | None = None) -> tuple[MapCell, ...]:
        """Returns at most ``width`` cells of equal length, of the whole map or of a part of it.

        The cost depends on ``width`` and not on the number of messages. A cell holds at least one offset.

        Raises:
            ValueError: ``width`` is below 1.
        """
        if width < 1:
            raise ValueError(f"a map of {width} cells")
        first = self.first if first is None else max(first, self.first)
        end = self.end if end is None else min(end, self.end)
        size = max(0, end - first)
        count = min(width, size)
        edges = [first + size * at // count for at in range(count + 1)] if count else []
        return tuple(
            MapCell(first=start, end=stop, counts=self.counts(start, stop)) for start, stop in pairwise(edges)
        )

    def state_of(self, offset: int) -> str:
        """Returns the state of an offset; ``acked`` at or below the mark-delete position."""
        found = next((state for state in _OUTSTANDING if offset in self._of(state)), None)
        return found or ("acked" if offset < self.read_position else "unread")

    def to_json(self, *, indent: int | None = None) -> str:
        """Returns JSON with the positions, and ``runs`` as a list of ``[first, end, state]``."""
        told: dict[str, object] = {
            name: getattr(self, name)
            for name in (
                "topic",
                "subscription",
                "partition",
                "mark_delete",
                "read_position",
                "log_start",
                "log_end",
            )
        }
        return json.dumps(told | {"runs": [list(run) for run in self.runs]}, indent=indent)

    def _of(self, state: str) -> OffsetSet:
        found: OffsetSet = getattr(self, state)
        return found

    def _runs(self, first: int, end: int) -> Iterator[tuple[int, int, str]]:
        found = sorted(
            (start, stop, state)
            for state in _OUTSTANDING
            for start, stop in self._of(state).starting_at(first).below(end).iter_ranges()
        )
        at = first
        for start, stop, state in found:
            yield from self._between(at, start)
            yield start, stop, state
            at = stop
        yield from self._between(at, end)

    def _between(self, first: int, end: int) -> Iterator[tuple[int, int, str]]:
        """Yields the ranges of a gap between outstanding messages: acked, then unread."""
        border = min(max(self.read_position, first), end)
        if first < border:
            yield first, border, "acked"
        if border < end:
            yield border, end, "unread"


def partition_map_of(cursor: CursorSnapshot, *, log_start: int | None, log_end: int | None) -> PartitionMap:
    """Returns the map of a cursor, completed with the bounds of the log."""
    return PartitionMap(
        topic=cursor.cell.topic,
        subscription=cursor.cell.subscription,
        partition=cursor.cell.partition,
        mark_delete=cursor.mark_delete,
        read_position=cursor.read_position,
        log_start=log_start,
        log_end=log_end,
        leased=cursor.leased,
        available=OffsetSet.union(offsets for _, offsets in cursor.available) if cursor.available else EMPTY,
        delayed=OffsetSet.union(offsets for _, offsets in cursor.delayed) if cursor.delayed else EMPTY,
        blocked=cursor.blocked.offsets,
        held=OffsetSet.union(offsets for _, offsets in cursor.held) if cursor.held else EMPTY,
    )


def read_partition_map(
    kafka: Mapping[str, str],
    topic: str,
    subscription: str,
    *,
    partition: int | None = None,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> tuple[PartitionMap, ...]:
    """Returns the state of every offset above the mark-delete position, for each partition or for one.

    The call changes no state. ``kafka`` contains options of the Kafka clients. The result is sorted by
    partition. A partition that the subscription has never read is absent. It is like Pulsar's
    ``individuallyDeletedMessages``, with the states of the messages between them.

    Raises:
        UnknownSubscription, UnknownQueueTopic: the tracker has no cursor of that name.
        TopicNotFound: the cursors topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused

    Example::

        from spark_cursor_source.admin import read_partition_map

        for one in read_partition_map({"bootstrap.servers": "broker:9092"}, "orders", "billing"):
            print(one.partition, one.mark_delete, one.runs)
    """
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    cursors = read_cursors(kafka, cursors_topic, topic=topic, subscription=subscription)
    wanted = {cell: one for cell, one in cursors.items() if partition in (None, cell.partition)}
    bounds = log_bounds(topics, wanted)
    return tuple(
        partition_map_of(cursor, log_start=bounds[cell][0], log_end=bounds[cell][1])
        for cell, cursor in sorted(wanted.items())
    )


def log_bounds(
    topics: ClusterAdmin, cursors: Mapping[Cell, CursorSnapshot]
) -> dict[Cell, tuple[int | None, int | None]]:
    """Returns the first and the last stable offset of the log of each cell.

    They are None for a deleted topic, also if another one has its name now, or if they cannot be read.
    """
    ids = topics.known_ids(cell.topic for cell in cursors)
    present = [cell for cell, cursor in cursors.items() if not cursor.is_of_another(ids.get(cell.topic))]
    ends, _ = topics.known_ends([cell.topic_partition for cell in present], committed=True)
    starts = topics.known_beginnings(ends)
    found = {cell: (starts.get(cell.topic_partition), ends.get(cell.topic_partition)) for cell in present}
    return {cell: found.get(cell, (None, None)) for cell in cursors}
