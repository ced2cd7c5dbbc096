"""Split of the messages of a batch into Spark tasks.

Follows ``KafkaOffsetRangeCalculator`` of Spark's Kafka source where the options have the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from spark_cursor_source.core.batch import Delivery, TopicPartition
from spark_cursor_source.core.offsets import OFFSET_LIMIT, OffsetSet
from spark_cursor_source.core.slices import KeyShare, Slice


def split(
    deliveries: Iterable[Delivery], *, min_partitions: int | None, max_records: int | None
) -> list[tuple[Slice, ...]]:
    """Returns the slices of each Spark task: one task per queue partition, or more if the options ask for it.

    As in Spark, ``min_partitions`` splits in proportion to size and ``max_records`` bounds a task.
    """
    by_partition: dict[TopicPartition, list[Slice]] = {}
    for delivery in deliveries:
        one = Slice(
            topic=delivery.cell.topic,
            partition=delivery.cell.partition,
            offsets=delivery.offsets,
            delivery_count=delivery.delivery_count,
        )
        by_partition.setdefault((one.topic, one.partition), []).append(one)
    if max_records is None and (min_partitions is None or min_partitions <= len(by_partition)):
        return [tuple(slices) for _, slices in sorted(by_partition.items())]
    slices = [one for _, group in sorted(by_partition.items()) for one in group]
    total = sum(len(one.offsets) for one in slices)
    tasks: list[tuple[Slice, ...]] = []
    for one in slices:
        size = len(one.offsets)
        most = size if max_records is None else max_records
        if min_partitions is not None:
            parts = max(1, round(size / total * min_partitions))
            most = min(most, -(-size // parts))
        tasks += [(replace(one, offsets=piece),) for piece in one.offsets.chunks(max(most, 1))]
    return tasks


def split_by_key(deliveries: Iterable[Delivery], *, min_partitions: int | None) -> list[tuple[Slice, ...]]:
    """Returns the slices of each Spark task, with all messages of a key in one task, in offset order.

    If a queue partition is split, each of its tasks reads the whole partition and keeps the keys of its
    share.
    """
    by_partition: dict[TopicPartition, list[Delivery]] = {}
    for delivery in deliveries:
        cell = delivery.cell
        by_partition.setdefault(cell.topic_partition, []).append(delivery)
    sizes = {tp: sum(len(one.offsets) for one in group) for tp, group in by_partition.items()}
    total = sum(sizes.values())
    tasks: list[tuple[Slice, ...]] = []
    for (topic, partition), group in sorted(by_partition.items()):
        parts = 1
        if min_partitions is not None and min_partitions > len(by_partition):
            parts = max(1, round(sizes[topic, partition] / total * min_partitions))
        shares = [KeyShare(index=index, of=parts) for index in range(parts)] if parts > 1 else [None]
        pieces = list(_in_order(group))
        tasks += [
            tuple(
                Slice(topic=topic, partition=partition, offsets=offsets, delivery_count=count, share=share)
                for count, offsets in pieces
            )
            for share in shares
        ]
    return tasks


def _in_order(deliveries: Iterable[Delivery]) -> Iterator[tuple[int, OffsetSet]]:
    """Yields (delivery count, offsets) of one cell's deliveries, cut so that the offsets ascend."""
    waiting = [(one.delivery_count, one.offsets) for one in deliveries if one.offsets]
    while waiting:
        waiting.sort(key=lambda one: one[1].first or 0)
        count, offsets = waiting.pop(0)
        others = [rest.first for _, rest in waiting]
        bound = min((first for first in others if first is not None), default=OFFSET_LIMIT)
        yield count, offsets.below(bound)
        if rest := offsets.starting_at(bound):
            waiting.append((count, rest))
