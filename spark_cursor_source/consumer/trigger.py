"""Effects of Spark's trigger on batches: the end of the input, and the delay until enough messages wait."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable

from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.options.source import SourceOptions


class _Input(enum.Enum):
    OPEN = enum.auto()
    CLOSING = enum.auto()  # the next ends are the last
    CLOSED = enum.auto()


class InputEnds:
    """End offsets of the input. With Trigger.AvailableNow and Once they are read once and stay the same.

    >>> present = iter([5, 7, 9])
    >>> ends = InputEnds(lambda: SourceOffset(queue={("t", 0): next(present)}, redeliveries={}))
    >>> ends.read().queue
    {('t', 0): 5}
    >>> ends.bound_by_now()
    >>> ends.read().queue, ends.read().queue, ends.latest.queue
    ({('t', 0): 7}, {('t', 0): 7}, {('t', 0): 7})
    """

    def __init__(self, read: Callable[[], SourceOffset]) -> None:
        """``read`` returns the present end offsets from the brokers."""
        self._read = read
        self._input = _Input.OPEN
        self.has_one_batch = False  #: True with Trigger.Once
        self.latest = SourceOffset(queue={}, redeliveries={})  #: the result of the last :meth:`read`

    def bound_by_now(self, *, one_batch: bool = False) -> None:
        """Implements Trigger.AvailableNow and Once: the next :meth:`read` fixes the ends."""
        self.has_one_batch = one_batch
        if self._input is _Input.OPEN:
            self._input = _Input.CLOSING

    @property
    def is_bounded(self) -> bool:
        """True with Trigger.AvailableNow and Once."""
        return self._input is not _Input.OPEN

    @property
    def is_fixed(self) -> bool:
        """True if later messages are no part of the input."""
        return self._input is _Input.CLOSED

    def read(self) -> SourceOffset:
        """Returns the end offsets up to which batches may be planned. Raises the errors of reading them."""
        if self._input is not _Input.CLOSED:
            self.latest = self._read()
        if self._input is _Input.CLOSING:
            self._input = _Input.CLOSED
        return self.latest


class MinOffsetsDelay:
    """Delays a batch until ``minOffsetsPerTrigger`` messages wait, for at most ``maxTriggerDelay``.

    With Trigger.AvailableNow and Once nothing is delayed.
    """

    def __init__(self, options: SourceOptions, ends: InputEnds) -> None:
        self._least = options.min_offsets_per_trigger
        self._most_s = options.max_trigger_delay_ms / 1000
        self._ends = ends
        self._planned_at = time.monotonic()

    def planned(self) -> None:
        """Restarts the delay after a planned batch."""
        self._planned_at = time.monotonic()

    def waits_for_more(self, waiting: int) -> bool:
        """True if the next batch should wait for more than ``waiting`` messages."""
        if self._least is None or waiting >= self._least or self._ends.is_bounded:
            return False
        return time.monotonic() - self._planned_at < self._most_s
