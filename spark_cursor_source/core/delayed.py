"""When to look again at a message that is not due yet."""

from __future__ import annotations

from spark_cursor_source.core.marker import MAX_LEASE_MS

GRAIN_MS = 250  #: looks are on multiples of it, so that messages share markers
MOST_WAITS = 128  #: so many grains ahead each has its own look; farther off, several share a coarser one


def look_again_ms(due_ms: int, now_ms: int) -> int:
    """When to look again at a message that is not due: when it is, or at most a 64th of the time before.

    A wait that ends early costs another look and no more, and none is above 12 h. Messages that are due
    within half a minute get their quarter of a second; it is the far ones that share their waits.

    >>> look_again_ms(10_001, 5_000), look_again_ms(3_600_100, 0), look_again_ms(10**15, 0)
    (10250, 3584000, 43008000)
    """
    left_ms = min(due_ms - now_ms, MAX_LEASE_MS)
    grain_ms = GRAIN_MS
    while grain_ms * MOST_WAITS < left_ms:
        grain_ms *= 2
    moment = now_ms + left_ms
    # The finest grain is rounded up: the message is due then, and not looked at twice.
    return (-(-moment // grain_ms) if grain_ms == GRAIN_MS else moment // grain_ms) * grain_ms
