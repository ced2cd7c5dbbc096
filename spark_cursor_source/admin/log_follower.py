"""Reader of a topic from given positions, to its end or without an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing

from confluent_kafka import Message

from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.range_reader import RangeReader

_LOOK_S = 0.25  # interval of looks for new records


def last_positions(topics: ClusterAdmin, topic: str, last: int | None) -> dict[int, int]:
    """Returns by partition the offset ``last`` records before the end, or of the first record if None."""
    partitions = topics.partitions_of(topic)
    if last is None:
        return positions_since(topics, partitions, None)
    return {tp[1]: max(begin, end - last) for tp, (begin, end) in topics.bounds(partitions).items()}


def positions_since(
    topics: ClusterAdmin, partitions: Iterable[Partition], since_ms: int | None
) -> dict[int, int]:
    """Returns by partition the offset of the first record at or after a time; None: of the first record."""
    found = (
        topics.beginning_offsets(partitions)
        if since_ms is None
        else topics.offsets_for_time(partitions, since_ms)
    )
    return {number: at for (_, number), at in found.items()}


def read_log(
    kafka: Mapping[str, str],
    topics: ClusterAdmin,
    topic: str,
    positions: Mapping[int, int],
    *,
    stops: Mapping[int, int] | None = None,
    follow: bool = False,
    on_round: Callable[[], object] = lambda: None,
) -> Iterator[Message]:
    """Yields the committed records from the positions by partition up to the present ends.

    With ``stops``, it yields no record from these offsets on. With ``follow``, further rounds yield new
    records until the iterator is closed. ``on_round`` is called before each round that has records.
    """
    positions = dict(positions)
    with closing(RangeReader(client_config(kafka, "consumer"), committed=True)) as reader:
        while True:
            found = topics.end_offsets([(topic, number) for number in positions], committed=True)
            ends = {n: end if stops is None else min(end, stops[n]) for (_, n), end in found.items()}
            ranges = {n: (positions[n], end) for n, end in ends.items() if positions[n] < end}
            if ranges:
                on_round()
                yield from reader.read(topic, ranges)
            positions |= {number: end for number, (_, end) in ranges.items()}
            if not follow:
                return
            time.sleep(_LOOK_S)
