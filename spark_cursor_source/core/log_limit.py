"""Rate limit for log lines of one kind."""

from __future__ import annotations

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
