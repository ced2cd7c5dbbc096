"""Operations on subscriptions: create, seek, skip, delete, statistics, redrive, and closing a breaker.

The command ``cursorq`` calls these functions. This package imports ``consumer``, ``topics``, ``kafka`` and
the layers below; ``cli`` and ``spark`` import it.
"""

from spark_cursor_source.admin.breaker import ClosedBreakers, close_breaker
from spark_cursor_source.admin.dead_letters import DeadLetterFilter, Redriven, redrive
from spark_cursor_source.admin.instants import instant_ms
from spark_cursor_source.admin.stats import read_stats
from spark_cursor_source.admin.subscriptions import (
    EARLIEST,
    LATEST,
    Position,
    Subscriptions,
    at_offsets,
    at_time,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "ClosedBreakers",
    "DeadLetterFilter",
    "Position",
    "Redriven",
    "Subscriptions",
    "at_offsets",
    "at_time",
    "close_breaker",
    "instant_ms",
    "read_stats",
    "redrive",
]
