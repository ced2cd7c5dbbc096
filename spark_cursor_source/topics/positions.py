"""Start and end offsets of a read: the positions in the options, resolved with the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
