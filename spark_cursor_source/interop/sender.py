"""Producer of markers in kafka-mq-go's format: one per message, confirmed by the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from spark_cursor_source.core.marker import MAX_LEASE_MS, End, KeepAlive, Marker, Release
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.topics.marker_producer import FLUSH_TIMEOUT_S, MarkerProducer
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, encode_v1

_ANY_PARTITION = -1
# kafka-mq-go's producer setting: all markers of a queue id go to the partition of their key.
_PARTITIONER = {"partitioner": "murmur2_random"}
_DEFAULTS = {
    # A Start contains its message, so the size limit is left to the topic.
    "message.max.bytes": 1_000_000_000,
    "queue.buffering.max.kbytes": 64 << 10,
}


class MarkerSenderV1(MarkerProducer):
    """Sends V1 markers, each to the partition that kafka-mq-go's producer would choose.

    Markers that kafka-mq-go's tracker cannot process are never written. Each marker has a message id and a
    queue id, and a lease above 12 h is limited to 12 h.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, partitions: int, *, patience_ms: int = PATIENCE_MS
    ) -> None:
        config = {**_DEFAULTS, **config}
        super().__init__(config, topic, partitions, settings=_PARTITIONER, patience_ms=patience_ms)

    def send(self, markers: Iterable[MarkerV1]) -> int:
        """Queues markers in the producer, in order for each queue id. Returns their number.

        Raises:
            InvalidMarker: a marker has no queue id.
            MarkersPartitionsChanged, MarkersNotDurable, TopicNotFound, NotAuthorized
        """
        sending, records = self.begin(), 0
        for marker in markers:
            if not marker.queue_id:
                raise InvalidMarker("the record key names no queue")
            self.produce(sending, marker.queue_id, encode_v1(_cut(marker)), _ANY_PARTITION)
            records += 1
        sending.producer.poll(0)
        return records

    def write(self, markers: Iterable[MarkerV1], *, timeout_s: float = FLUSH_TIMEOUT_S) -> None:
        """Sends markers and waits until the brokers have confirmed them."""
        self.send(markers)
        self.flush(timeout_s)


def _cut(marker: MarkerV1) -> MarkerV1:
    if marker.redeliver_after_ms <= MAX_LEASE_MS:
        return marker
    return replace(marker, redeliver_after_ms=MAX_LEASE_MS)


def in_v1(marker: Marker, queue_id: bytes) -> Iterator[MarkerV1]:
    """Yields the V1 markers of a consumer's marker, one for each message.

    A release becomes a lease that expires after its delay. A release without a delay leaves the lease
    unchanged.
    """
    match marker:
        case End(cell=cell, offsets=offsets):
            kind, lease_ms = MarkerType.END, 0
        case KeepAlive(cell=cell, offsets=offsets, lease_ms=lease_ms):
            kind = MarkerType.KEEP_ALIVE
        case Release(cell=cell, offsets=offsets, delay_ms=int(lease_ms)):
            kind = MarkerType.KEEP_ALIVE
        case _:
            return
    yield from one_for_each(offsets, kind, queue_id, cell.partition, lease_ms)


def one_for_each(
    offsets: Iterable[int], kind: MarkerType, queue_id: bytes, partition: int, lease_ms: int = 0
) -> Iterator[MarkerV1]:
    """Yields a V1 marker for each message."""
    for offset in offsets:
        yield MarkerV1(
            queue_id=queue_id, type=kind, partition=partition, offset=offset, redeliver_after_ms=lease_ms
        )
