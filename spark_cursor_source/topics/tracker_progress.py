"""What the tracker has done, as its consumer group says: positions, and which batch of which query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.subscription_type import tracker_group as tracker_group
from spark_cursor_source.errors import KafkaUnavailable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline

_COMMIT_SEEN_MS = 3_000
_READ_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerProgress:
    """The last batch that was carried out, and the next marker of each markers partition after it."""

    query_id: str | None  #: None: no tracker has been there, or its offsets were set by another tool
    batch_id: int
    partitions: int | None  #: how many partitions the markers topic had
    next_markers: Mapping[int, int]
    identity: str = ""  #: of the batch: what it read, when, under which policies; empty: not told

    def includes(self, query_id: str, batch_id: int) -> bool:
        """Whether that batch of that query is done."""
        return self.query_id == query_id and self.batch_id >= batch_id


def metadata(query_id: str, batch_id: int, partitions: int, identity: str = "") -> str:
    """The text that is committed with each position.

    >>> metadata("4f1c", 17, 8), metadata("4f1c", 17, 8, "a0b1.c2d3")
    ('4f1c:17:8', '4f1c:17:8:a0b1.c2d3')
    """
    text = f"{query_id}:{batch_id}:{partitions}"
    return f"{text}:{identity}" if identity else text


def read_progress(topics: ClusterAdmin, markers_topic: str, *, stable: bool = True) -> TrackerProgress:
    """The progress that is committed now.

    ``stable``: a transaction that commits it at this moment is waited for, be it that of a tracker that died
    and that only the next tracker ends; without it, the progress before that transaction.
    """
    partitions = topics.describe([markers_topic])[markers_topic].partitions
    committed = topics.committed_with_metadata(
        tracker_group(markers_topic),
        ((markers_topic, number) for number in range(partitions)),
        stable=stable,
    )
    own = {number: one for (_, number), one in committed.items()}
    # All are committed together with one metadata; where a tool has set some, the latest batch counts.
    last = max((_parse(one.metadata) for one in own.values()), default=_UNKNOWN, key=lambda done: done[1])
    return TrackerProgress(
        query_id=last[0],
        batch_id=last[1],
        partitions=last[2],
        next_markers={number: own[number].position for number in sorted(own)},
        identity=last[3],
    )


def reads_all_about(
    topics: ClusterAdmin, markers_topic: str, cells: Iterable[Cell], *, timeout_ms: int
) -> bool:
    """Wait until the tracker has read all markers about the cells, and has written what came of them.

    As told by the offsets that it commits with the cursors, in one transaction. False where it has not read
    them in time.
    """
    count = topics.describe([markers_topic])[markers_topic].partitions
    homes = {cell.control_partition(count) for cell in cells}
    found = topics.end_offsets([(markers_topic, home) for home in homes], committed=False)
    ends = {number: end for (_, number), end in found.items() if end}
    deadline = Deadline.after_ms(timeout_ms)
    while ends:
        read = read_progress(topics, markers_topic, stable=False).next_markers
        ends = {number: end for number, end in ends.items() if read.get(number, 0) < end}
        if ends and deadline.over:
            return False
        if ends:
            deadline.pause(_READ_AGAIN_S)
    return True


def read_progress_of_others(topics: ClusterAdmin, markers_topic: str) -> TrackerProgress:
    """The progress of a tracker that may be at work, before anybody fences it.

    A commit is seen a little after its call has returned: not to wait for that would make a tracker look as
    if it had done less. A commit that nobody ends is not waited for any longer than that.
    """
    try:
        return read_progress(topics.within(Deadline.after_ms(_COMMIT_SEEN_MS)), markers_topic)
    except KafkaUnavailable:
        return read_progress(topics, markers_topic, stable=False)


_UNKNOWN: tuple[str | None, int, int | None, str] = (None, -1, None, "")


def _parse(text: str) -> tuple[str | None, int, int | None, str]:
    query_id, _, numbers = text.partition(":")
    batch_id, _, numbers = numbers.partition(":")
    partitions, _, identity = numbers.partition(":")
    if not query_id or not batch_id.isdecimal() or not partitions.isdecimal():
        return _UNKNOWN
    return query_id, int(batch_id), int(partitions), identity
