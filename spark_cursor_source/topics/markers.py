"""Markers to the markers topic, in order, and confirmed by its brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from spark_cursor_source.core.marker import End, KeepAlive, Marker, Reject, Release, Start, Withhold
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer, cached
from spark_cursor_source.wire import marker as wire

MAX_MARKER_BYTES = 900_000  #: a topic with Kafka's default limits takes a record of this size


class MarkerSender(ConfirmedProducer):
    """Sends markers, each to the partition of its cell."""

    def send(self, markers: Iterable[Marker]) -> int:
        """Hand markers to the producer, those of a cell in the order given; how many records they make.

        A set of offsets too large for a record becomes several markers, in ascending order.

        Raises:
            MarkersPartitionsChanged: the topic has another number of partitions.
            MarkersNotDurable: the producer does not take them.
            TopicNotFound, NotAuthorized
        """
        unconfirmed, records = self.begin(), 0
        for marker in markers:
            partition = marker.cell.control_partition(self._partitions)
            for value in marker_values(marker):
                self.produce(unconfirmed, marker.cell.key, value, partition)
                records += 1
        unconfirmed.producer.poll(0)
        return records


def marker_values(marker: Marker, *, max_bytes: int = MAX_MARKER_BYTES) -> Iterator[bytes]:
    """The record values of a marker: one, or as many as its set of offsets needs, in ascending order."""
    value = wire.encode(marker)
    if (
        len(value) <= max_bytes
        or not isinstance(marker, (Start, End, KeepAlive, Release, Reject, Withhold))
        or len(marker.offsets) < 2
    ):
        yield value
        return
    pieces = len(value) // max_bytes + 1
    for piece in marker.offsets.chunks(-(-len(marker.offsets) // pieces)):
        yield from marker_values(replace(marker, offsets=piece), max_bytes=max_bytes)


def cached_sender(config: Mapping[str, Any], topic: str, partitions: int) -> MarkerSender:
    """The sender that this process keeps for such a configuration; tasks of a worker process share it."""
    return cached(MarkerSender, config, topic, partitions)
