"""Delay of a batch until enough messages wait."""

from __future__ import annotations

import time

from spark_cursor_source.options.source import SourceOptions


class MinOffsetsDelay:
    """Delays a batch until ``minOffsetsPerTrigger`` messages wait, for at most ``maxTriggerDelay``."""

    def __init__(self, options: SourceOptions) -> None:
        self._least = options.min_offsets_per_trigger
        self._most_s = options.max_trigger_delay_ms / 1000
        self._planned_at = time.monotonic()
        self.drain = False  #: Trigger.AvailableNow: waiting messages are delivered, whatever their number

    def planned(self) -> None:
        """Restarts the delay after a planned batch."""
        self._planned_at = time.monotonic()

    def waits_for_more(self, waiting: int) -> bool:
        """True if the next batch should wait for more than ``waiting`` messages."""
        if self._least is None or waiting >= self._least or self.drain:
            return False
        return time.monotonic() - self._planned_at < self._most_s
