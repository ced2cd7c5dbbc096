"""Times as texts."""

from __future__ import annotations

from datetime import UTC, datetime


def instant_text(at_ms: int) -> str:
    """Returns a time (ms since 1970) in UTC, as ISO 8601.

    >>> instant_text(1_795_248_000_123)
    '2026-11-21T08:00:00.123Z'
    >>> instant_text(10**18)
    '1000000000000000000'
    """
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)  # such a time has no year of four digits
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
