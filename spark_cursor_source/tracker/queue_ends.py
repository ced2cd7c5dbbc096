"""Ends of queue topics, read so that trouble with one topic holds up no other."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from spark_cursor_source.errors import KafkaFailure
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.kafka.deadline import Deadline

log = logging.getLogger(__name__)

LOOK_MS = 6_000  #: limit of a look, because all other work of a tracker waits for it
ASK_MS = 3_000  #: limit of one request of a look


class QueueEnds:
    """Reads the committed ends of queue topics. Logs the trouble with a topic once, until it is over."""

    def __init__(self, topics: ClusterAdmin) -> None:
        self._topics = topics
        self._failed: set[str] = set()  # topics of which the last request failed
        self._leaderless: set[str] = set()

    def look(self, partitions: Iterable[Partition]) -> tuple[dict[Partition, int], set[Partition]]:
        """Returns the ends of partitions that exist, and the partitions whose end is not known for now."""
        of_topic: dict[str, set[Partition]] = {}
        for partition in partitions:
            of_topic.setdefault(partition[0], set()).add(partition)
        # Topics with trouble come last and alone. A request fails or waits as a whole.
        well = sorted(of_topic.keys() - self._failed)
        alone = [[topic] for topic in sorted(of_topic.keys() & self._failed)]
        requests = deque([well, *alone] if well else alone)
        until = Deadline.after_ms(LOOK_MS)
        ends: dict[Partition, int] = {}
        unknown = set().union(*of_topic.values())
        while requests and not until.over:
            names = requests.popleft()
            asked = set().union(*(of_topic[name] for name in names))
            try:
                found, leaderless = self._ask(asked, until)
            except KafkaFailure as why:
                if len(names) == 1:
                    self._tell(names[0], str(why), self._failed)
                else:
                    requests.extendleft([name] for name in reversed(names))
                continue
            ends |= found
            unknown -= asked - leaderless
            self._failed -= set(names)
            self._look_at_leaders(names, leaderless)
        return ends, unknown

    def _ask(self, asked: set[Partition], until: Deadline) -> tuple[dict[Partition, int], set[Partition]]:
        """Returns the ends of those that have a leader, and those that have none."""
        topics = self._topics.within(Deadline.after_ms(int(until.left_s(most=ASK_MS / 1000) * 1000)))
        # The brokers do not answer for a partition without a leader, and the request would wait for it.
        leaderless = topics.without_leader(asked)
        return topics.existing_ends(asked - leaderless, committed=True), leaderless

    def _look_at_leaders(self, names: Iterable[str], leaderless: Iterable[Partition]) -> None:
        now = dict(leaderless)
        for topic, partition in now.items():
            self._tell(topic, f"partition {partition} has no leader", self._leaderless)
        self._leaderless -= set(names) - now.keys()

    @staticmethod
    def _tell(topic: str, why: str, known: set[str]) -> None:
        if topic not in known:
            known.add(topic)
            log.warning(
                "The end of a queue topic cannot be read, so its messages expire late. Other topics are not "
                "affected. event=queue_end_unknown topic=%s why=%s",
                topic,
                why,
            )
