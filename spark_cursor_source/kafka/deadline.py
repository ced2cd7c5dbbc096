"""One budget of time, passed along: each call on the way gets what is left of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_cursor_source.errors import KafkaUnavailable

#: how long brokers may be away, for a restart, an election or two minutes' outage: then it is an error.
#: One for all: where one part waits less than the others, that part ends the query.
PATIENCE_MS = 180_000


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which something is done, on the monotonic clock of this process.

    >>> deadline = Deadline.after_ms(60_000)
    >>> 0 < deadline.left_s(most=5.0) <= 5.0, deadline.over
    (True, False)
    """

    budget_ms: int
    _at_s: float

    @classmethod
    def after_ms(cls, budget_ms: int) -> Deadline:
        """The moment ``budget_ms`` from now."""
        return cls(budget_ms, time.monotonic() + budget_ms / 1000)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._at_s

    @property
    def spent_ms(self) -> int:
        """The time since the budget was given."""
        return int(self.budget_ms - (self._at_s - time.monotonic()) * 1000)

    def left_s(self, *, most: float = float("inf"), least: float = 0.0) -> float:
        """The seconds left, for a call that takes a timeout; never below ``least`` nor above ``most``."""
        return max(least, min(most, self._at_s - time.monotonic()))

    def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the deadline."""
        time.sleep(self.left_s(most=seconds))

    @contextmanager
    def acquire(self, lock: threading.Lock, operation: str) -> Iterator[None]:
        """Have a lock that others keep while they wait for brokers.

        Raises:
            KafkaUnavailable: they still do when the deadline is over.
        """
        if not lock.acquire(timeout=self.left_s()):
            raise KafkaUnavailable(operation, self.spent_ms, "another call waits, too")
        try:
            yield
        finally:
            lock.release()


class Pace:
    """Something that is done once in a while, and at once the first time.

    >>> look = Pace(60_000)
    >>> look.is_time(), look.is_time()
    (True, False)
    """

    def __init__(self, every_ms: int) -> None:
        self._every_ms = every_ms
        self._next = Deadline.after_ms(0)

    def is_time(self) -> bool:
        """Whether to do it now; the next time is so long after this one."""
        if not self._next.over:
            return False
        self._next = Deadline.after_ms(self._every_ms)
        return True
