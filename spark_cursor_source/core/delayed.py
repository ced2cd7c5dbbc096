"""Poll times of messages that are not due yet."""

from __future__ import annotations

from spark_cursor_source.core.marker import MAX_LEASE_MS

GRAIN_MS = 250  #: poll times are multiples of this, so that messages share markers
MOST_WAITS = 128  #: longest wait in grains; longer waits use a coarser grain


def look_again_ms(due_ms: int, now_ms: int) -> int:
    """Returns the next poll time of a delayed message: its due time, or up to a 64th of the wait earlier.

    An early poll only costs another poll. No wait exceeds 12 h. Messages that are due within half a minute
    have a poll time within 250 ms of their due time. Messages that are due later share coarser poll times.

    >>> look_again_ms(10_001, 5_000), look_again_ms(3_600_100, 0), look_again_ms(10**15, 0)
    (10250, 3584000, 43008000)
    """
    left_ms = min(due_ms - now_ms, MAX_LEASE_MS)
    grain_ms = GRAIN_MS
    while grain_ms * MOST_WAITS < left_ms:
        grain_ms *= 2
    moment = now_ms + left_ms
    # The finest grain is rounded up: the message is due at the poll time and is not polled twice.
    return (-(-moment // grain_ms) if grain_ms == GRAIN_MS else moment // grain_ms) * grain_ms
