"""The messages that hold a queue up, with the error of their last delivery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_cursor_source.admin.last_errors import LastErrors, cell_of
from spark_cursor_source.admin.outstanding import (
    check_limit,
    first_outstanding,
    read_cursors,
    with_hosts,
)
from spark_cursor_source.admin.stats import newest_ms
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.message_state import MessageState
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """Outstanding messages that need a look. ``reason`` is the error of the last failed delivery."""

    oldest: tuple[MessageState, ...]
    most_delivered: tuple[MessageState, ...]  #: those that were delivered more than once
    at_ms: int | None  #: the latest time that the brokers have told; None: no message is outstanding

    def to_json(self) -> dict[str, Any]:
        """Returns both lists and the time, for ``json.dumps``."""
        return {
            "at_ms": self.at_ms,
            "oldest": [one.to_json() for one in self.oldest],
            "most_delivered": [one.to_json() for one in self.most_delivered],
        }


def read_stuck(
    kafka: Mapping[str, str],
    *,
    topic: str | None = None,
    subscription: str | None = None,
    limit: int = 10,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX,
) -> Stuck:
    """Returns the oldest and the most delivered outstanding messages, each list of at most ``limit``.

    Reasons come from the last 100,000 markers of each partition of the markers topic. ``at_ms`` is the time
    of the last marker or of the newest message, by the brokers' clock. Nothing is changed.
    ``kafka`` contains options of the Kafka clients.

    Example::

        from spark_cursor_source.admin import read_stuck

        for one in read_stuck({"bootstrap.servers": "broker:9092"}, limit=3).most_delivered:
            print(one.topic, one.partition, one.offset, one.delivery_count, one.reason)

    Raises:
        InvalidArgument: the limit is below 1.
        UnknownSubscription, UnknownQueueTopic: the tracker has no cursor of that name.
        TopicNotFound: the cursors topic or the markers topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    check_limit(limit)
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    cursors = read_cursors(kafka, cursors_topic, topic=topic, subscription=subscription).values()
    found = first_outstanding(cursors, "oldest", limit)
    many = [one for one in first_outstanding(cursors, "most_delivered", limit) if one.delivery_count > 1]
    hosted = with_hosts((*found, *many), topics, group_id_prefix)
    oldest, most = hosted[: len(found)], hosted[len(found) :]
    wanted: dict[Cell, OffsetSet] = {}
    for one in hosted:
        cell = cell_of(one)
        wanted[cell] = wanted.get(cell, EMPTY) | OffsetSet.of((one.offset, one.offset + 1))
    errors = LastErrors(kafka, topics, markers_topic)
    errors.read(hosted, wanted)
    return Stuck(
        oldest=errors.tell(oldest),
        most_delivered=errors.tell(most),
        at_ms=_latest_ms(topics, markers_topic, oldest),
    )


def _latest_ms(topics: ClusterAdmin, markers_topic: str, messages: Iterable[MessageState]) -> int | None:
    partitions = {(one.topic, one.partition) for one in messages}
    if not partitions:
        return None
    newest = newest_ms(topics, partitions, markers_topic)
    return max((newest(topic) or 0 for topic, _ in partitions), default=0) or None
