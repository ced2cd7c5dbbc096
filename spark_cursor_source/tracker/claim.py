"""Change of owner between the two kinds of trackers: one Spark query, or replicas that share the partitions.

A Spark query fences by the group's transactional id, and a replica by an id for each partition. The new owner
therefore writes its query id to every partition first, and both kinds stop when they read an id of the other
kind. A tracker that opens its producer later than that reads the new owner. One that opened it earlier is
fenced, because the new owner also opens all ids of the other kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import TopicPartition

from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.transaction import TransactionalProducer, Uncertain, end_transactions
from spark_cursor_source.topics.tracker_progress import (
    TrackerProgress,
    is_replica,
    metadata,
    read_progress,
    replica_transactional_id,
    tracker_group,
)

_AT_ONCE = 8  # producers that are opened at the same time


def claim_partitions(
    config: Mapping[str, Any],
    topics: ClusterAdmin,
    markers_topic: str,
    query_id: str,
    *,
    check: Callable[[TrackerProgress], None],
    member: Callable[[], Any] | None = None,
) -> set[int]:
    """Makes ``query_id`` the owner of all markers partitions that trackers of the other kind own.

    Returns the partitions that were claimed.

    Opens the group's transactional id, so a Spark query that runs is fenced. ``check`` gets the progress that
    was committed by then and may raise. The claim is part of a transaction of the same id, so it fails if
    another tracker claims at the same time.

    Raises:
        TrackerFenced: another tracker claims the partitions too.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    deadline = Deadline.after_ms(PATIENCE_MS)
    producer = TransactionalProducer(config, tracker_group(markers_topic), member=member)
    try:
        while True:
            try:
                producer.open(deadline)
                progress = read_progress(topics, markers_topic)
                check(progress)
                claims = _claims(topics, markers_topic, query_id, progress)
                producer.commit((), claims, deadline)
                return {one.partition for one in claims}
            except Uncertain as failed:
                producer.wait(failed, deadline)
    finally:
        producer.discard()


def fence_replicas(
    config: Mapping[str, Any],
    markers_topic: str,
    partitions: Iterable[int],
    *,
    member: Callable[[], Any] | None = None,
) -> None:
    """Fences the replicas that own these partitions or have owned them, and aborts their transactions.

    Raises:
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    deadline, group = Deadline.after_ms(PATIENCE_MS), tracker_group(markers_topic)

    def fence(partition: int) -> None:
        own = replica_transactional_id(markers_topic, partition)
        end_transactions(config, group, deadline, transactional_id=own, member=member)

    with ThreadPoolExecutor(_AT_ONCE, "cursorq-fence") as pool:
        list(pool.map(fence, partitions))


def _claims(
    topics: ClusterAdmin, markers_topic: str, query_id: str, progress: TrackerProgress
) -> list[TopicPartition]:
    count = topics.describe([markers_topic])[markers_topic].partitions
    # Batch -1: the claim does not count as a batch of this query.
    text = metadata(query_id, -1, progress.partitions or count)
    return [
        TopicPartition(markers_topic, number, progress.next_markers.get(number, 0), text)
        for number in range(count)
        if not (is_replica(query_id) and is_replica(progress.owners.get(number)))
    ]
