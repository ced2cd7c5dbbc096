"""The topics of dead letters: made where they are missing, fit for whatever the queue topic took."""

from __future__ import annotations

import logging
from collections.abc import Collection

from spark_cursor_source.errors import NotAuthorized
from spark_cursor_source.kafka.topics import Topics

logger = logging.getLogger(__name__)

_ROOM_FOR_HEADERS = 64 << 10


class DeadLetterTopics:
    """How many partitions each has, asked once."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._partitions: dict[str, int] = {}

    def ensure(self, names: Collection[str], *, like: str) -> None:
        """Make those that are missing, with the partitions of the topic ``like``, for its messages.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        unknown = sorted(set(names) - self._partitions.keys())
        if not unknown:
            return
        found = self._topics.existing(unknown)
        missing = [name for name in unknown if name not in found]
        if missing:
            settings, partitions = self._settings_like(like), self._topics.describe([like])[like].partitions
            self._topics.create(dict.fromkeys(missing, (partitions, settings)))
            found |= self._topics.describe(missing)
            logger.info("dead-letter topics %s made with %s partitions", missing, partitions)
        self._partitions |= {name: info.partitions for name, info in found.items()}

    def partition_for(self, name: str, partition: int) -> int:
        """Where the letters of a partition of the queue topic go."""
        return partition % self._partitions[name]

    def forget(self) -> None:
        """Ask again: a topic that was deleted is made again."""
        self._partitions.clear()

    def _settings_like(self, topic: str) -> dict[str, object]:
        try:
            most = int(self._topics.settings(topic).get("max.message.bytes") or 0)
        except NotAuthorized:
            most = 0  # the brokers' default, then
        settings: dict[str, object] = {
            "message.timestamp.type": "CreateTime",
            "cleanup.policy": "delete",
            # The brokers' default would remove, after a week, what nobody has looked at.
            "retention.ms": -1,
        }
        if most:
            settings["max.message.bytes"] = most + _ROOM_FOR_HEADERS
        return settings
