"""Outstanding messages of a query: their limit ``maxOutstanding``, and what the progress shows of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
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
            sentence = (
                "The limit of outstanding messages is reached, so no new message is leased. "
                "event=max_outstanding_reached subscription=%s outstanding=%d max_outstanding=%d"
                if self._is_full
                else "New messages are leased again. "
                "event=max_outstanding_left subscription=%s outstanding=%d max_outstanding=%d"
            )
            log.info(sentence, self._subscription, outstanding, self._limit)
        return room

    def take(self, messages: int) -> None:
        """Adds the messages of the next batch to the outstanding count."""
        if self.outstanding is not None:
            self.outstanding += messages


class OutstandingView:
    """Number and age of the outstanding messages, as of the last look at the cursors.

    Ages are differences of broker times. Between two known broker times the local clock measures.
    """

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.outstanding: int | None = None  #: None: no cursor was read yet
        self._oldest_ms: int | None = None  # broker time of the first delivery of the oldest message
        self._broker_ms = 0
        self._known_s = 0.0

    def at(self, broker_ms: int) -> None:
        """Notes the present broker time. Earlier times than known are ignored."""
        if broker_ms > self._broker_ms:
            self._broker_ms, self._known_s = broker_ms, self._now_s()

    def look(self, cursors: Iterable[CursorSnapshot | None]) -> None:
        """Takes in the cursors of the assigned partitions; None for one without a cursor."""
        known = [one for one in cursors if one is not None]
        times = [
            at_ms
            for one in known
            if (first := one.outstanding.first) is not None
            and (at_ms := one.first_deliveries.at(first)) is not None
        ]
        self.outstanding = sum(len(one.outstanding) for one in known)
        self._oldest_ms = min(times, default=None)
        self.at(max((one.owner_seen_ms for one in known), default=0))

    def oldest_ms(self) -> int | None:
        """Returns the ms since the first delivery of the oldest outstanding message, or None without one."""
        if self._oldest_ms is None or not self._broker_ms:
            return None
        now_ms = self._broker_ms + round((self._now_s() - self._known_s) * 1_000)
        return max(now_ms - self._oldest_ms, 0)
