"""How old the messages of a cell are at least: when the end of their log was seen behind them.

The timestamps of messages are of the producers' clocks, and are not believed. But what stands below an end of
its log that was seen at an instant was written before that instant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

LEAST_LOOK_MS = 1_000  #: the end of a log is not looked at more often
_PARTS = 20  #: expiry is late by one part in so many of the TTL, or by the least look


class ObservedEnd(NamedTuple):
    """The log was seen to reach up to a position."""

    at_ms: int  #: broker time, at which every message below the position was in the log
    position: int


def look_every_ms(ttl_ms: int) -> int:
    """How often the end of a log is looked at, so that messages expire in time.

    >>> look_every_ms(86_400_000), look_every_ms(2_000)
    (4320000, 1000)
    """
    return max(ttl_ms // _PARTS, LEAST_LOOK_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAges:
    """What is known of the ages in a cell, in a few dozen pairs of numbers however old and long its log is.

    >>> ages = MessageAges(ttl_ms=60_000).seen(1_000, 10).seen(31_000, 25)
    >>> ages.next_ms, ages.expire(61_000).expired_below, ages.expire(61_001).expired_below
    (61000, 0, 10)
    """

    ttl_ms: int | None = None  #: messages that are older expire; None: never, and nothing is kept
    ends: tuple[ObservedEnd, ...] = ()  #: of messages that are not too old; both numbers rise
    expired_below: int = 0  #: every message below it is older than the TTL

    def of_ttl(self, ttl_ms: int | None) -> MessageAges:
        """The same under another TTL."""
        return MessageAges() if ttl_ms is None else replace(self, ttl_ms=ttl_ms)

    def seen(self, at_ms: int, position: int) -> MessageAges:
        """With the end of the log, seen at an instant not before the last one.

        Instants that lie close together become the later one: expiry is then a little late, never early.
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

    def expire(self, now_ms: int, *, at_most: int | None = None) -> MessageAges:
        """With what is too old by now ``expired_below``: up to ``at_most``, and the rest is due at once."""
        if self.ttl_ms is None:
            return self
        too_old = [end for end in self.ends if end.at_ms + self.ttl_ms < now_ms]
        if not too_old:
            return self
        position, left = too_old[-1].position, self.ends[len(too_old) :]
        if at_most is not None and position > at_most:
            position, left = at_most, (too_old[-1], *left)
        return replace(self, ends=left, expired_below=max(self.expired_below, position))

    def without(self, gone_below: int) -> MessageAges:
        """Without what tells only of messages that are gone: all those below the position."""
        if all(end.position > gone_below for end in self.ends):
            return self
        return replace(self, ends=tuple(end for end in self.ends if end.position > gone_below))

    @property
    def next_ms(self) -> int | None:
        """After when, in broker time, the next messages are too old; None if the log was not seen to grow."""
        return None if self.ttl_ms is None or not self.ends else self.ends[0].at_ms + self.ttl_ms
