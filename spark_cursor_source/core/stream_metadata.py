"""Metadata of brokers and streams, as returned by the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """Broker and its address."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """Stream: a Kafka topic, created by this library or by any other client."""

    subject: str  #: subject of the stream: its name, unless it was created with another subject
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """Brokers and streams of a cluster at one moment."""

    brokers: tuple[Broker, ...]
    streams: Mapping[str, StreamInfo]  #: by name, without the internal topics of the brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """Partition of a stream at one moment. Brokers are given by their ids."""

    stream: str
    partition: int
    leader: int | None  #: None while the partition has no leader
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]  #: replicas that have every confirmed message
    oldest_offset: int  #: offset of the first retained message, or of the next message if none is retained
    high_watermark: int  #: position after the last message that every in-sync replica has

    paused: bool  #: not delivered until a message is published to the partition
    readonly: bool  #: the partition rejects published messages
    # Times by the broker's clock; None: no such event. The time of a message is from its publisher, unless
    # the stream stamps messages with LogAppendTime.
    last_message_ms: int | None
    last_pause_change_ms: int | None
    last_readonly_change_ms: int | None

    @property
    def newest_offset(self) -> int:
        """Offset before the high watermark; -1 in a stream that never had a message."""
        return self.high_watermark - 1
