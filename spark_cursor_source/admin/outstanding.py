"""The outstanding messages that an operator looks for: the oldest, and the most delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace

from spark_cursor_source.consumer.named_members import named_members
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.message_state import MessageState, Order, outstanding_of, rank
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX, group_id
from spark_cursor_source.errors import InvalidArgument, NotAuthorized
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.topics.cursors import CursorTable


def read_outstanding(
    kafka: Mapping[str, str],
    *,
    topic: str | None = None,
    subscription: str | None = None,
    order: Order = "oldest",
    limit: int = 50,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX,
) -> tuple[MessageState, ...]:
    """Returns the first ``limit`` messages that were delivered and are not settled.

    ``order`` is ``oldest`` (by the time of the first delivery) or ``most_delivered``. The call reads the
    cursors and the members of the groups, but no message and no marker, and changes nothing. ``kafka``
    contains options of the Kafka clients.

    Example::

        from spark_cursor_source.admin import read_outstanding

        for one in read_outstanding({"bootstrap.servers": "broker:9092"}, order="most_delivered", limit=5):
            print(one.topic, one.partition, one.offset, one.state, one.delivery_count, one.host)

    Raises:
        InvalidArgument: the limit is below 1.
        UnknownSubscription, UnknownQueueTopic: the tracker has no cursor of that name.
        TopicNotFound: the cursors topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    check_limit(limit)
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    cursors = read_cursors(kafka, cursors_topic, topic=topic, subscription=subscription)
    return with_hosts(first_outstanding(cursors.values(), order, limit), topics, group_id_prefix)


def check_limit(limit: int) -> None:
    """Checks the length of a list.

    Raises:
        InvalidArgument: it is below 1.
    """
    if limit < 1:
        raise InvalidArgument("limit", limit, "give at least 1")


def first_outstanding(cursors: Iterable[CursorSnapshot], order: Order, limit: int) -> list[MessageState]:
    """Returns the first ``limit`` outstanding messages of all cursors, without the hosts of their runs."""
    found = [one for cursor in cursors for one in outstanding_of(cursor, order, limit)]
    return sorted(found, key=lambda one: rank(one, order))[:limit]


def read_cursors(
    kafka: Mapping[str, str], cursors_topic: str, *, topic: str | None, subscription: str | None
) -> dict[Cell, CursorSnapshot]:
    """Returns the cursors of a subscription, of a topic, of both, or all.

    Raises:
        UnknownSubscription, UnknownQueueTopic: a given name has no cursor.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    with closing(CursorTable(client_config(kafka, "consumer"), cursors_topic)) as table:
        return table.present(subscription=subscription, topic=topic)


def with_hosts(
    messages: Iterable[MessageState], topics: ClusterAdmin, group_id_prefix: str
) -> tuple[MessageState, ...]:
    """Returns the messages with the hosts of the runs that are members of their groups now."""
    messages = tuple(messages)
    hosts: dict[str, str] = {}
    for name in {one.subscription for one in messages if one.run is not None}:
        partitions = {(one.topic, one.partition) for one in messages if one.subscription == name}
        hosts |= hosts_of_runs(topics, group_id(group_id_prefix, name), partitions)
    return tuple(
        one if one.run is None else replace(one, host=hosts.get(run_of_query(one.run))) for one in messages
    )


def hosts_of_runs(topics: ClusterAdmin, group: str, partitions: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Returns the hosts of the members of a group by the id of their query; empty without rights."""
    try:
        members = named_members(topics, group, partitions)
    except NotAuthorized:
        return {}
    return {one.name.query_id: one.name.host for one in members if one.name is not None}


def run_of_query(run: str) -> str:
    """Returns the id of the query of a run. A query that acquires a cell again uses its id with a suffix."""
    return run.partition(".")[0]
