"""Where the markers topic ends, and where an open transaction hides a part of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from spark_cursor_source.kafka.admin import ClusterAdmin

log = logging.getLogger(__name__)
HIDDEN_S = 60.0  #: so long a transaction may be open before the log says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The ends of one look at the partitions of the markers topic."""

    readable: Mapping[int, int]  #: the end of what can be read: the last stable offset
    #: partitions where that is all there is: whatever was appended before the look can be read
    whole: frozenset[int]


class MarkerEnds:
    """Asks for the ends of the markers topic, and warns of a transaction that stays open."""

    def __init__(self, topics: ClusterAdmin, markers_topic: str, partitions: int) -> None:
        self._topics = topics
        self._topic = markers_topic
        self._partitions = [(markers_topic, number) for number in range(partitions)]
        self._hidden_since: dict[int, float] = {}
        self._warned: set[int] = set()

    def look(self) -> Ends:
        """The ends as of now."""
        appended = self._topics.end_offsets(self._partitions, committed=False)
        # Asked second: in the other order an append in between would look like an open transaction.
        readable = self._topics.end_offsets(self._partitions, committed=True)
        hidden = {tp[1]: end - readable[tp] for tp, end in appended.items() if end > readable[tp]}
        self._tell(hidden)
        return Ends(
            readable={number: end for (_, number), end in readable.items()},
            whole=frozenset(number for _, number in readable if number not in hidden),
        )

    def _tell(self, hidden: Mapping[int, int]) -> None:
        now = time.monotonic()
        self._hidden_since = {number: self._hidden_since.get(number, now) for number in hidden}
        for number in self._warned - hidden.keys():
            log.info("markers_readable_again topic=%s partition=%d", self._topic, number)
        self._warned &= hidden.keys()
        for number, since in self._hidden_since.items():
            if now - since >= HIDDEN_S and number not in self._warned:
                self._warned.add(number)
                log.warning(
                    "markers_hidden topic=%s partition=%d records=%d: another program's transaction has been "
                    "open for %.0f s. No lease ends there and no ack counts until it ends: find its writer "
                    "with kafka-transactions.sh, which can also abort it",
                    self._topic,
                    number,
                    hidden[number],
                    now - since,
                )
