"""What brokers say of streams, as the client hands it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, and where it listens."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """A stream: a Kafka topic, whoever has made it."""

    subject: str  #: that it listens to: its name, unless it was created with another
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """The brokers and the streams that there are at one moment."""

    brokers: tuple[Broker, ...]
    streams: Mapping[str, StreamInfo]  #: by name; without the topics of the brokers themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """A partition of a stream at one moment; brokers are named by their ids."""

    stream: str
    partition: int
    leader: int | None  #: None while there is none
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]  #: those of the replicas that have every confirmed message
    oldest_offset: int  #: of the first message that retention has left, or else of the next one
    high_watermark: int  #: the position after the last message that every in-sync replica has

    paused: bool  #: it is not delivered until something is published to it
    readonly: bool  #: nothing can be published to it
    # Each by the broker's clock, None where there was no such event; a message's is its publisher's, unless
    # the stream stamps messages with LogAppendTime.
    last_message_ms: int | None
    last_pause_change_ms: int | None
    last_readonly_change_ms: int | None

    @property
    def newest_offset(self) -> int:
        """The offset before the high watermark, -1 in a stream that never had a message."""
        return self.high_watermark - 1
