"""Limits of a batch while partitions of its queue topics are paused."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_cursor_source.core.batch import TopicPartition


def paused_queue_ends(
    ends: Mapping[TopicPartition, int],
    origin: Mapping[TopicPartition, int],
    paused: Collection[TopicPartition],
) -> Mapping[TopicPartition, int]:
    """Returns the end of the batch in each queue partition; a paused partition does not advance.

    >>> paused_queue_ends({("t", 0): 9, ("t", 1): 9}, {("t", 0): 4, ("t", 1): 4}, {("t", 0)})
    {('t', 0): 4, ('t', 1): 9}
    """
    if not paused:
        return ends
    return {tp: min(end, origin.get(tp, end)) if tp in paused else end for tp, end in ends.items()}
