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

    def see(
        self, opened: Iterable[CursorSnapshot], closed: Iterable[Cell], deleted: Iterable[Cell] = ()
    ) -> None:
        """Processes changed cursors with an open breaker, other changed cells, and deleted cells."""
        for cell in deleted:
            if left := self._open.pop(cell.subscription, set()) - {cell}:
                self._open[cell.subscription] = left
        opened_of: dict[str, list[CursorSnapshot]] = {}
        closed_of: dict[str, set[Cell]] = {}
        for cursor in opened:
            opened_of.setdefault(cursor.cell.subscription, []).append(cursor)
        for cell in closed:
            closed_of.setdefault(cell.subscription, set()).add(cell)
        for name in {**opened_of, **closed_of}:
            before = self._open.get(name, set())
            cursors = opened_of.get(name, [])
            now = (before - closed_of.get(name, set())) | {cursor.cell for cursor in cursors}
            if now and not before:
                log.error(
                    "The breaker opened: leases of the subscription do not expire and its dead letters "
                    "are held. Find the cause, then close the breaker with cursorq resume. "
                    "event=breaker_opened subscription=%s trip=%s held=%d closes=%s",
                    name,
                    cursors[0].breaker.trip,
                    sum(len(offsets) for cursor in cursors for _, offsets in cursor.held),
                    "by-itself" if cursors[0].breaker.closes_ms is not None else "when-told",
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
