"""Start and end offsets of a read: the positions in the options, resolved with the brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidOption
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.options.topics import (
    EARLIEST,
    LATEST,
    EndingOffsets,
    FromCursor,
    FromEarliest,
    FromLatest,
    FromPositions,
    FromTimestamp,
    FromTimestamps,
    StartingOffsets,
    ToLatest,
    ToPositions,
)

_SHOWN = 8  # topics in the text of an error


def check_named(wanted: StartingOffsets | EndingOffsets, partitions: Collection[Partition]) -> None:
    """Checks that the partitions with positions of their own are among those that are read.

    Raises:
        InvalidOption: one is not. Its position would have no effect.
    """
    match wanted:
        case FromPositions(positions=named):
            option = "startingOffsets"
        case FromTimestamps(timestamps_ms=named):
            option = "startingOffsetsByTimestamp"
        case ToPositions(positions=named):
            option = "endingOffsets"
        case _:
            return
    read = set(partitions)
    stray = [f"{topic} {number}" for topic, number, _ in named if (topic, number) not in read]
    if stray:
        there = list(_in_words(sorted(read)))
        more = f" and {len(there) - _SHOWN} more topics" if len(there) > _SHOWN else ""
        shown = ", ".join(there[:_SHOWN]) or "none"
        why = f"the partitions that are read are {shown}{more}"
        raise InvalidOption(option, ", ".join(stray), why, "correct it, or the topics that are selected")


def _in_words(partitions: Sequence[Partition]) -> Iterator[str]:
    """Yields the partitions of each topic.

    >>> list(_in_words([("orders", 0), ("orders", 1), ("orders", 4), ("returns", 0)]))
    ['orders 0-1 4', 'returns 0']
    """
    for topic, group in groupby(partitions, itemgetter(0)):
        ranges = OffsetSet.from_offsets(number for _, number in group).ranges
        yield " ".join([topic, *(f"{a}-{b - 1}" if b - a > 1 else f"{a}" for a, b in ranges)])


def starting_positions(
    wanted: StartingOffsets, partitions: Sequence[Partition], topics: ClusterAdmin
) -> dict[Partition, int]:
    """Return the start offset of each partition.

    Partitions that the JSON does not name start at their first record.
    """
    match wanted:
        case FromCursor() | FromEarliest():
            return topics.beginning_offsets(partitions)
        case FromLatest():
            return topics.end_offsets(partitions, committed=False)
        case FromTimestamp(timestamp_ms=instant):
            return topics.offsets_for_time(partitions, instant)
        case FromTimestamps():
            by_instant: dict[int, list[Partition]] = {}
            for topic, partition in partitions:
                at_ms = wanted.timestamp_ms_of(topic, partition)
                if at_ms is not None:
                    by_instant.setdefault(at_ms, []).append((topic, partition))
            found = topics.beginning_offsets(partitions)
            for at_ms, some in by_instant.items():
                found |= topics.offsets_for_time(some, at_ms)
            return found
        case FromPositions():
            ends = topics.end_offsets(partitions, committed=False)
            named = {tp: wanted.position_of(*tp) for tp in partitions}
            return topics.beginning_offsets(partitions) | {
                tp: ends[tp] if position == LATEST else position
                for tp, position in named.items()
                if position is not None and position != EARLIEST
            }


def ending_positions(wanted: EndingOffsets, ends: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the offset before which the read of each partition ends, given the log ends."""
    match wanted:
        case ToLatest():
            return dict(ends)
        case ToPositions():
            named = {tp: wanted.position_of(*tp) for tp in ends}
            return dict(ends) | {
                tp: position for tp, position in named.items() if position is not None and position != LATEST
            }
