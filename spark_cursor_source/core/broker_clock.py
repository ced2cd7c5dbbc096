"""Broker time, taken from broker timestamps and advanced by a monotonic clock.

Wall clocks of two machines are never compared: the only wall-clock readings here are the broker's own.
"""

from __future__ import annotations

from collections import deque


class BrokerClock:
    """Lower bound of the current broker time that never runs backwards.

    When a record is read, the broker's clock has passed the append time of the record. The clock keeps the
    best reading of the last ten minutes. It advances that reading by the elapsed local time, less one
    ten-thousandth. If two clocks drift apart by less than that, the result never runs ahead, however long the
    log is quiet. Older readings are dropped, so that the clock follows a new leader with a slower clock in
    the end.

    >>> clock = BrokerClock()
    >>> clock.now_ms(monotonic_ms=5) is None
    True
    >>> clock.observe(broker_ms=1_000_000, monotonic_ms=10)
    >>> clock.now_ms(monotonic_ms=510)
    1000500
    """

    MEMORY_MS = 600_000
    DRIFT = 10_000  #: 1/10,000: more than the clocks of two computers drift apart

    def __init__(self, now_ms: int | None = None) -> None:
        """Starts at ``now_ms``, a reading of this clock from before a restart; None starts without a time."""
        self._last_ms = now_ms
        # (monotonic ms, lead of the broker in ms); the leads descend
        self._leads: deque[tuple[int, int]] = deque()
        self._epoch: int | None = None
        self._led_since: int | None = None  # monotonic ms of the first record of a new epoch
        self._ahead: int | None = 0  # lead of this epoch's leader in ms; None: no reading yet

    def observe(self, *, broker_ms: int, monotonic_ms: int, epoch: int | None = None) -> None:
        """Records a broker timestamp that was read at ``monotonic_ms``.

        ``epoch`` is the leader epoch of the broker that wrote the timestamp. A new leader has another clock:
        time continues from its current value, and the lead or lag of the new clock is derived from its
        timestamps.
        """
        lead = broker_ms - self._at_least(monotonic_ms)
        if epoch is not None:
            if self._epoch is not None and epoch < self._epoch:
                return  # a record of an earlier leader, read again
            lead -= self._ahead_of(epoch, lead, monotonic_ms)
        while self._leads and self._leads[-1][1] <= lead:
            self._leads.pop()
        self._leads.append((monotonic_ms, lead))

    def now_ms(self, *, monotonic_ms: int) -> int | None:
        """Returns the best known lower bound of the broker time, or None before the first reading."""
        while len(self._leads) > 1 and self._leads[0][0] < monotonic_ms - self.MEMORY_MS:
            self._leads.popleft()
        if self._leads:
            now = self._leads[0][1] + self._at_least(monotonic_ms)
            self._last_ms = now if self._last_ms is None else max(self._last_ms, now)
        return self._last_ms

    def _ahead_of(self, epoch: int, lead: int, monotonic_ms: int) -> int:
        """Returns the lead of an epoch's leader over this clock in ms; negative if the leader is behind."""
        if self._epoch is None:
            self._epoch = epoch
        if epoch > self._epoch and (now := self.now_ms(monotonic_ms=monotonic_ms)) is not None:
            self._epoch, self._led_since, self._ahead = epoch, monotonic_ms, None
            self._leads = deque([(monotonic_ms, now - self._at_least(monotonic_ms))])
        if self._ahead is None:
            self._ahead = lead - self._leads[0][1]
        elif self._led_since is not None and monotonic_ms - self._led_since < self.MEMORY_MS:
            # The first records may have been read late, so later ones can show a larger lead.
            self._ahead = max(self._ahead, lead - self._leads[0][1])
        return self._ahead

    @classmethod
    def _at_least(cls, monotonic_ms: int) -> int:
        return monotonic_ms - monotonic_ms // cls.DRIFT
