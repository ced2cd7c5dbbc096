"""Sender of markers to the markers topic, in order and confirmed by the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from spark_cursor_source.core.marker import End, KeepAlive, Marker, Reject, Release, Start, Withhold
from spark_cursor_source.topics.marker_producer import MarkerProducer, cached
from spark_cursor_source.wire import marker as wire

MAX_MARKER_BYTES = 900_000  #: a topic with Kafka's default limits accepts a record of this size


class MarkerSender(MarkerProducer):
    """Sends markers to the partitions of their cells."""

    def send(self, markers: Iterable[Marker]) -> int:
        """Send markers. Markers of a cell keep their order. Return the number of records.

        A marker whose offset set is too large for a record is split into several markers, in ascending order.

        Raises:
            MarkersPartitionsChanged: the partition count of the topic has changed.
            MarkersNotDurable: the producer rejects a marker.
            TopicNotFound, NotAuthorized
        """
        sending, records = self.begin(), 0
        for marker in markers:
            partition = marker.cell.control_partition(self._partitions)
            for value in marker_values(marker):
                self.produce(sending, marker.cell.key, value, partition)
                records += 1
        sending.producer.poll(0)
        return records


def marker_values(marker: Marker, *, max_bytes: int = MAX_MARKER_BYTES) -> Iterator[bytes]:
    """Yield the record values of a marker. A large offset set needs several, in ascending order."""
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
    """Return the sender that this process keeps for a configuration. Tasks of a worker process share it."""
    return cached(MarkerSender, config, topic, partitions)
