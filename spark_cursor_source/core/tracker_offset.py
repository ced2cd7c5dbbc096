"""Position of the tracker in the markers topic, with the broker time seen there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOffset:
    """Position of the tracker.

    The position fixes the markers and the time of a batch, so a replay of the batch is identical.
    """

    tracker_id: str  #: id of this tracker, from its checkpoint
    next: Mapping[int, int]  #: offset of the next marker of each markers partition
    now_ms: Mapping[int, int] = field(default_factory=dict)  #: broker time of each partition, if known
    #: partitions that the batch that ends here reads to their end at ``now_ms``, so that leases can expire
    settled: frozenset[int] = frozenset()
    resumed: bool = True  #: False only until the tracker has read the cursors
    #: by partition with new markers: broker times when the previous markers and when the new ones were read.
    #: A leader whose clock is ahead or behind writes append times outside these bounds.
    read_between: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    #: id of the cursors topic that the batches up to here wrote to; empty: unknown, as in earlier versions
    cursors_id: str = ""

    def rewrites(self, before: TrackerOffset) -> bool:
        """True if the batch that ends here writes all cursors, because the cursors topic was recreated."""
        return before.resumed and bool(before.cursors_id) and before.cursors_id != self.cursors_id


def append_time(at_ms: int, between: tuple[int, int]) -> int:
    """Returns the append time of a marker, by the clock that decides on lease expiry.

    An append time outside ``between`` is from a leader with a different clock. The function then returns the
    time when the marker was read: the lease expires a little late, never early.

    >>> [append_time(at_ms, (100, 130)) for at_ms in (110, 190, 40)]
    [110, 130, 130]
    """
    earliest, latest = between
    return at_ms if earliest <= at_ms <= latest else latest


def limit_markers(start: Mapping[int, int], ends: Mapping[int, int], most: int) -> dict[int, int]:
    """Returns the end of a batch in each partition, for a limit of about ``most`` markers.

    Partitions with a larger backlog share the limit evenly.

    >>> limit_markers({0: 0, 1: 10, 2: 7}, {0: 100, 1: 12, 2: 7}, 10)
    {0: 8, 1: 12, 2: 7}
    """
    backlog = {partition: end - start.get(partition, 0) for partition, end in ends.items()}
    reached, left = dict(ends), most
    for done, partition in enumerate(sorted(ends, key=lambda one: backlog[one])):
        taken = min(backlog[partition], max(left // (len(ends) - done), 1))
        reached[partition] = start.get(partition, 0) + taken
        left -= max(taken, 0)
    return reached
