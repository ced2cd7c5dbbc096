"""The breaker: where dead letters come too fast, the fault is hardly in the messages, so they are held."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_cursor_source.core.duration import format_duration
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.errors import InvalidOption

DEFAULT_PAUSE_MS = 600_000
NOT_BEGUN = 0  #: when an open breaker closes, until it was seen at an instant
_GRAINS = 32  #: a window is counted in so many parts


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When the breaker of a subscription opens, and for how long.

    >>> str(BreakerPolicy(limit=100, window_ms=60_000))
    '100/1m'
    """

    #: dead letters that a window may have, None for any number (option breaker, before the stroke)
    limit: int | None = None
    window_ms: int = 60_000  #: over how long they are counted (option breaker, after the stroke)
    #: how long the breaker stays open, None: until the operator says so (option breakerPause)
    pause_ms: int | None = DEFAULT_PAUSE_MS

    def __post_init__(self) -> None:
        if self.limit is not None and min(self.limit, self.window_ms) < 1:
            raise InvalidOption("breaker", str(self), "it allows nothing", "write it like 100/1m")

    def __str__(self) -> str:
        return "none" if self.limit is None else f"{self.limit}/{format_duration(self.window_ms)}"


NO_BREAKER = BreakerPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The breaker of one cell. Times are the broker's.

    >>> policy = BreakerPolicy(limit=3, window_ms=60_000)
    >>> closed, out = Breaker().admit(OffsetSet.of((0, 2)), 1_000, policy, place="t,0")
    >>> opened, out = closed.admit(OffsetSet.of((5, 9)), 2_000, policy, place="t,0")
    >>> out.ranges, opened.opened_ms, opened.trip
    (((5, 6),), 2000, '2000@t,0')
    >>> opened.seen(9_000, policy).closes_ms
    609000
    """

    trip: str = ""  #: what it opened for the last time: a trip opens each cell of a subscription once
    opened_ms: int | None = None  #: None: it is closed
    #: after it, by itself; None: it is closed, or waits for the operator; 0: its pause has not begun
    closes_ms: int | None = None
    #: (instant, dead letters) of the last window; instants are rounded up, so that none leaves it too early
    recent: tuple[tuple[int, int], ...] = ()

    @property
    def is_open(self) -> bool:
        return self.opened_ms is not None

    def admit(
        self, offsets: OffsetSet, at_ms: int, policy: BreakerPolicy, *, place: str
    ) -> tuple[Breaker, OffsetSet]:
        """Which of the dead letters may go out, and the breaker after that: open where not all may.

        No window has more than the limit.
        """
        if policy.limit is None:
            return self, offsets
        if self.is_open:
            return self, EMPTY
        room = max(policy.limit - self.letters(at_ms - policy.window_ms), 0)
        if len(offsets) <= room:
            return self._counted(len(offsets), at_ms, policy), offsets
        out = next(offsets.chunks(room)) if room else EMPTY
        counted = self._counted(len(out), at_ms, policy)
        return counted.opened(f"{at_ms}@{place}", at_ms, policy), out

    def letters(self, after_ms: int) -> int:
        """How many dead letters went out after an instant of the last window."""
        return sum(count for instant, count in self.recent if instant > after_ms)

    def opened(self, trip: str, at_ms: int, policy: BreakerPolicy) -> Breaker:
        """Open for a trip; where it is open for another one, its pause begins again."""
        return replace(
            self,
            trip=trip,
            opened_ms=at_ms if self.opened_ms is None else self.opened_ms,
            closes_ms=None if policy.pause_ms is None else NOT_BEGUN,
        )

    def seen(self, now_ms: int, policy: BreakerPolicy) -> Breaker:
        """The breaker at an instant: if it is open, its pause has begun.

        The pause does not count from the marker that opened it. A tracker that was down for longer than the
        pause reads that marker late, and would close the breaker before anybody could see it open.
        """
        if self.closes_ms != NOT_BEGUN or policy.pause_ms is None:
            return self
        return replace(self, closes_ms=now_ms + policy.pause_ms)

    def closed(self) -> Breaker:
        """Closed; dead letters are counted from nothing."""
        return Breaker(trip=self.trip)

    def _counted(self, letters: int, at_ms: int, policy: BreakerPolicy) -> Breaker:
        if not letters:
            return self
        grain = max(policy.window_ms // _GRAINS, 1)
        instant = max([-(-at_ms // grain) * grain, *(instant for instant, _ in self.recent)])
        kept = [(then, count) for then, count in self.recent if then > at_ms - policy.window_ms]
        if kept and kept[-1][0] == instant:
            letters += kept.pop()[1]
        return replace(self, recent=(*kept, (instant, letters)))
