"""The partitions of the redeliveries topic, for whoever reads it while it runs."""

from __future__ import annotations

from spark_cursor_source.errors import RedeliveriesTopicRecreated
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition


class RedeliveryPartitions:
    """The partitions, kept up to date: those that the topic was given since are read, too."""

    def __init__(self, topics: ClusterAdmin, topic: str) -> None:
        """Ask what the topic is now.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self._topics, self._topic = topics, topic
        info = topics.describe([topic])[topic]
        self.topic_id = info.topic_id
        self.all: list[Partition] = [(topic, number) for number in range(info.partitions)]

    def count(self) -> None:
        """Look whether there are more by now.

        Raises:
            RedeliveriesTopicRecreated: it is another topic by now.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        info = self._topics.describe([self._topic])[self._topic]
        if info.topic_id != self.topic_id:
            raise RedeliveriesTopicRecreated(self._topic, self.topic_id, info.topic_id)
        self.all += [(self._topic, number) for number in range(len(self.all), info.partitions)]
