"""Which partitions of which queue topics a query reads, kept up to date while it runs."""

from __future__ import annotations

from collections.abc import Mapping

from spark_cursor_source.core.planning import TopicPartition
from spark_cursor_source.core.source_options import SourceOptions
from spark_cursor_source.core.topic_selection import Assign, Subscribe, SubscribePattern
from spark_cursor_source.errors import QueueTopicRecreated
from spark_cursor_source.kafka.positions import starting_positions
from spark_cursor_source.kafka.topics import Topics


class QueueView:
    """The queue partitions of a query and the ids of their topics."""

    def __init__(self, options: SourceOptions, topics: Topics) -> None:
        self._options = options
        self._topics = topics
        self._expected_ids: dict[str, str] = {}
        self.partitions: tuple[TopicPartition, ...] = ()
        self.topic_ids: Mapping[str, str] = {}

    def expect(self, topic_ids: Mapping[str, str]) -> None:
        """Positions at hand are those of topics with these ids."""
        self._expected_ids |= topic_ids

    def refresh(self) -> None:
        """Ask the broker which partitions there are now.

        Raises:
            TopicNotFound: a topic that is read by name does not exist.
            QueueTopicRecreated: a topic is another one than that of the positions at hand.
        """
        selection = self._options.topics
        match selection:
            case Subscribe(topics=names):
                wanted = list(names)
            case SubscribePattern(pattern=pattern):
                wanted = [name for name in self._topics.matching(pattern) if self._options.selects(name)]
                # A topic that was read before and is gone is missed by name, not forgotten.
                wanted = sorted({*wanted, *self._expected_ids})
            case Assign(partitions=assigned):
                wanted = sorted({topic for topic, _ in assigned})
        infos = self._topics.describe(wanted)
        for name, info in infos.items():
            expected = self._expected_ids.get(name)
            if expected is not None and expected != info.topic_id:
                raise QueueTopicRecreated(name, expected, info.topic_id)
        if isinstance(selection, Assign):
            self.partitions = selection.partitions
        else:
            self.partitions = tuple(
                (name, partition) for name in sorted(infos) for partition in range(infos[name].partitions)
            )
        self.topic_ids = {name: info.topic_id for name, info in infos.items()}
        self._expected_ids |= self.topic_ids

    def starting_positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a new subscription begins, by the option startingOffsets and its like."""
        return starting_positions(self._options.starting_offsets, partitions, self._topics)
