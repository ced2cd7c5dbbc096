"""How far a subscription is, as its consumer group's offsets: for ordinary lag tools, and for a new start."""

from __future__ import annotations

import time
from collections.abc import Mapping

from spark_cursor_source.core.planning import TopicPartition
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.spark.queue_view import QueueView

GROUP_COMMIT_S = 1.0  #: how often the consumer group's offsets follow


class GroupProgress:
    """The offsets of the group ``cursorq-<subscription>``."""

    def __init__(self, topics: Topics, subscription: str) -> None:
        self._topics = topics
        self._group = f"cursorq-{subscription}"
        self._when = 0.0
        self._committed: Mapping[TopicPartition, int] = {}

    def beginning(
        self, queue: QueueView, stored: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, int], bool]:
        """Where a query without a checkpoint begins, made durable; and whether its subscription is new.

        From the group's offsets, else from what is ``stored``; a new subscription from where the options say.
        """
        partitions = list(queue.partitions)
        known = dict(stored) | dict(self._topics.committed(self._group, partitions))
        missing = [tp for tp in partitions if tp not in known]
        is_new = not known
        # A partition that a subscription with a past does not know was added since.
        known |= queue.starting_positions(missing) if is_new else self._topics.beginning_offsets(missing)
        self._topics.commit(self._group, known)
        return known, is_new

    def follow(self, positions: Mapping[TopicPartition, int], *, force: bool = False) -> None:
        """Let ordinary Kafka lag tools see how far the batches are; unless forced, once a second at most."""
        is_due = force or time.monotonic() - self._when > GROUP_COMMIT_S
        if self._committed == positions or not is_due:
            return
        self._topics.commit(self._group, dict(positions))
        self._when, self._committed = time.monotonic(), dict(positions)
