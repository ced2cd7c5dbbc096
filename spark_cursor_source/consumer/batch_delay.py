"""How long a batch waits to be larger."""

from __future__ import annotations

import time

from spark_cursor_source.options.source import SourceOptions


class MinOffsetsDelay:
    """Waits for ``minOffsetsPerTrigger`` messages, but no longer than ``maxTriggerDelay``."""

    def __init__(self, options: SourceOptions) -> None:
        self._least = options.min_offsets_per_trigger
        self._most_s = options.max_trigger_delay_ms / 1000
        self._planned_at = time.monotonic()
        self.drain = False  #: Trigger.AvailableNow: what is there is delivered, however little

    def planned(self) -> None:
        """A batch was planned."""
        self._planned_at = time.monotonic()

    def waits_for_more(self, waiting: int) -> bool:
        """Whether so many messages are too few for a batch yet."""
        if self._least is None or waiting >= self._least or self.drain:
            return False
        return time.monotonic() - self._planned_at < self._most_s
