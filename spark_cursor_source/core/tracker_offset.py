"""The position of the tracker in the markers topic, and the broker's time it has seen there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOffset:
    """Where the tracker is: what a batch reads and what time it is are in it, so a replay is the same."""

    tracker_id: str  #: of this tracker's checkpoint
    next: Mapping[int, int]  #: the next marker of each markers partition
    now_ms: Mapping[int, int] = field(default_factory=dict)  #: broker time, where it is known
    #: partitions whose leases run out in the batch that ends here, because it reads all there was at now_ms
    settled: frozenset[int] = frozenset()
    resumed: bool = True  #: False only where the cursors are still to be read
    #: of partitions with new markers: broker time when the last of the markers before them had been read, and
    #: when these were; a leader whose clock is ahead or behind writes other times
    read_between: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    #: of the cursors topic that the batches up to here wrote to; empty: not told, as by earlier versions
    cursors_id: str = ""

    def rewrites(self, before: TrackerOffset) -> bool:
        """Whether the batch that ends here writes all cursors: the topic was made anew since ``before``."""
        return before.resumed and bool(before.cursors_id) and before.cursors_id != self.cursors_id


def append_time(at_ms: int, between: tuple[int, int]) -> int:
    """When a marker was appended, by the clock that leases are judged by.

    A time that cannot be, because the leader's clock is another one, is that at which the marker was read:
    its lease then ends a little late, and never early.

    >>> [append_time(at_ms, (100, 130)) for at_ms in (110, 190, 40)]
    [110, 130, 130]
    """
    earliest, latest = between
    return at_ms if earliest <= at_ms <= latest else latest


def limit_markers(start: Mapping[int, int], ends: Mapping[int, int], most: int | None) -> dict[int, int]:
    """Up to where a batch reads, at most about ``most`` markers, shared evenly by those that have more.

    >>> limit_markers({0: 0, 1: 10, 2: 7}, {0: 100, 1: 12, 2: 7}, 10)
    {0: 8, 1: 12, 2: 7}
    """
    if most is None:
        return dict(ends)
    backlog = {partition: end - start.get(partition, 0) for partition, end in ends.items()}
    reached, left = dict(ends), most
    for done, partition in enumerate(sorted(ends, key=lambda one: backlog[one])):
        taken = min(backlog[partition], max(left // (len(ends) - done), 1))
        reached[partition] = start.get(partition, 0) + taken
        left -= max(taken, 0)
    return reached
