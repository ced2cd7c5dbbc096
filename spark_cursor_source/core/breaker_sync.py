"""The breakers of a subscription open together: what one cell knows, or all of them in sum, goes to each."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import CloseBreaker, OpenBreaker


def trips(
    cursors: Collection[CursorSnapshot], policy: BreakerPolicy, now_ms: Mapping[int, int]
) -> list[OpenBreaker | CloseBreaker]:
    """The markers that bring the cells of one subscription in line.

    Where a breaker is open, the others open for the same trip. Where all are closed, they open when their
    dead letters of the last window are together more than the limit; counted are cells of the markers
    partitions in ``now_ms``, by the broker's time there. An open one that has no limit any more is closed.
    """
    opened = [cursor.breaker.trip for cursor in cursors if cursor.breaker.is_open]
    if policy.limit is None:
        return [CloseBreaker(cell=cursor.cell) for cursor in cursors if cursor.breaker.is_open]
    if opened:
        trip = max(opened)  # of several the latest, so that all agree
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
    # A cell that was open for this trip and is closed again stays so.
    return [OpenBreaker(cell=cursor.cell, trip=trip) for cursor in cursors if cursor.breaker.trip != trip]
