"""Dead-letter topics: created if missing, with limits that fit all messages of the queue topic."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from spark_cursor_source.core.names import why_no_topic
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import KafkaRefused, NotAuthorized
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.copies import in_log

log = logging.getLogger(__name__)

_ROOM_FOR_HEADERS = 64 << 10


class DeadLetterTopics:
    """Cache of the partition counts of dead-letter topics."""

    def __init__(self, topics: ClusterAdmin) -> None:
        self._topics = topics
        self._partitions: dict[str, int] = {}

    def ensure(self, names: Collection[str], *, like: str, topics: ClusterAdmin | None = None) -> None:
        """Create missing topics with the partition count of the topic ``like`` and room for its messages.

        ``topics`` is the admin client for these requests. Default: the one given to the constructor.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        unknown = sorted(set(names) - self._partitions.keys())
        if not unknown:
            return
        asked = topics or self._topics
        for name in unknown:
            if (why := why_no_topic(name)) is not None:
                raise KafkaRefused("create dead-letter topic", name, why)
        found = asked.existing(unknown)
        missing = [name for name in unknown if name not in found]
        if missing:
            settings, partitions = self._settings_like(asked, like), asked.describe([like])[like].partitions
            asked.create(dict.fromkeys(missing, (partitions, settings)))
            found |= asked.describe(missing)
            log.info(
                "Dead-letter topics were created. event=dead_letter_topics_created topics=%s partitions=%s",
                missing,
                partitions,
            )
        self._partitions |= {name: info.partitions for name, info in found.items()}

    def partition_for(self, name: str, partition: int) -> int:
        """Return the dead-letter partition for a partition of the queue topic."""
        return partition % self._partitions[name]

    def forget(self) -> None:
        """Clear the cache, so that a deleted topic is created again."""
        self._partitions.clear()

    @staticmethod
    def _settings_like(topics: ClusterAdmin, topic: str) -> dict[str, object]:
        try:
            most = int(topics.settings(topic).get("max.message.bytes") or 0)
        except NotAuthorized:
            most = 0  # unknown, so use the brokers' default
        settings: dict[str, object] = {
            "message.timestamp.type": "CreateTime",
            "cleanup.policy": "delete",
            # The brokers' default retention would delete dead letters after a week, even unread ones.
            "retention.ms": -1,
        }
        if most:
            settings["max.message.bytes"] = most + _ROOM_FOR_HEADERS
        return settings


def readable(
    topics: ClusterAdmin, topic: str, wanted: Mapping[int, OffsetSet]
) -> tuple[dict[int, OffsetSet], frozenset[int]]:
    """Return the wanted offsets of each partition that are in the log, and the partitions without a leader.

    Both are empty if the topic does not exist.

    Raises:
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    leaders = {number: leader for number, (leader, _, _) in topics.placements(topic, wanted=wanted).items()}
    led = {number: wanted[number] for number in wanted if leaders.get(number) is not None}
    leaderless = frozenset(number for number in wanted if number in leaders and leaders[number] is None)
    return in_log(topics, topic, led), leaderless
