"""The list of operators' actions: who did what, and when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from confluent_kafka import Message

from spark_cursor_source.admin.log_follower import positions_since, read_log
from spark_cursor_source.core.marker import UNDO, EndUpTo, Marker, Requeue, SaveState, Seek
from spark_cursor_source.core.names import DEFAULT_MARKERS_TOPIC
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.topics.authors import action_of
from spark_cursor_source.wire import marker as wire


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An action of an operator on a subscription of a topic."""

    at_ms: int  #: broker time of the action
    author: str  #: who acted, as this author said; the brokers do not check it
    action: str  #: what was done, in words
    subscription: str
    topic: str
    partitions: tuple[int, ...]
    positions: tuple[int, ...] = ()  #: of a seek or skip: the new position of each partition

    def to_json(self) -> str:
        """Returns the entry as a JSON object."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        where = f"{self.subscription} of {self.topic}, partitions {', '.join(map(str, self.partitions))}"
        return f"{self.author}: {self.action} ({where})"


def read_audit(
    kafka: Mapping[str, str],
    *,
    subscription: str | None = None,
    topic: str | None = None,
    since_ms: int | None = None,
    limit: int | None = 100,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
) -> tuple[AuditEntry, ...]:
    """Returns the operators' actions in the markers topic, the latest first.

    The list covers create, seek, skip, expire, delete, pause and resume of subscriptions, their snapshots,
    restores and clones, closed breakers, and redrives and deletions of dead letters. It reaches as far back
    as the retention of the markers topic, seven days by default. The call reads the markers since
    ``since_ms`` (broker time in ms since 1970; None: all). Markers of one action on several partitions are
    one entry. At most ``limit`` entries are returned; None: all.

    Example::

        from spark_cursor_source.admin import read_audit

        for entry in read_audit({"bootstrap.servers": "broker:9092"}, subscription="billing"):
            print(entry.at_ms, entry)

    Raises:
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    found = [
        (action_id, entry)
        for action_id, entry in _entries(kafka, markers_topic, since_ms)
        if subscription in (None, entry.subscription) and topic in (None, entry.topic)
    ]
    return tuple(reversed(_together(found)))[:limit]


def _entries(
    kafka: Mapping[str, str], markers_topic: str, since_ms: int | None
) -> Iterator[tuple[str, AuditEntry]]:
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    positions = positions_since(topics, topics.partitions_of(markers_topic), since_ms)
    yield from filter(None, map(_entry, read_log(kafka, topics, markers_topic, positions)))


def _entry(message: Message) -> tuple[str, AuditEntry] | None:
    action = action_of(message)
    if action is None:
        return None
    try:
        marker = wire.decode(message.key(), message.value())
    except InvalidMarker:
        return None
    if isinstance(marker, wire.MarkerV1):
        return None
    if isinstance(marker, SaveState) and marker.name == UNDO:
        return None  # a part of the action that can be undone, whose marker follows
    entry = AuditEntry(
        at_ms=message.timestamp()[1],
        author=action.author,
        action=action.what,
        subscription=marker.cell.subscription,
        topic=marker.cell.topic,
        partitions=(marker.cell.partition,),
        positions=_positions(marker),
    )
    return action.id, entry


def _positions(marker: Marker) -> tuple[int, ...]:
    match marker:
        case Seek(position=position) | EndUpTo(position=position) if position or isinstance(marker, Seek):
            return (position,)
        case Requeue(offsets=offsets) if offsets.first is not None:
            return (offsets.first,)
        case _:
            return ()


def _together(found: Iterable[tuple[str, AuditEntry]]) -> list[AuditEntry]:
    """Merges the entries of one action on several partitions, in the order of their first markers."""
    merged: dict[tuple[str, str, str], AuditEntry] = {}
    for action_id, entry in sorted(found, key=lambda one: (one[1].at_ms, one[1].partitions)):
        key = (action_id, entry.subscription, entry.topic)
        known = merged.setdefault(key, entry)
        if entry.partitions[0] not in known.partitions:
            merged[key] = replace(
                known,
                partitions=known.partitions + entry.partitions,
                positions=known.positions + entry.positions,
            )
    return list(merged.values())
