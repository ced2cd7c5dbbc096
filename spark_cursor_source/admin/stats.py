"""Snapshot of subscriptions: cursors, log ends and consumer group members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import replace

from spark_cursor_source.admin.oldest import ONE_MESSAGE, OldestReader
from spark_cursor_source.consumer.named_members import NamedMember, named_members
from spark_cursor_source.consumer.tracker_watch import unread_markers
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
)
from spark_cursor_source.core.stats import ConsumerStats, PartitionStats, Stats, SubscriptionStats
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX, group_id
from spark_cursor_source.errors import NotAuthorized
from spark_cursor_source.interop.lease_tables import reappend_troubles
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.wire import cursor as cursor_wire


def read_stats(
    kafka: Mapping[str, str],
    *,
    subscription: str | None = None,
    topic: str | None = None,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX,
) -> Stats:
    """Returns the state of every subscription, of one, or of those of a topic.

    The call changes no state. A subscription without active readers has no consumers. ``kafka`` contains
    options of the Kafka clients.

    Raises:
        UnknownSubscription, UnknownQueueTopic: the tracker has no cursor of that name.
        TopicNotFound: the cursors topic or the markers topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    ClusterAdmin(client_config(kafka, "admin")).meet()
    with closing(CursorTable(client_config(kafka, "consumer"), cursors_topic)) as tail:
        cursors = tail.present(subscription=subscription, topic=topic)
        troubles = reappend_troubles(tail, markers_topic)
    stats = stats_of(
        cursors,
        kafka,
        markers_topic=markers_topic,
        group_id_prefix=group_id_prefix,
        control_topics=(markers_topic, redeliveries_topic, cursors_topic),
    )
    return replace(stats, reappend_troubles=troubles)


def stats_of(
    cursors: Mapping[Cell, CursorSnapshot],
    kafka: Mapping[str, str],
    *,
    markers_topic: str,
    group_id_prefix: str,
    committed: bool = True,
    control_topics: Iterable[str] = (),
) -> Stats:
    """Returns the state of the subscriptions of these cursors.

    If ``committed`` is False, messages of open transactions are counted too. The result lists those of the
    ``control_topics`` that have too few replicas.
    """
    topics = ClusterAdmin(client_config(kafka, "admin"))
    partitions = [cell.topic_partition for cell in cursors]
    ends, unknown = topics.known_ends(partitions, committed=committed)
    ids = topics.known_ids(topic for topic, _ in ends)
    parts: dict[tuple[str, str], list[PartitionStats]] = {}
    isolation = "read_committed" if committed else "read_uncommitted"
    config = ONE_MESSAGE | client_config(kafka, "consumer") | {"isolation.level": isolation}
    oldest = OldestReader()
    with borrowed_consumer(config) as consumer:
        for cell, cursor in sorted(cursors.items()):
            place = cell.topic_partition
            # In a topic that was created again, the offsets of the cursor name other messages.
            end = None if cursor.is_of_another(ids.get(cell.topic)) else ends.get(place)
            first = None if end is None else oldest.read(consumer, cursor, end)
            part = PartitionStats.of(
                cursor,
                log_end=end,
                oldest_ms=None if first is None else first.at_ms,
                cursor_bytes=len(cursor_wire.encode(cursor)),
                end_trouble=unknown.get(place),
                oldest_trouble=oldest.trouble(cell),
            )
            parts.setdefault((cell.topic, cell.subscription), []).append(part)
    latest_ms = newest_ms(topics, ends, markers_topic)
    members = {name: _members(topics, name, parts, group_id_prefix) for _, name in parts}
    return Stats(
        weak_topics=topics.weak(control_topics),
        markers_unread=_markers_unread(topics, markers_topic),
        subscriptions=tuple(
            SubscriptionStats(
                topic=topic,
                subscription=name,
                partitions=tuple(own),
                consumers=consumers_of(members[name], topic, own),
                newest_ms=latest_ms(topic),
            )
            for (topic, name), own in sorted(parts.items())
        ),
    )


def _markers_unread(topics: ClusterAdmin, markers_topic: str) -> int | None:
    try:
        return unread_markers(topics, markers_topic)[0]
    except NotAuthorized:
        return None


def _members(
    topics: ClusterAdmin,
    subscription: str,
    parts: Mapping[tuple[str, str], Iterable[PartitionStats]],
    prefix: str,
) -> list[NamedMember]:
    partitions = [
        part.cell.topic_partition for (_, name), own in parts.items() if name == subscription for part in own
    ]
    return named_members(topics, group_id(prefix, subscription), partitions)


def newest_ms(
    topics: ClusterAdmin, partitions: Collection[Partition], markers_topic: str
) -> Callable[[str], int | None]:
    """Returns a function for the latest known time of a topic: of the last marker, or of its newest message.

    Without a running query no markers are written, so message timestamps count too. Without new messages,
    messages do not age.
    """
    newest = topics.newest_ms(topics.partitions_of(markers_topic))
    newest |= topics.newest_ms(partitions, known_only=True)
    return lambda topic: max(newest.get(markers_topic, 0), newest.get(topic, 0)) or None


def consumers_of(
    members: Iterable[NamedMember], topic: str, parts: Iterable[PartitionStats]
) -> tuple[ConsumerStats, ...]:
    """Returns the members that read a topic or have no partition yet, with the times of their markers."""
    known = {part.cell.partition: part for part in parts}
    found = []
    for member in members:
        name, info = member.name, member.info
        own = tuple(sorted(number for of, number in info.partitions if of == topic))
        if info.partitions and not own:
            continue  # skips members that read other topics; a member without partitions is a standby
        seen = [
            part.owner_seen_ms
            for part in (known[number] for number in own if number in known)
            if name is not None and _is_run_of(part.owner, name.query_id)
        ]
        found.append(
            ConsumerStats(
                client_id=info.client_id if name is None else str(name),
                query_id=None if name is None else name.query_id,
                type=None if name is None else name.type.value,
                host=info.host if name is None else name.host,
                since=None if name is None else name.since,
                partitions=own,
                last_seen_ms=max((at for at in seen if at is not None), default=None),
            )
        )
    return tuple(found)


def _is_run_of(owner: str | None, query_id: str) -> bool:
    # A query that acquires a cell again uses its run id with a suffix.
    return owner is not None and owner.partition(".")[0] == query_id
