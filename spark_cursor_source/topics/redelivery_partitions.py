"""Partitions of the redeliveries topic, for long-running readers."""

from __future__ import annotations

from spark_cursor_source.errors import RedeliveriesTopicRecreated
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition


class RedeliveryPartitions:
    """Partition list of the redeliveries topic that includes partitions added later."""

    def __init__(self, topics: ClusterAdmin, topic: str) -> None:
        """Read id and partition count of the topic.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self._topics, self._topic = topics, topic
        info = topics.describe([topic])[topic]
        self.topic_id = info.topic_id
        self.all: list[Partition] = [(topic, number) for number in range(info.partitions)]

    def count(self) -> None:
        """Add partitions that were created since the last call.

        Raises:
            RedeliveriesTopicRecreated: the topic was recreated with another id.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        info = self._topics.describe([self._topic])[self._topic]
        if info.topic_id != self.topic_id:
            raise RedeliveriesTopicRecreated(self._topic, self.topic_id, info.topic_id)
        self.all += [(self._topic, number) for number in range(len(self.all), info.partitions)]
