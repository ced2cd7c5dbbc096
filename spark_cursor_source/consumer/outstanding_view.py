"""Outstanding messages of a query, as its progress shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from spark_cursor_source.core.cursor import CursorSnapshot


class OutstandingView:
    """Number and age of the outstanding messages, as of the last look at the cursors.

    Ages are differences of broker times. Between two known broker times the local clock measures.
    """

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.outstanding: int | None = None  #: None: no cursor was read yet
        self._oldest_ms: int | None = None  # broker time of the first delivery of the oldest message
        self._broker_ms = 0
        self._known_s = 0.0

    def at(self, broker_ms: int) -> None:
        """Notes the present broker time. Earlier times than known are ignored."""
        if broker_ms > self._broker_ms:
            self._broker_ms, self._known_s = broker_ms, self._now_s()

    def look(self, cursors: Iterable[CursorSnapshot | None]) -> None:
        """Takes in the cursors of the assigned partitions; None for one without a cursor."""
        known = [one for one in cursors if one is not None]
        times = [
            at_ms
            for one in known
            if (first := one.outstanding.first) is not None
            and (at_ms := one.first_deliveries.at(first)) is not None
        ]
        self.outstanding = sum(len(one.outstanding) for one in known)
        self._oldest_ms = min(times, default=None)
        self.at(max((one.owner_seen_ms for one in known), default=0))

    def oldest_ms(self) -> int | None:
        """Returns the ms since the first delivery of the oldest outstanding message, or None without one."""
        if self._oldest_ms is None or not self._broker_ms:
            return None
        now_ms = self._broker_ms + round((self._now_s() - self._known_s) * 1_000)
        return max(now_ms - self._oldest_ms, 0)
