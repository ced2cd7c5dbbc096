"""Minimum ages of the messages of a cell, from observed ends of the log.

Message timestamps come from the clocks of producers and are not trusted. But a message below a log end that
was observed at some time was written before that time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

LEAST_LOOK_MS = 1_000  #: minimum poll interval for the end of a log
_PARTS = 20  #: expiry is late by this fraction of the TTL, or by the minimum poll interval


class ObservedEnd(NamedTuple):
    """Observation of the end of a log."""

    at_ms: int  #: broker time at which the log had every message below the position
    position: int


def look_every_ms(ttl_ms: int) -> int:
    """Returns the poll interval for the end of a log, short enough for messages to expire in time.

    >>> look_every_ms(86_400_000), look_every_ms(2_000)
    (4320000, 1000)
    """
    return max(ttl_ms // _PARTS, LEAST_LOOK_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAges:
    """Known ages of a cell's messages, in a few dozen pairs of numbers for any age and length of the log.

    >>> ages = MessageAges(ttl_ms=60_000).seen(1_000, 10).seen(31_000, 25)
    >>> ages.next_ms, ages.expire(61_000).expired_below, ages.expire(61_001).expired_below
    (61000, 0, 10)
    """

    ttl_ms: int | None = None  #: age at which messages expire; None: never, and no log ends are kept
    ends: tuple[ObservedEnd, ...] = ()  #: log ends above messages that are not too old; both numbers ascend
    expired_below: int = 0  #: every message below it is older than the TTL

    def of_ttl(self, ttl_ms: int | None) -> MessageAges:
        """Returns the same ages with another TTL. A longer TTL forgets what the shorter one covered."""
        if ttl_ms is None:
            return MessageAges()
        longer = self.ttl_ms is not None and ttl_ms > self.ttl_ms
        return replace(self, ttl_ms=ttl_ms, expired_below=0 if longer else self.expired_below)

    def seen(self, at_ms: int, position: int) -> MessageAges:
        """Returns a copy with a new observed end of the log, at a time not before the previous one.

        Observations that are close in time are merged at the later time: expiry is then a little late, never
        early.
        """
        ends = list(self.ends)
        if self.ttl_ms is None or position <= max([self.expired_below, *(end.position for end in ends)]):
            return self
        at_ms = max([at_ms, *(end.at_ms for end in ends)])  # a new leader's clock may be behind
        too_old = [end for end in ends if end.at_ms + self.ttl_ms < at_ms]
        ends = ends[max(len(too_old) - 1, 0) :]
        while len(ends) > 1 and at_ms - ends[-2].at_ms <= self.ttl_ms // _PARTS:
            ends.pop()
        return replace(self, ends=(*ends, ObservedEnd(at_ms, position)))

    def expire(self, now_ms: int) -> MessageAges:
        """Returns a copy whose ``expired_below`` covers the messages that are too old at ``now_ms``."""
        if self.ttl_ms is None:
            return self
        too_old = [end for end in self.ends if end.at_ms + self.ttl_ms < now_ms]
        if not too_old:
            return self
        below = max(self.expired_below, too_old[-1].position)
        return replace(self, ends=self.ends[len(too_old) :], expired_below=below)

    def without(self, gone_below: int) -> MessageAges:
        """Returns a copy without the log ends that apply only to messages below ``gone_below``."""
        if all(end.position > gone_below for end in self.ends):
            return self
        return replace(self, ends=tuple(end for end in self.ends if end.position > gone_below))

    @property
    def next_ms(self) -> int | None:
        """Broker time after which the next messages expire; None if no growth of the log was observed."""
        return None if self.ttl_ms is None or not self.ends else self.ends[0].at_ms + self.ttl_ms
