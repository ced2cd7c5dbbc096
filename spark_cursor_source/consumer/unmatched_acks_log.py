"""Log of acks that match no known subscription or topic, once a minute for each subscription."""

from __future__ import annotations

import logging
from collections import Counter

from spark_cursor_source.kafka.deadline import Pace

log = logging.getLogger(__name__)

EVERY_MS = 60_000


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
