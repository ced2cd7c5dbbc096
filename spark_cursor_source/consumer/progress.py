"""How far a subscription is, as its consumer group's offsets: for ordinary lag tools, and for a new start."""

from __future__ import annotations

import time
from collections.abc import Mapping

from spark_cursor_source.consumer.membership import GroupConfig, Membership
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.source import SourceOptions

GROUP_COMMIT_S = 1.0  #: how often the consumer group's offsets follow


def group_config(options: SourceOptions, topics: ClusterAdmin, query_id: str) -> Membership:
    """The part of a query in the group of its subscription; it joins when it is asked what is its."""
    part = GroupConfig(
        group=options.group,
        queue=repr(options.topics),
        type=options.subscription_type,
        session_ms=options.session_ms,
        query_id=query_id,
    )
    return Membership(client_config(options.kafka, "consumer"), topics, part)


class GroupProgress:
    """The offsets of the subscription's group, committed by a member of it."""

    def __init__(self, topics: ClusterAdmin, membership: Membership, group: str) -> None:
        self._topics = topics
        self._membership = membership
        self._group = group
        self._when = 0.0
        self._is_on_its_way = False  # what was last committed without waiting
        self._committed: dict[TopicPartition, int] = {}

    def beginning(
        self, queue: SourceTopics, stored: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Where a query without a checkpoint begins.

        From the group's offsets, which do not move before the first batch is complete; else from what is
        ``stored``; a new subscription from where the options say.
        """
        known = dict(stored) | self.known(frozenset(queue.partitions))
        missing = [tp for tp in queue.partitions if tp not in known]
        is_new = not known
        # A partition that a subscription with a past does not know was added since.
        known |= queue.starting_positions(missing) if is_new else self._topics.beginning_offsets(missing)
        return known

    def known(self, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's positions, whoever has committed them."""
        return self._topics.committed(self._group, partitions)

    def keep(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Commit positions; they are on the broker when this returns. False: by no member of the group."""
        if not self._membership.commit(positions):
            return False
        self._when, self._is_on_its_way = time.monotonic(), False
        self._committed |= positions
        return True

    def follow(
        self, positions: Mapping[TopicPartition, int], *, force: bool = False, wait: bool = False
    ) -> None:
        """Let ordinary Kafka lag tools see how far the batches are; unless forced, once a second at most.

        With ``wait`` they see it when this returns: the query may end right after.
        """
        moved = {tp: at for tp, at in positions.items() if self._committed.get(tp) != at}
        is_due = force or time.monotonic() - self._when > GROUP_COMMIT_S
        if wait and (moved or self._is_on_its_way):
            self.keep(positions)
        elif moved and is_due and self._membership.try_commit(moved):
            self._when, self._is_on_its_way = time.monotonic(), True
            self._committed |= moved
