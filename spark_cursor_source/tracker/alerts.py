"""Log lines that the tracker writes once for a subscription: open breakers, and acks of nothing."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.kafka.deadline import Pace

log = logging.getLogger(__name__)

EVERY_MS = 60_000


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


class UnmatchedAcksLog:
    """Counts acked, released, rejected and extended messages of cells unknown to the tracker."""

    def __init__(self, *, every_ms: int = EVERY_MS) -> None:
        self._every_ms = every_ms
        self._paces: dict[str, Pace] = {}
        self._counts: dict[str, Counter[str]] = {}

    def add(self, subscription: str, topic: str, *, messages: int) -> None:
        """Adds messages of a topic to the count."""
        self._counts.setdefault(subscription, Counter())[topic] += messages

    def tell(self) -> None:
        """Logs a warning for each subscription whose log interval has passed."""
        for subscription in list(self._counts):
            if not self._paces.setdefault(subscription, Pace(self._every_ms)).is_time():
                continue
            for topic, messages in self._counts.pop(subscription).items():
                log.warning(
                    "Acks name a partition that this subscription has never read. Compare the names with "
                    "the output of cursorq stats. event=acks_of_nothing subscription=%s topic=%s "
                    "messages=%d",
                    subscription,
                    topic,
                    messages,
                )
