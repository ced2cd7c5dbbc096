"""What a batch may hold while partitions of its queues are paused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_cursor_source.core.planning import RedeliveryRecord, TopicPartition


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


def unpaused_redeliveries(
    pending: Sequence[RedeliveryRecord], ends: Mapping[int, int], paused: Collection[TopicPartition]
) -> tuple[Sequence[RedeliveryRecord], Mapping[int, int]]:
    """The same of the redeliveries: what is read of them, and up to where.

    A position knows no holes: in a partition of the redeliveries topic, what stands behind the first message
    of a paused partition waits with it.
    """
    if not paused:
        return pending, ends
    held = dict(ends)
    for record in pending:
        cell = record.redeliver.cell
        if (cell.topic, cell.partition) in paused and record.partition in held:
            held[record.partition] = min(held[record.partition], record.offset)
    return [record for record in pending if record.offset < held.get(record.partition, 0)], held
