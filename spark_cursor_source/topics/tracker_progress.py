"""Progress of the tracker, read from its consumer group: offsets, query id and batch id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.subscription_type import tracker_group as tracker_group
from spark_cursor_source.errors import KafkaUnavailable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline

REPLICA = "replica."  #: prefix of the query ids of trackers that share the markers partitions
_COMMIT_SEEN_MS = 3_000
_READ_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerProgress:
    """Last executed tracker batch, and the next marker of each markers partition after it."""

    query_id: str | None  #: None: no tracker has committed yet, or another tool has set the offsets
    batch_id: int
    partitions: int | None  #: partition count of the markers topic at that batch
    next_markers: Mapping[int, int]
    identity: str = ""  #: identity of the batch: its input, time and policies; empty if unknown
    owners: Mapping[int, str | None] = field(default_factory=dict)  #: query id of each markers partition

    def includes(self, query_id: str, batch_id: int) -> bool:
        """True if this batch of this query has been executed."""
        return self.query_id == query_id and self.batch_id >= batch_id


def is_replica(query_id: str | None) -> bool:
    """True if the query id is of a tracker that shares the markers partitions with others of its kind."""
    return query_id is not None and query_id.startswith(REPLICA)


def other_kind(owner: str, *, is_query: bool) -> str | None:
    """Returns the kind of the tracker ``owner`` in words, or None if it is the kind of the caller."""
    if is_replica(owner) is not is_query:
        return None
    return "runs without Spark" if is_query else "is a Spark query"


def replica_transactional_id(markers_topic: str, partition: int) -> str:
    """Return the transactional id that a replica uses while it owns this markers partition.

    The owner of the partition can therefore fence each earlier owner. A slash is not valid in a topic's name,
    so the id is not that of another topic's tracker.

    >>> replica_transactional_id("__cursorq_markers", 3)
    'cursorq-tracker-__cursorq_markers/3'
    """
    return f"{tracker_group(markers_topic)}/{partition}"


def metadata(query_id: str, batch_id: int, partitions: int, identity: str = "") -> str:
    """Return the metadata text that is committed with each offset.

    >>> metadata("4f1c", 17, 8), metadata("4f1c", 17, 8, "a0b1.c2d3")
    ('4f1c:17:8', '4f1c:17:8:a0b1.c2d3')
    """
    text = f"{query_id}:{batch_id}:{partitions}"
    return f"{text}:{identity}" if identity else text


def read_progress(
    topics: ClusterAdmin, markers_topic: str, *, stable: bool = True, numbers: Collection[int] | None = None
) -> TrackerProgress:
    """Return the committed progress of some markers partitions, or of all.

    If ``stable``, wait for an open transaction that commits progress. The transaction of a dead tracker stays
    open until the next tracker aborts it. Otherwise return the progress before that transaction.
    """
    partitions = topics.partitions_of(markers_topic)
    committed = topics.committed_with_metadata(
        tracker_group(markers_topic),
        [tp for tp in partitions if numbers is None or tp[1] in numbers],
        stable=stable,
    )
    own = {number: one for (_, number), one in committed.items()}
    # A batch commits all offsets with the same metadata. If a tool has set some, use the latest batch.
    parsed = {number: _parse(one.metadata) for number, one in own.items()}
    last = max(parsed.values(), default=_UNKNOWN, key=lambda done: done[1])
    return TrackerProgress(
        query_id=last[0],
        batch_id=last[1],
        partitions=last[2],
        next_markers={number: own[number].position for number in sorted(own)},
        identity=last[3],
        owners={number: done[0] for number, done in parsed.items()},
    )


def reads_all_about(
    topics: ClusterAdmin, markers_topic: str, cells: Iterable[Cell] | None, *, timeout_ms: int
) -> bool:
    """Wait until the tracker has processed all markers of the cells; None: of all. Return False on a timeout.

    The tracker commits its offsets in one transaction with the cursors, so the results are then visible too.
    """
    count = topics.describe([markers_topic])[markers_topic].partitions
    homes = range(count) if cells is None else {cell.control_partition(count) for cell in cells}
    ends = _ends(topics, markers_topic, homes)
    deadline = Deadline.after_ms(timeout_ms)
    while ends := _not_reached(topics, markers_topic, ends):
        if deadline.over:
            return False
        deadline.pause(_READ_AGAIN_S)
    return True


def unread_partitions(topics: ClusterAdmin, markers_topic: str) -> frozenset[int]:
    """Return the markers partitions that the tracker has not processed to their present ends.

    Markers behind an open transaction count, because they are stored and take effect when it ends.
    """
    count = topics.describe([markers_topic])[markers_topic].partitions
    return frozenset(_not_reached(topics, markers_topic, _ends(topics, markers_topic, range(count))))


def _ends(topics: ClusterAdmin, markers_topic: str, numbers: Iterable[int]) -> dict[int, int]:
    found = topics.end_offsets([(markers_topic, number) for number in numbers], committed=False)
    return {number: end for (_, number), end in found.items() if end}


def _not_reached(topics: ClusterAdmin, markers_topic: str, ends: Mapping[int, int]) -> dict[int, int]:
    """Return those of these ends that the tracker has not reached."""
    if not ends:
        return {}
    read = read_progress(topics, markers_topic, stable=False).next_markers
    return {number: end for number, end in ends.items() if read.get(number, 0) < end}


def read_progress_of_others(
    topics: ClusterAdmin, markers_topic: str, *, numbers: Collection[int] | None = None
) -> TrackerProgress:
    """Return the progress of a tracker that may be running and has not been fenced.

    A commit becomes visible shortly after its call has returned. Without a wait, a tracker would seem to have
    done less than it has. The wait is bounded, because a dead tracker leaves its transaction open.
    """
    try:
        soon = topics.within(Deadline.after_ms(_COMMIT_SEEN_MS))
        return read_progress(soon, markers_topic, numbers=numbers)
    except KafkaUnavailable:
        return read_progress(topics, markers_topic, stable=False, numbers=numbers)


_UNKNOWN: tuple[str | None, int, int | None, str] = (None, -1, None, "")


def _parse(text: str) -> tuple[str | None, int, int | None, str]:
    query_id, _, numbers = text.partition(":")
    batch_id, _, numbers = numbers.partition(":")
    partitions, _, identity = numbers.partition(":")
    if not query_id or not batch_id.removeprefix("-").isdecimal() or not partitions.isdecimal():
        return _UNKNOWN
    return query_id, int(batch_id), int(partitions), identity
