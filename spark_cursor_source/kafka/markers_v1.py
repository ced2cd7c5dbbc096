"""Markers as kafka-mq-go writes them, one for each message, confirmed by the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.kafka.confirmed import ConfirmedSender, cached
from spark_cursor_source.wire.marker import MarkerV1, encode_v1

_ANY_PARTITION = -1
_SETTINGS = {
    # As kafka-mq-go's producer is set up: all markers of a queue id are in the partition of its key.
    "partitioner": "murmur2_random",
    # A Start holds its message: whether that is too large is for the topic to say.
    "message.max.bytes": 1_000_000_000,
    "queue.buffering.max.kbytes": 64 << 10,
}


class MarkerSenderV1(ConfirmedSender):
    """Sends markers of V1, each to the partition that kafka-mq-go's producer would choose.

    What kafka-mq-go's tracker cannot bear is never written: each marker has a message id and a queue id, and
    a lease of more than 12 h is cut to 12 h.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, partitions: int) -> None:
        super().__init__(config, topic, partitions, settings=_SETTINGS)

    def send(self, markers: Iterable[MarkerV1]) -> int:
        """Hand markers to the producer, those of a queue id in the order given; how many they are.

        Raises:
            InvalidMarker: a marker has no queue id.
            MarkersPartitionsChanged, MarkersNotDurable, TopicNotFound, NotAuthorized
        """
        unconfirmed, records = self.begin(), 0
        for marker in markers:
            if not marker.queue_id:
                raise InvalidMarker("the record key names no queue")
            self.produce(unconfirmed, marker.queue_id, encode_v1(_cut(marker)), _ANY_PARTITION)
            records += 1
        unconfirmed.producer.poll(0)
        return records


def _cut(marker: MarkerV1) -> MarkerV1:
    if marker.redeliver_after_ms <= MAX_LEASE_MS:
        return marker
    return replace(marker, redeliver_after_ms=MAX_LEASE_MS)


def cached_sender_v1(config: Mapping[str, Any], topic: str, partitions: int) -> MarkerSenderV1:
    """The sender that this process keeps for such a configuration; tasks of a worker process share it."""
    return cached(MarkerSenderV1, config, topic, partitions)
