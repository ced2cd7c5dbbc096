"""Remaining capacity of a query under ``maxOutstanding``."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.topics.cursors import CursorTable

log = logging.getLogger(__name__)


class OutstandingLimit:
    """Computes how many messages ``maxOutstanding`` leaves for the next batch.

    Deliveries of this run that the tracker has not read yet count as outstanding. So the limit holds at any
    time.
    """

    def __init__(self, options: SourceOptions, cursors: CursorTable) -> None:
        self._subscription, self._limit = options.subscription, options.max_outstanding
        self._cursors = cursors
        self._first_planned: dict[TopicPartition, int] = {}
        self._is_full = False
        #: outstanding messages including the next batch; None without a limit
        self.outstanding: int | None = None

    def left(self, planned: Mapping[TopicPartition, int]) -> int | None:
        """Returns the remaining capacity in messages if everything below ``planned`` is planned.

        Returns None without a limit.
        """
        if self._limit is None:
            return None
        self._cursors.refresh()
        outstanding = 0
        for tp, position in planned.items():
            cursor = self._cursors.get(Cell(subscription=self._subscription, topic=tp[0], partition=tp[1]))
            seen = self._first_planned.setdefault(tp, position) if cursor is None else cursor.read_position
            outstanding += max(position - seen, 0) + (len(cursor.outstanding) if cursor else 0)
        self.outstanding = outstanding
        room = max(self._limit - outstanding, 0)
        if (room == 0) != self._is_full:
            self._is_full = room == 0
            told = (
                "The limit of outstanding messages is reached, so no new message is leased. "
                "event=max_outstanding_reached subscription=%s outstanding=%d max_outstanding=%d"
                if self._is_full
                else "New messages are leased again. "
                "event=max_outstanding_left subscription=%s outstanding=%d max_outstanding=%d"
            )
            log.info(told, self._subscription, outstanding, self._limit)
        return room

    def take(self, messages: int) -> None:
        """Adds the messages of the next batch to the outstanding count."""
        if self.outstanding is not None:
            self.outstanding += messages
