"""Circuit breaker for dead letters.

If dead letters come too fast, the cause is probably outside the messages. The breaker then holds the dead
letters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_cursor_source.core.duration import format_duration
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.errors import InvalidOption

DEFAULT_PAUSE_MS = 600_000
NOT_BEGUN = 0  #: ``closes_ms`` of an open breaker whose pause has not begun
_GRAINS = 32  #: number of parts that a window is counted in


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """Rate of dead letters that opens the breaker of a subscription, and the length of its pause.

    >>> str(BreakerPolicy(limit=100, window_ms=60_000))
    '100/1m'
    """

    #: dead letters allowed per window; None: no limit (option breaker, before the slash)
    limit: int | None = None
    window_ms: int = 60_000  #: length of the window in ms (option breaker, after the slash)
    #: ms that the breaker stays open; None: until the operator closes it (option breakerPause)
    pause_ms: int | None = DEFAULT_PAUSE_MS

    def __post_init__(self) -> None:
        if self.limit is not None and min(self.limit, self.window_ms) < 1:
            raise InvalidOption("breaker", str(self), "it allows nothing", "write it like 100/1m")

    def __str__(self) -> str:
        return "none" if self.limit is None else f"{self.limit}/{format_duration(self.window_ms)}"


NO_BREAKER = BreakerPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Breaker of one cell. All times are broker times.

    >>> policy = BreakerPolicy(limit=3, window_ms=60_000)
    >>> closed, out = Breaker().admit(OffsetSet.of((0, 2)), 1_000, policy, place="t,0")
    >>> opened, out = closed.admit(OffsetSet.of((5, 9)), 2_000, policy, place="t,0")
    >>> out.ranges, opened.opened_ms, opened.trip
    (((5, 6),), 2000, '2000@t,0')
    >>> opened.seen(9_000, policy).closes_ms
    609000
    """

    trip: str = ""  #: id of the latest trip; a trip opens each cell of a subscription once
    opened_ms: int | None = None  #: broker time of the opening; None: the breaker is closed
    #: time after which the breaker closes; None: closed, or waits for the operator; 0: pause has not begun
    closes_ms: int | None = None
    #: (time, dead letters) of the last window; times are rounded up: no letter leaves the window too early
    recent: tuple[tuple[int, int], ...] = ()

    @property
    def is_open(self) -> bool:
        return self.opened_ms is not None

    def admit(
        self, offsets: OffsetSet, at_ms: int, policy: BreakerPolicy, *, place: str
    ) -> tuple[Breaker, OffsetSet]:
        """Returns the breaker after these dead letters, and the dead letters that may go out.

        The breaker opens if some dead letters may not go out. No window has more dead letters than the limit.
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
        """Returns the number of dead letters that went out after an instant of the last window."""
        return sum(count for instant, count in self.recent if instant > after_ms)

    def opened(self, trip: str, at_ms: int, policy: BreakerPolicy) -> Breaker:
        """Returns the breaker opened for a trip; if it is open for another trip, its pause starts again."""
        return replace(
            self,
            trip=trip,
            opened_ms=at_ms if self.opened_ms is None else self.opened_ms,
            closes_ms=None if policy.pause_ms is None else NOT_BEGUN,
        )

    def seen(self, now_ms: int, policy: BreakerPolicy) -> Breaker:
        """Returns the breaker at ``now_ms``; the pause of an open breaker starts when it is first seen.

        The pause does not start at the marker that opened the breaker. A tracker that was down for longer
        than the pause reads that marker late, and would close the breaker before an operator could see it
        open.
        """
        if self.closes_ms != NOT_BEGUN or policy.pause_ms is None:
            return self
        return replace(self, closes_ms=now_ms + policy.pause_ms)

    def closed(self) -> Breaker:
        """Returns the breaker closed, with no dead letters counted."""
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
