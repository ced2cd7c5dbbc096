"""Rest of an idle query: it waits for an append instead of asking for the ends of its partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.kafka.append_watch import AppendWatch

QUIET_S = 0.25  #: time without news after which a query rests
LOOK_S = 1.0  #: longest time in seconds between two looks of a query that rests
WAIT_S = 0.2  #: longest wait in one call; Spark can stop the query only between calls
# Spark calls an idle query again after 10 ms. A longer pause means a trigger interval, or another stream of
# the same query, whose messages must not wait for this one.
_PAUSE_S = 0.05


class IdleWait:
    """Decides when a query with nothing to deliver rests, and for how long. Not thread-safe."""

    def __init__(self, appends: AppendWatch, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._appends, self._now_s = appends, now_s
        self._resting_on: frozenset[TopicPartition] | None = None
        self._news_at = self._looked_at = self._left_at = now_s()

    def rest(self, ends: Mapping[TopicPartition, int]) -> None:
        """Begins or continues to rest, after a look that found nothing below these ends."""
        self._looked_at = self._left_at = self._now_s()
        if self._looked_at - self._news_at < QUIET_S:
            return
        self._appends.begin(ends)
        self._resting_on = frozenset(ends)

    def goes_on(self, partitions: Collection[TopicPartition]) -> bool:
        """Waits for an append. Returns True if there was none and the ends need no look."""
        now = self._now_s()
        left_s = self._looked_at + LOOK_S - now
        if self._resting_on is None or self._resting_on != frozenset(partitions) or left_s <= 0:
            return False
        is_busy = now - self._left_at > _PAUSE_S
        if self._appends.wait(0 if is_busy else min(WAIT_S, left_s)):
            self._resting_on, self._news_at = None, self._now_s()
            return False
        self._left_at = self._now_s()
        return True

    def end(self) -> None:
        """Ends the rest, because there is something to deliver."""
        self._appends.stop()
        self._resting_on, self._news_at = None, self._now_s()
