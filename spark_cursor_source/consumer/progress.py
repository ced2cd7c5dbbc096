"""Progress of a subscription as its consumer group's offsets, for Kafka lag tools and for a new start."""

from __future__ import annotations

import time
from collections.abc import Mapping

from spark_cursor_source.consumer.membership import GroupConfig, Membership
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.source import SourceOptions

GROUP_COMMIT_S = 1.0  #: minimum interval in seconds between offset commits


def group_config(options: SourceOptions, topics: ClusterAdmin, query_id: str) -> Membership:
    """Returns the membership of a query in its subscription's group.

    The member joins at the first request for partitions.
    """
    part = GroupConfig(
        group=options.group,
        queue=repr(options.topics),
        type=options.subscription_type,
        session_ms=options.session_ms,
        query_id=query_id,
        queue_id=options.queue_id,
    )
    return Membership(client_config(options.kafka, "consumer"), topics, part)


class GroupProgress:
    """Offsets of the subscription's consumer group, committed by one of its members."""

    def __init__(self, topics: ClusterAdmin, membership: Membership, group: str) -> None:
        self._topics = topics
        self._membership = membership
        self._group = group
        self._when = 0.0
        self._is_on_its_way = False  # True after a commit that has not been awaited
        self._committed: dict[TopicPartition, int] = {}

    def beginning(
        self, queue: SourceTopics, stored: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Returns the positions where a query without a checkpoint begins.

        Uses the group's offsets, which do not move before the first batch is complete, then the ``stored``
        positions. A new subscription begins at the position of the ``startingOffsets`` option.
        """
        known = dict(stored) | self.known(frozenset(queue.partitions))
        missing = [tp for tp in queue.partitions if tp not in known]
        is_new = not known
        # If the subscription has other positions, a partition without one was added later: read it from the
        # beginning.
        known |= queue.starting_positions(missing) if is_new else self._topics.beginning_offsets(missing)
        return known

    def known(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the committed offsets of the group, from any member."""
        return self._topics.committed(self._group, partitions)

    def keep(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Commits positions and waits for the broker. Returns False if this query is not a group member."""
        if not self._membership.commit(positions):
            return False
        self._when, self._is_on_its_way = time.monotonic(), False
        self._committed |= positions
        return True

    def follow(
        self, positions: Mapping[TopicPartition, int], *, force: bool = False, wait: bool = False
    ) -> None:
        """Commits the positions of the batches for Kafka lag tools, at most once a second unless ``force``.

        With ``wait``, blocks until the broker has the commit, because the query may end right after.
        """
        moved = {tp: at for tp, at in positions.items() if self._committed.get(tp) != at}
        is_due = force or time.monotonic() - self._when > GROUP_COMMIT_S
        if wait and (moved or self._is_on_its_way):
            self.keep(positions)
        elif moved and is_due and self._membership.try_commit(moved):
            self._when, self._is_on_its_way = time.monotonic(), True
            self._committed |= moved
