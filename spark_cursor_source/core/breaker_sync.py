"""Synchronization of the breakers of a subscription: all its cells open together."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import CloseBreaker, OpenBreaker


def trips(
    cursors: Collection[CursorSnapshot], policy: BreakerPolicy, now_ms: Mapping[int, int]
) -> list[OpenBreaker | CloseBreaker]:
    """Returns the markers that synchronize the breakers of one subscription's cells.

    If a breaker is open, the others open for the same trip. If all are closed, they open when their dead
    letters of the last window together exceed the limit. The sum includes the cells of the markers partitions
    in ``now_ms``, which gives the broker time of each. If the policy has no limit, open breakers are closed.
    """
    opened = [cursor.breaker.trip for cursor in cursors if cursor.breaker.is_open]
    if policy.limit is None:
        return [CloseBreaker(cell=cursor.cell) for cursor in cursors if cursor.breaker.is_open]
    if opened:
        trip = max(opened)  # the latest of several trips, so that all cells agree
    else:
        letters = sum(
            cursor.breaker.letters(now_ms[cursor.markers_partition] - policy.window_ms)
            for cursor in cursors
            if cursor.markers_partition in now_ms
        )
        if letters <= policy.limit:
            return []
        last_ms = max(instant for cursor in cursors for instant, _ in cursor.breaker.recent)
        trip = f"{last_ms}@{letters} in {len(cursors)} partitions"
    # A cell that has opened for this trip and closed again stays closed.
    return [OpenBreaker(cell=cursor.cell, trip=trip) for cursor in cursors if cursor.breaker.trip != trip]
