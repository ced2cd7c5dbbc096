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
        self._topics, self.topic = topics, topic
        info = topics.describe([topic])[topic]
        self.topic_id = info.topic_id
        self.all: list[Partition] = [(topic, number) for number in range(info.partitions)]

    def count(self) -> None:
        """Add partitions that were created since the last call.

        Raises:
            RedeliveriesTopicRecreated: the topic was recreated with another id.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        info = self._topics.describe([self.topic])[self.topic]
        if info.topic_id != self.topic_id:
            raise RedeliveriesTopicRecreated(self.topic, self.topic_id, info.topic_id)
        self.all += [(self.topic, number) for number in range(len(self.all), info.partitions)]

    def ends(self) -> dict[int, int]:
        """Return the end offsets of all partitions without open transactions.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        ends = self._topics.end_offsets(self.all, committed=True)
        return {number: at for (_, number), at in ends.items()}
