"""Types of the publishing API: ack policies, acks and partitioners."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

HEADER_CORRELATION_ID = "cursorq-correlation-id"
HEADER_SUBJECT = "cursorq-subject"

Headers = Sequence[tuple[str, bytes | None]]
Partitioner = Callable[[bytes | None, bytes | None, int], int]  #: (key, value, partitions) -> partition


class AckPolicy(enum.StrEnum):
    """Replicas that must store a message before the message counts as published."""

    NONE = "none"  #: no replica: sending is enough
    LEADER = "leader"  #: the partition leader, which may lose the message
    ALL = "all"  #: every in-sync replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """Confirmation of a published message."""

    stream: str
    partition: int
    offset: int | None  #: None with AckPolicy.NONE: the broker sends no offset
    correlation_id: str | None
    ack_policy: AckPolicy
    received_at_ms: int | None  #: broker time of the append, or None if the stream does not use LogAppendTime


def by_key(key: bytes | None, value: bytes | None, partitions: int) -> int:
    """Returns CRC32-IEEE(key) mod ``partitions``, as in Liftbridge. Without a key, returns partition 0.

    >>> by_key(b"customer 7", b"", 4), by_key(None, b"", 4)
    (1, 0)
    """
    return zlib.crc32(key or b"") % partitions


class RoundRobin:
    """Partitioner that cycles through all partitions. All threads share one counter.

    >>> turns = RoundRobin()
    >>> [turns(None, b"", 3) for _ in range(4)]
    [0, 1, 2, 0]
    """

    def __init__(self) -> None:
        self._turns = count()

    def __call__(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return next(self._turns) % partitions


class KeyOrRoundRobin:
    """Default partitioner of the client: by key for messages with a key, else round robin."""

    def __init__(self) -> None:
        self._others = RoundRobin()

    def __call__(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return (self._others if key is None else by_key)(key, value, partitions)
