"""Broker time, told by what the broker wrote and carried on by a monotonic clock.

Wall clocks of two machines are never compared: the only wall-clock readings here are the broker's own.
"""

from __future__ import annotations

from collections import deque


class BrokerClock:
    """A lower bound of the broker's present time that never runs backwards.

    Each record's append time says "the broker's clock had passed this when it was read". The best of the
    readings of the last ten minutes is carried on, by a ten-thousandth less than the time that passes here:
    two clocks which drift apart by less than that cannot lead ahead, however long the log is quiet. An older
    reading is dropped, so that a new leader with a slower clock is believed in the end.

    >>> clock = BrokerClock()
    >>> clock.now_ms(monotonic_ms=5) is None
    True
    >>> clock.observe(broker_ms=1_000_000, monotonic_ms=10)
    >>> clock.now_ms(monotonic_ms=510)
    1000500
    """

    MEMORY_MS = 600_000
    DRIFT = 10_000  #: one part in so many: more than the clocks of two computers drift apart

    def __init__(self, now_ms: int | None = None) -> None:
        """Begin at ``now_ms``, a reading of this same clock from before a restart, or at nothing."""
        self._last_ms = now_ms
        self._leads: deque[tuple[int, int]] = deque()  # (monotonic, lead of the broker), leads falling
        self._epoch: int | None = None
        self._led_since: int | None = None  # monotonic, when a new leader's epoch was first seen
        self._ahead: int | None = 0  # of the clock of this epoch's leader; None: no reading of it yet

    def observe(self, *, broker_ms: int, monotonic_ms: int, epoch: int | None = None) -> None:
        """Take note of a broker timestamp that was read at ``monotonic_ms``.

        ``epoch`` is that of the leader which wrote it. A new leader has another clock: time goes on from
        where it is, and how far the new clock is ahead or behind is taken from what it says.
        """
        lead = broker_ms - self._at_least(monotonic_ms)
        if epoch is not None:
            if self._epoch is not None and epoch < self._epoch:
                return  # an earlier leader's record, read again
            lead -= self._ahead_of(epoch, lead, monotonic_ms)
        while self._leads and self._leads[-1][1] <= lead:
            self._leads.pop()
        self._leads.append((monotonic_ms, lead))

    def now_ms(self, *, monotonic_ms: int) -> int | None:
        """The broker's time, at the latest of all that is known; None before the first reading."""
        while len(self._leads) > 1 and self._leads[0][0] < monotonic_ms - self.MEMORY_MS:
            self._leads.popleft()
        if self._leads:
            now = self._leads[0][1] + self._at_least(monotonic_ms)
            self._last_ms = now if self._last_ms is None else max(self._last_ms, now)
        return self._last_ms

    def _ahead_of(self, epoch: int, lead: int, monotonic_ms: int) -> int:
        """How far the clock of an epoch's leader is ahead of this one; negative: behind."""
        if self._epoch is None:
            self._epoch = epoch
        if epoch > self._epoch and (now := self.now_ms(monotonic_ms=monotonic_ms)) is not None:
            self._epoch, self._led_since, self._ahead = epoch, monotonic_ms, None
            self._leads = deque([(monotonic_ms, now - self._at_least(monotonic_ms))])
        if self._ahead is None:
            self._ahead = lead - self._leads[0][1]
        elif self._led_since is not None and monotonic_ms - self._led_since < self.MEMORY_MS:
            # The first readings may be of records that were read late: the clock is further ahead, then.
            self._ahead = max(self._ahead, lead - self._leads[0][1])
        return self._ahead

    @classmethod
    def _at_least(cls, monotonic_ms: int) -> int:
        return monotonic_ms - monotonic_ms // cls.DRIFT
