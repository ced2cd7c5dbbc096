"""Time budgets that are passed down a call chain. Each call gets the remaining time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_cursor_source.errors import KafkaUnavailable

#: maximum duration of a broker outage before it is an error: a restart, an election or a two-minute outage;
#: the same value everywhere, because the part with the shortest wait would end the query
PATIENCE_MS = 180_000

_STEP_S = 0.1


@dataclass(frozen=True, slots=True)
class Deadline:
    """A deadline on the monotonic clock of this process.

    >>> deadline = Deadline.after_ms(60_000)
    >>> 0 < deadline.left_s(most=5.0) <= 5.0, deadline.over
    (True, False)
    """

    budget_ms: int
    _at_s: float

    @classmethod
    def after_ms(cls, budget_ms: int) -> Deadline:
        """Return the deadline ``budget_ms`` from now."""
        return cls(budget_ms, time.monotonic() + budget_ms / 1000)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._at_s

    @property
    def spent_ms(self) -> int:
        """Milliseconds since the deadline was set."""
        return int(self.budget_ms - (self._at_s - time.monotonic()) * 1000)

    def left_s(self, *, most: float = float("inf"), least: float = 0.0) -> float:
        """Return the remaining seconds as a timeout of a call, at least ``least`` and at most ``most``."""
        return max(least, min(most, self._at_s - time.monotonic()))

    def pause(self, seconds: float) -> None:
        """Sleep for ``seconds``, but not beyond the deadline."""
        time.sleep(self.left_s(most=seconds))

    @contextmanager
    def acquire(self, lock: threading.Lock, operation: str) -> Iterator[None]:
        """Hold a lock that other threads may hold while they wait for brokers.

        Raises:
            KafkaUnavailable: another thread still holds the lock at the deadline.
        """
        if not lock.acquire(timeout=self.left_s()):
            raise KafkaUnavailable(operation, self.spent_ms, "another call waits, too")
        try:
            yield
        finally:
            lock.release()


def wait_in_steps(wait: Callable[[float], bool], timeout_s: float | None = None) -> bool:
    """Wait until ``wait``, which gets the most seconds of a step, returns True. Return False on a timeout.

    A wait without end is not interrupted by a signal that arrives just before it begins. Between steps, the
    handlers of such signals run.

    >>> wait_in_steps(threading.Event().wait, timeout_s=0.01)
    False
    """
    until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while not wait(max(0.0, min(_STEP_S, until_s - time.monotonic()))):
        if time.monotonic() >= until_s:
            return False
    return True


def growing_ms(tries: int, *, first_ms: int, longest_ms: int) -> int:
    """Return the pause (ms) after ``tries`` failed attempts. It doubles with each.

    >>> [growing_ms(tries, first_ms=500, longest_ms=60_000) for tries in (1, 2, 3, 1_000)]
    [500, 1000, 2000, 60000]
    """
    return min(first_ms << min(tries - 1, 20), longest_ms)


class Pace:
    """Interval timer for periodic work. The first call is due immediately, or after ``first_after_ms``.

    >>> look = Pace(60_000)
    >>> look.is_time(), look.is_time()
    (True, False)
    """

    def __init__(self, every_ms: int, *, first_after_ms: int = 0) -> None:
        self._every_ms = every_ms
        self._next = Deadline.after_ms(first_after_ms)

    def is_time(self) -> bool:
        """True if the work is due now. The next interval then starts."""
        if not self._next.over:
            return False
        self._next = Deadline.after_ms(self._every_ms)
        return True
