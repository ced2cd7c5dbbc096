"""Limits of one consumer: those of its options, and those that an operator has set at run time."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.limits import NO_LIMITS, Limits, RateBudget, strictest
from spark_cursor_source.topics.cursors import CursorTable

log = logging.getLogger(__name__)


class ConsumerLimits:
    """Computes how many messages may start. The strictest limit holds. Not thread-safe.

    Deliveries of this run that the tracker has not read yet count as outstanding. So the limit of
    outstanding messages holds at any time.
    """

    def __init__(
        self,
        subscription: str,
        cursors: CursorTable,
        options: Limits = NO_LIMITS,
        *,
        longest_s: float = math.inf,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """``longest_s`` is how long an unused rate is kept, at most."""
        self._subscription, self._cursors, self._options = subscription, cursors, options
        self._now_s, self._sleep = now_s, sleep
        self._budget = RateBudget(longest_s=longest_s)
        self._first_planned: dict[TopicPartition, int] = {}
        self._is_full = False
        self.present = options  #: limits that hold now
        #: outstanding messages including the next batch; None without a limit
        self.outstanding: int | None = None

    def follow(self, of_operator: Limits) -> None:
        """Takes in this consumer's share of the operator's limits."""
        self.present = strictest([self._options, of_operator])

    def budget(self, most: int | None, *, wanted: int = 1) -> int | None:
        """Returns the number of messages that may start now: at most ``most``, and what the rate allows.

        An unused rate is kept at least until it allows ``wanted`` messages. Returns None without any limit.
        """
        allowed = self._budget.look(self.present.rate, now_s=self._now_s(), wanted=wanted)
        return min((one for one in (most, allowed) if one is not None), default=None)

    def wait(self, most_s: float, *, wanted: int = 1) -> bool:
        """Waits until the rate allows ``wanted`` messages, for ``most_s`` at most.

        Returns False if it allows them now.
        """
        rate, allowed = self.present.rate, self.budget(None, wanted=wanted)
        if rate is None or allowed is None or allowed >= wanted:
            return False
        self._sleep(min(self._budget.wait_s(rate, wanted=wanted), most_s))
        return True

    def room(self, planned: Mapping[TopicPartition, int]) -> int | None:
        """Returns the number of new messages that may become outstanding.

        Everything below ``planned`` counts as started. Returns None without a limit.
        """
        limit = self.present.max_outstanding
        if limit is None:
            self.outstanding = None
            return None
        self._cursors.refresh()
        outstanding = 0
        for tp, position in planned.items():
            cursor = self._cursors.get(Cell(subscription=self._subscription, topic=tp[0], partition=tp[1]))
            seen = self._first_planned.setdefault(tp, position) if cursor is None else cursor.read_position
            outstanding += max(position - seen, 0) + (len(cursor.outstanding) if cursor else 0)
        self.outstanding = outstanding
        room = max(limit - outstanding, 0)
        if (room == 0) != self._is_full:
            self._is_full = room == 0
            sentence = (
                "The limit of outstanding messages is reached, so no new message is leased. "
                "event=max_outstanding_reached subscription=%s outstanding=%d max_outstanding=%d"
                if self._is_full
                else "New messages are leased again. "
                "event=max_outstanding_left subscription=%s outstanding=%d max_outstanding=%d"
            )
            log.info(sentence, self._subscription, outstanding, limit)
        return room

    def took(self, *, new: int, again: int) -> None:
        """Counts messages of the next batch: new ones, and redeliveries."""
        self._budget.took(new + again)
        if self.outstanding is not None:
            self.outstanding += new
