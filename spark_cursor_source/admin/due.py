"""Messages that are ready for delivery, and when the next ones will be. For schedulers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from spark_cursor_source.admin.outstanding import read_cursors
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config


@dataclass(frozen=True, slots=True, kw_only=True)
class DueMessages:
    """Messages of one subscription of one topic that could be delivered. Times are broker times in ms."""

    topic: str
    subscription: str
    unread: int  #: never leased; offsets without a message and messages that are not due yet count too
    available: int  #: wait for a redelivery now
    delayed: int  #: wait for a later redelivery
    blocked: int  #: wait behind an earlier message of their key
    leased: int  #: with a consumer
    next_due_ms: int | None  #: when the first delayed message becomes available; None: none is delayed
    next_deadline_ms: int | None  #: when the first lease ends unless it is extended; None: none is leased
    paused: bool  #: an operator has paused the subscription in all its partitions, so nothing is ready
    ready: int  #: unread and available in partitions that are not paused: a consumer would receive them now

    def to_json(self) -> str:
        """Returns the counts as a JSON object."""
        return json.dumps(asdict(self))


def read_due(
    kafka: Mapping[str, str],
    *,
    subscription: str | None = None,
    topic: str | None = None,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> tuple[DueMessages, ...]:
    """Returns what is ready in each subscription, and when the next messages will be, by topic and name.

    A scheduler starts a consumer (``Trigger.AvailableNow``) if something is ready, and looks again at
    ``next_due_ms``. The call changes nothing. Delayed messages are known once a consumer has met them. A
    partition whose end cannot be read, for example without a leader, counts as read up to its end.

    Example::

        from spark_cursor_source.admin import read_due

        for due in read_due({"bootstrap.servers": "broker:9092"}, subscription="billing"):
            print(due.topic, due.ready, due.next_due_ms)

    Raises:
        UnknownSubscription, UnknownQueueTopic: the tracker has no cursor of that name.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    cursors = read_cursors(kafka, cursors_topic, topic=topic, subscription=subscription)
    ends, _ = topics.known_ends([cell.topic_partition for cell in cursors], committed=True)
    groups: dict[tuple[str, str], list[tuple[CursorSnapshot, int]]] = {}
    for cell, cursor in cursors.items():
        end = ends.get(cell.topic_partition, cursor.read_position)
        groups.setdefault(_name(cell), []).append((cursor, end))
    return tuple(_due(*name, groups[name]) for name in sorted(groups))


def _name(cell: Cell) -> tuple[str, str]:
    return cell.topic, cell.subscription


def _due(topic: str, subscription: str, parts: list[tuple[CursorSnapshot, int]]) -> DueMessages:
    cursors = [cursor for cursor, _ in parts]
    counts = [
        (cursor, max(0, end - cursor.read_position), sum(len(offsets) for _, offsets in cursor.available))
        for cursor, end in parts
    ]
    delays = [delay for cursor in cursors for delay, _ in cursor.delayed]
    leases = [lease for cursor in cursors for lease, _ in cursor.leases]
    return DueMessages(
        topic=topic,
        subscription=subscription,
        unread=sum(unread for _, unread, _ in counts),
        available=sum(available for _, _, available in counts),
        delayed=sum(len(offsets) for cursor in cursors for _, offsets in cursor.delayed),
        blocked=sum(len(cursor.blocked.offsets) for cursor in cursors),
        leased=sum(len(cursor.leased) for cursor in cursors),
        next_due_ms=min((delay.due_ms for delay in delays), default=None),
        next_deadline_ms=min((lease.deadline_ms for lease in leases), default=None),
        paused=all(cursor.paused_ms is not None for cursor in cursors),
        # A partition that was added after the pause is not paused.
        ready=sum(unread + available for cursor, unread, available in counts if cursor.paused_ms is None),
    )
