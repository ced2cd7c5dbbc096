"""Publishing as the client's callers say it: who confirms, what comes back, and which partition."""

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
    """Who has a message when it counts as published."""

    NONE = "none"  #: nobody: it was sent
    LEADER = "leader"  #: the leader of the partition, which may lose it
    ALL = "all"  #: every in-sync replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """What is known of a message that was published."""

    stream: str
    partition: int
    offset: int | None  #: None with AckPolicy.NONE: the broker does not say
    correlation_id: str | None
    ack_policy: AckPolicy
    received_at_ms: int | None  #: by the broker's clock, where the stream stamps messages with LogAppendTime


def by_key(key: bytes | None, value: bytes | None, partitions: int) -> int:
    """CRC32-IEEE(key) mod ``partitions``, as Liftbridge does; without a key it is partition 0.

    >>> by_key(b"customer 7", b"", 4), by_key(None, b"", 4)
    (1, 0)
    """
    return zlib.crc32(key or b"") % partitions


class RoundRobin:
    """One partition after the other, for all threads together.

    >>> turns = RoundRobin()
    >>> [turns(None, b"", 3) for _ in range(4)]
    [0, 1, 2, 0]
    """

    def __init__(self) -> None:
        self._turns = count()

    def __call__(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return next(self._turns) % partitions


class KeyOrRoundRobin:
    """By key where there is one, else one after the other: what the client does unless told."""

    def __init__(self) -> None:
        self._others = RoundRobin()

    def __call__(self, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return (self._others if key is None else by_key)(key, value, partitions)
