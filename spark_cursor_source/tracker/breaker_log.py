"""Error log of breakers that open and close, once for each subscription."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot

log = logging.getLogger(__name__)


class BreakerLog:
    """Tracks open breakers. A breaker that was open before the tracker started is logged again."""

    def __init__(self) -> None:
        self._open: dict[str, set[Cell]] = {}

    def see(self, cursors: Iterable[CursorSnapshot], deleted: Iterable[Cell] = ()) -> None:
        """Processes changed cursors and deleted cells."""
        for cell in deleted:
            if left := self._open.pop(cell.subscription, set()) - {cell}:
                self._open[cell.subscription] = left
        by_subscription: dict[str, list[CursorSnapshot]] = {}
        for cursor in cursors:
            by_subscription.setdefault(cursor.cell.subscription, []).append(cursor)
        for name, changed in by_subscription.items():
            before = self._open.get(name, set())
            closed = {cursor.cell for cursor in changed if not cursor.breaker.is_open}
            opened = [cursor for cursor in changed if cursor.breaker.is_open]
            now = (before - closed) | {cursor.cell for cursor in opened}
            if now and not before:
                log.error(
                    "The breaker opened: leases of the subscription do not expire and its dead letters "
                    "are held. Find the cause, then close the breaker with cursorq resume. "
                    "event=breaker_opened subscription=%s trip=%s held=%d closes=%s",
                    name,
                    opened[0].breaker.trip,
                    sum(len(offsets) for cursor in opened for _, offsets in cursor.held),
                    "by-itself" if opened[0].breaker.closes_ms is not None else "when-told",
                )
            if before and not now:
                log.error(
                    "The breaker closed, and the held dead letters are written. event=breaker_closed "
                    "subscription=%s",
                    name,
                )
            if now:
                self._open[name] = now
            else:
                self._open.pop(name, None)
