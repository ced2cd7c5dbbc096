"""What a batch may hold while partitions of its queues are paused."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_cursor_source.core.batch import TopicPartition


def paused_queue_ends(
    ends: Mapping[TopicPartition, int],
    origin: Mapping[TopicPartition, int],
    paused: Collection[TopicPartition],
) -> Mapping[TopicPartition, int]:
    """The ends up to which the queue is read: a paused partition goes no further than it is.

    >>> paused_queue_ends({("t", 0): 9, ("t", 1): 9}, {("t", 0): 4, ("t", 1): 4}, {("t", 0)})
    {('t', 0): 4, ('t', 1): 9}
    """
    if not paused:
        return ends
    return {tp: min(end, origin.get(tp, end)) if tp in paused else end for tp, end in ends.items()}
