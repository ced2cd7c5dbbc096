"""End offsets of the markers topic, and detection of open transactions that hide markers."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spark_cursor_source.kafka.admin import ClusterAdmin

log = logging.getLogger(__name__)
HIDDEN_S = 60.0  #: how long a transaction may stay open before a warning is logged, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """End offsets of the markers topic partitions at one time."""

    readable: Mapping[int, int]  #: the last stable offset of each partition
    #: partitions without an open transaction: every earlier append is readable
    whole: frozenset[int]


class MarkerEnds:
    """Reads the ends of the markers topic, and warns about transactions that stay open."""

    def __init__(self, topics: ClusterAdmin, markers_topic: str, partitions: int) -> None:
        self._topics = topics
        self._topic = markers_topic
        self._partitions = [(markers_topic, number) for number in range(partitions)]
        self._hidden_since: dict[int, float] = {}
        self._warned: set[int] = set()

    def look(self, numbers: Collection[int] | None = None) -> Ends:
        """Returns the present ends of some partitions, or of all."""
        partitions = [tp for tp in self._partitions if numbers is None or tp[1] in numbers]
        appended = self._topics.end_offsets(partitions, committed=False)
        # Read second: in the other order, an append in between would look like an open transaction.
        readable = self._topics.end_offsets(partitions, committed=True)
        hidden = {tp[1]: end - readable[tp] for tp, end in appended.items() if end > readable[tp]}
        self._tell(hidden, {number for _, number in partitions})
        return Ends(
            readable={number: end for (_, number), end in readable.items()},
            whole=frozenset(number for _, number in readable if number not in hidden),
        )

    def _tell(self, hidden: Mapping[int, int], looked: Collection[int]) -> None:
        now = time.monotonic()
        others = {number: at for number, at in self._hidden_since.items() if number not in looked}
        self._hidden_since = others | {number: self._hidden_since.get(number, now) for number in hidden}
        ended = self._warned & set(looked) - hidden.keys()
        for number in ended:
            log.info(
                "The transaction in the markers topic ended. event=markers_visible topic=%s partition=%d",
                self._topic,
                number,
            )
        self._warned -= ended
        for number, since in self._hidden_since.items():
            if number in hidden and now - since >= HIDDEN_S and number not in self._warned:
                self._warned.add(number)
                log.warning(
                    "An open transaction of another program hides markers: no lease expires there and no "
                    "ack counts. Find its producer with kafka-transactions.sh, which can also abort it. "
                    "event=markers_hidden topic=%s partition=%d records=%d open_s=%.0f",
                    self._topic,
                    number,
                    hidden[number],
                    now - since,
                )
