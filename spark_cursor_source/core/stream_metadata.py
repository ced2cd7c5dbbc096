"""What brokers say of streams, as the client hands it on."""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def newest_offset(self) -> int:
        """The offset before the high watermark, -1 in a stream that never had a message."""
        return self.high_watermark - 1
