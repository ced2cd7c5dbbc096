"""Sender of markers to the markers topic, in order and confirmed by the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from spark_cursor_source.core.marker import (
    Block,
    End,
    EndLeased,
    KeepAlive,
    Leave,
    Marker,
    Reject,
    Release,
    Requeue,
    Start,
    Withhold,
)
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.confirmed_producer import Headers
from spark_cursor_source.topics.marker_producer import FLUSH_TIMEOUT_S, MarkerProducer, borrowed_producer
from spark_cursor_source.wire import marker as wire

MAX_MARKER_BYTES = 900_000  #: a topic with Kafka's default limits accepts a record of this size


class MarkerSender(MarkerProducer):
    """Sends markers to the partitions of their cells."""

    def send(self, markers: Iterable[Marker], headers: Headers = None) -> int:
        """Send markers. Markers of a cell keep their order. Return the number of records.

        ``headers`` are added to each record.

        A marker whose offset set is too large for a record is split into several markers, in ascending order.

        Raises:
            MarkersPartitionsChanged: the partition count of the topic has changed.
            MarkersNotDurable: the producer rejects a marker.
            TopicNotFound, NotAuthorized
        """
        sending, records = self.begin(), 0
        for marker in markers:
            partition = marker.cell.control_partition(self.partitions)
            for value in marker_values(marker):
                self.produce(sending, marker.cell.key, value, partition, headers)
                records += 1
        sending.producer.poll(0)
        return records

    def write(
        self, markers: Iterable[Marker], headers: Headers = None, *, timeout_s: float = FLUSH_TIMEOUT_S
    ) -> int | None:
        """Send markers and wait until the brokers have confirmed them. See :meth:`send` and :meth:`flush`."""
        self.send(markers, headers)
        return self.flush(timeout_s)


def write_markers(kafka: Mapping[str, str], topic: str, partitions: int, markers: Iterable[Marker]) -> None:
    """Write markers with a sender from the pool of this process. See :meth:`MarkerSender.write`."""
    with borrowed_producer(MarkerSender, client_config(kafka, "producer"), topic, partitions) as sender:
        sender.write(markers)


def marker_values(marker: Marker, *, max_bytes: int = MAX_MARKER_BYTES) -> Iterator[bytes]:
    """Yield the record values of a marker. A large offset set needs several, in ascending order."""
    value = wire.encode(marker)
    if (
        len(value) <= max_bytes
        or not isinstance(
            marker, (Start, End, EndLeased, Leave, KeepAlive, Release, Block, Reject, Requeue, Withhold)
        )
        or len(marker.offsets) < 2
    ):
        yield value
        return
    pieces, at = len(value) // max_bytes + 1, 0
    for piece in marker.offsets.chunks(-(-len(marker.offsets) // pieces)):
        if isinstance(marker, Block):
            part: Marker = replace(marker, offsets=piece, behind=marker.behind[at : at + len(piece)])
        else:
            part = replace(marker, offsets=piece)
        yield from marker_values(part, max_bytes=max_bytes)
        at += len(piece)
