"""Execution of a batch's decisions: the outbox, and the log lines about what was decided."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spark_cursor_source.tracker.alerts import BreakerLog, UnmatchedAcksLog
from spark_cursor_source.tracker.outbox import Outbox
from spark_cursor_source.tracker.rows import DecidedBatch, DecidedRow

log = logging.getLogger(__name__)


class DecisionLog:
    """Log lines about the decisions of a tracker, from one batch to the next."""

    def __init__(self) -> None:
        self._breakers = BreakerLog()
        self._nowhere = UnmatchedAcksLog()

    def read(self, rows: Iterable[DecidedRow]) -> DecidedBatch:
        """Returns the decisions of the rows. Logs quarantined records, and counts acks of nothing."""
        batch = DecidedBatch()
        for row in rows:
            batch.add(row)
        for reason in batch.quarantined:
            log.warning(
                "A record of the markers topic is not a valid marker. event=marker_quarantined marker=%s",
                reason,
            )
        for subscription, topic, messages in batch.nowhere:
            self._nowhere.add(subscription, topic, messages=messages)
        return batch

    def tell(self, batch: DecidedBatch) -> None:
        """Logs breakers that opened or closed, and acks of nothing. Call this after the execution."""
        self._breakers.see(batch.open_breakers, batch.closed_breakers, batch.deleted)
        self._nowhere.tell()


def carry_out(outbox: Outbox, batch: DecidedBatch, batch_id: int) -> None:
    """Executes the decisions of a batch. For the errors see :meth:`Outbox.carry_out`."""
    if batch.rewritten:
        outbox.look_at_cursors()
    outbox.carry_out(
        batch_id,
        announcements=batch.announcements,
        dead_letters=batch.dead_letters,
        cursors=batch.cursors,
        deleted=batch.deleted,
        tables=batch.tables,
        due=batch.due,
        next_markers=batch.positions,
        identity=batch.identity,
    )
