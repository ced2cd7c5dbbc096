"""Rate-limited log of handler exceptions on executors. Each line counts the suppressed ones before it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque


class LogLimit:
    """Admits at most ``most`` lines in any ``window_ms``; the next admitted line reports the suppressed ones.

    >>> few = LogLimit(most=2, window_ms=60_000)
    >>> [few.admit(at) for at in (0, 10, 20, 30, 60_000, 60_005)]
    [0, 0, None, None, 2, None]
    """

    def __init__(self, *, most: int, window_ms: int) -> None:
        self._most, self._window_ms = most, window_ms
        self._shown: deque[int] = deque()
        self._left_out = 0

    def admit(self, now_ms: int) -> int | None:
        """Returns the number of lines suppressed before this line, or None to suppress this line too."""
        while self._shown and now_ms - self._shown[0] >= self._window_ms:
            self._shown.popleft()
        if len(self._shown) >= self._most:
            self._left_out += 1
            return None
        self._shown.append(now_ms)
        left_out, self._left_out = self._left_out, 0
        return left_out


log = logging.getLogger(__name__)
_MOST = 5
_WINDOW_MS = 60_000
_few = LogLimit(most=_MOST, window_ms=_WINDOW_MS)
_lock = threading.Lock()


def report_failure(topic: str, partition: int, offset: int, delivery_count: int, why: str) -> None:
    """Logs the exception that a handler raised for a message, unless the rate limit is reached.

    The log line identifies the message. The only other content is the exception text.
    """
    with _lock:
        left_out = _few.admit(int(time.monotonic() * 1000))
    if left_out is not None:
        log.warning(
            "The handler raised an exception. event=handler_failed topic=%s partition=%s "
            "offset=%s delivery_count=%s not_shown_before=%d why=%s",
            *(topic, partition, offset, delivery_count, left_out, " ".join(why.split())),
        )
