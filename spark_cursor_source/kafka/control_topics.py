"""Creation and checks of the control topics. A topic whose settings would break a guarantee is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, TopicCollection, TopicPartition

from spark_cursor_source.core.durability import COPIES, settings_for
from spark_cursor_source.core.names import why_no_topic
from spark_cursor_source.errors import (
    CursorqError,
    CursorsTopicNotCompacted,
    KafkaUnavailable,
    MarkersTopicNotLogAppendTime,
    RescueTopicNotCompacted,
    StreamsTopicUnfit,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin_requests import ADMIN_TYPES, AdminRequests
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import UNAUTHORIZED, refusal

DEFAULT_PARTITIONS = 8
#: maximum size of a record batch in a control topic; this library's records stay below a megabyte
MAX_RECORD_BYTES = 8 << 20

_DAY_MS = 86_400_000
_POLL_S = 0.02

#: the error about a topic, the value that was found, and the ``bootstrap.servers``
Refusal = Callable[[str, str, str], CursorqError]


@dataclass(frozen=True, slots=True)
class TopicKind:
    """Settings with which topics of a kind are created, and the error for each that every topic must have."""

    settings: Mapping[str, object]
    needed: Mapping[str, Refusal] = field(default_factory=dict)


def _streams_unfit(setting: str, wanted: str) -> Refusal:
    return lambda topic, found, servers: StreamsTopicUnfit(topic, setting, found, wanted, servers)


# A reader starts with a read of the whole topic. Small segments are closed early, and only closed segments
# are compacted. "compact,delete" also compacts, but then deletes the cursors of idle subscriptions.
_COMPACTED: Mapping[str, object] = {
    "cleanup.policy": "compact",
    "delete.retention.ms": _DAY_MS,
    "max.compaction.lag.ms": 600_000,
    "max.message.bytes": MAX_RECORD_BYTES,
    "min.cleanable.dirty.ratio": 0.1,
    "segment.bytes": 16 << 20,
    "segment.ms": 600_000,
}
MARKERS = TopicKind(
    {
        "cleanup.policy": "delete",
        "max.message.bytes": MAX_RECORD_BYTES,
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": 7 * _DAY_MS,
    },
    {"message.timestamp.type": MarkersTopicNotLogAppendTime},
)
REDELIVERIES = TopicKind(
    {"cleanup.policy": "delete", "max.message.bytes": MAX_RECORD_BYTES, "retention.ms": 7 * _DAY_MS}
)
CURSORS = TopicKind(_COMPACTED, {"cleanup.policy": CursorsTopicNotCompacted})
# A record holds a whole message of a queue topic, whatever the limit of that topic is.
RESCUE = TopicKind(
    {**_COMPACTED, "max.message.bytes": 100 << 20, "segment.bytes": 64 << 20},
    {"cleanup.policy": RescueTopicNotCompacted},
)
# One partition, so that changes are read in the order in which they were made, across all streams.
STREAMS = TopicKind(
    {**_COMPACTED, "message.timestamp.type": "LogAppendTime"},
    {
        "cleanup.policy": _streams_unfit("cleanup.policy", "compact"),
        "message.timestamp.type": _streams_unfit("message.timestamp.type", "LogAppendTime"),
    },
)

#: another client creates the same topic, or has created it
_THERE = frozenset({KafkaError.TOPIC_ALREADY_EXISTS})
_TOO_FEW_BROKERS = frozenset({KafkaError.INVALID_REPLICATION_FACTOR})
_DESCRIBE = "describe topic"
# A marker of another program can contain an invalid topic name.
_NOT_THERE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})


def ensure_topics(
    calls: AdminRequests, kinds: Mapping[str, TopicKind], *, partitions: int, deadline: Deadline
) -> dict[str, int]:
    """Create missing topics, wait until all can be used, check their settings, and return partition counts.

    Raises:
        ControlTopicUnfit: an existing topic has unsuitable settings.
        NotAuthorized, KafkaRefused, KafkaUnavailable
    """
    found, _ = describe_topics(calls, list(kinds), deadline=deadline)
    missing = {name: (partitions, kind.settings) for name, kind in kinds.items() if name not in found}
    create_topics(calls, missing, deadline=deadline)
    counts = await_leaders(calls, list(kinds), deadline=deadline)
    checked = {name: kind for name, kind in kinds.items() if kind.needed}
    settings = topic_settings(calls, list(checked), deadline=deadline)
    for name, kind in checked.items():
        for setting, refusal_of in kind.needed.items():
            value = str(settings[name].get(setting))
            if value != kind.settings[setting]:
                raise refusal_of(name, value, calls.servers)
    return counts


def create_topics(
    calls: AdminRequests,
    topics: Mapping[str, tuple[int, Mapping[str, object]]],
    *,
    replication: int | None = None,
    deadline: Deadline,
) -> dict[str, int]:
    """Create the topics ``{name: (partitions, settings)}``.

    Without ``replication`` a topic has three replicas and ``min.insync.replicas`` of two, or fewer on a
    cluster with fewer brokers. ``settings`` may override ``min.insync.replicas``.

    Returns the names of topics that already existed, with the number of requests for each. Existing topics
    are not changed. If the number is above one, an earlier request may have created the topic and its
    response was lost.
    """
    asked: Counter[str] = Counter()
    there: set[str] = set()
    wanted = list(topics)
    for copies in [replication] if replication is not None else range(COPIES, 0, -1):
        ours = settings_for(copies) if replication is None else {}

        def request(
            names: Sequence[str], timeout_s: float, copies: int = copies, ours: Mapping[str, object] = ours
        ) -> Mapping[str, Future[Any]]:
            asked.update(names)
            new = [
                ADMIN_TYPES.NewTopic(
                    name,
                    num_partitions=topics[name][0],
                    replication_factor=copies,
                    config={key: str(value) for key, value in {**ours, **topics[name][1]}.items()},
                )
                for name in names
            ]
            made = calls.client.create_topics(new, request_timeout=timeout_s, operation_timeout=timeout_s)
            return {name: made[name] for name in names}

        tolerated = _THERE | (_TOO_FEW_BROKERS if replication is None and copies > 1 else frozenset())
        _, refused = calls.ask("create topic", wanted, request, deadline=deadline, tolerated=tolerated)
        wanted = [name for name, why in refused.items() if why.code() in _TOO_FEW_BROKERS]
        there |= refused.keys() - set(wanted)
        for name in wanted:
            del asked[name]  # the topic was not created
        if not wanted:
            break
    return {name: asked[name] for name in there}


def delete_topics(calls: AdminRequests, topics: Sequence[str], *, deadline: Deadline) -> dict[str, int]:
    """Delete the topics. Return the names of missing topics with the number of requests for each.

    If the number is above one, an earlier request may have deleted the topic and its response was lost.
    """
    asked: Counter[str] = Counter()

    def request(names: Sequence[str], timeout_s: float) -> Mapping[str, Future[Any]]:
        asked.update(names)
        gone = calls.client.delete_topics(list(names), request_timeout=timeout_s, operation_timeout=timeout_s)
        return {name: gone[name] for name in names}

    _, missing = calls.ask("delete topic", topics, request, deadline=deadline, tolerated=_NOT_THERE)
    return {name: asked[name] for name in missing}


def delete_records(
    calls: AdminRequests, positions: Mapping[tuple[str, int], int], *, deadline: Deadline
) -> None:
    """Delete the records below ``{(topic, partition): offset}``. Missing topics are skipped.

    Raises:
        NotAuthorized, KafkaRefused, KafkaUnavailable
    """

    def request(items: Sequence[tuple[str, int]], timeout_s: float) -> Mapping[Any, Future[Any]]:
        below = [TopicPartition(*item, positions[item]) for item in items]
        gone = calls.client.delete_records(below, request_timeout=timeout_s, operation_timeout=timeout_s)
        by_place = {(key.topic, key.partition): future for key, future in gone.items()}
        return {item: by_place[item] for item in items}

    calls.ask("delete records", list(positions), request, deadline=deadline, tolerated=_NOT_THERE)


def describe_topics(
    calls: AdminRequests, topics: Sequence[str], *, deadline: Deadline
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return librdkafka's description of each existing topic, and the names of missing topics.

    A name that Kafka would reject is missing. librdkafka raises a ValueError for some of them.
    """
    found, refused = _describe(calls, topics, _NOT_THERE, deadline)
    return found, tuple(sorted({*refused, *topics} - found.keys()))


def leaders_of(
    calls: AdminRequests, topics: Sequence[str], *, deadline: Deadline
) -> tuple[dict[tuple[str, int], int | None], dict[str, CursorqError]]:
    """Return the leader of each existing partition as broker id, None without one.

    The second result has the errors of the topics that may not be described, and that may not exist.
    """
    found, refused = _describe(calls, topics, _NOT_THERE | UNAUTHORIZED, deadline)
    leaders = {
        (name, part.id): leader_of(part) for name, described in found.items() for part in described.partitions
    }
    denied = {name: error for name, error in refused.items() if error.code() in UNAUTHORIZED}
    return leaders, {
        name: refusal(error, operation=_DESCRIBE, resource=name) for name, error in denied.items()
    }


def known_ids(calls: AdminRequests, topics: Sequence[str], *, deadline: Deadline) -> dict[str, str]:
    """Return the id of each topic that exists and may be described."""
    found, _ = _describe(calls, topics, _NOT_THERE | UNAUTHORIZED, deadline)
    return {name: str(described.topic_id) for name, described in found.items()}


def _describe(
    calls: AdminRequests, topics: Sequence[str], tolerated: frozenset[int], deadline: Deadline
) -> tuple[dict[str, Any], dict[str, KafkaError]]:
    possible = [name for name in topics if why_no_topic(name) is None]

    def request(names: Sequence[str], timeout_s: float) -> Mapping[str, Future[Any]]:
        described = calls.client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        return {name: described[name] for name in names}

    return calls.ask(_DESCRIBE, possible, request, deadline=deadline, tolerated=tolerated)


def await_leaders(calls: AdminRequests, topics: Sequence[str], *, deadline: Deadline) -> dict[str, int]:
    """Wait until each partition has a leader. Return the partition count of each topic."""
    while True:
        found, missing = describe_topics(calls, topics, deadline=deadline)
        leaderless = [
            name
            for name, description in found.items()
            if not description.partitions or any(leader_of(part) is None for part in description.partitions)
        ]
        if not missing and not leaderless:
            return {name: len(description.partitions) for name, description in found.items()}
        if deadline.over and missing:
            raise TopicNotFound(missing)
        if deadline.over:
            raise KafkaUnavailable(
                "wait for leaders", deadline.spent_ms, f"no leader in {', '.join(leaderless)}"
            )
        deadline.pause(_POLL_S)


def await_deletion(calls: AdminRequests, topic: str, topic_id: str, *, deadline: Deadline) -> None:
    """Wait until a broker no longer shows a deleted topic, or until the deadline.

    A broker shows a topic for a moment after the controller has deleted it. The topic is also deleted if no
    broker answers.
    """
    with suppress(KafkaUnavailable):
        while not deadline.over:
            found, _ = describe_topics(calls, [topic], deadline=deadline)
            if topic not in found or str(found[topic].topic_id) != topic_id:
                return
            deadline.pause(_POLL_S)


def leader_of(partition: Any) -> int | None:
    """Return the leader in librdkafka's description of a partition as broker id, or None without one."""
    return None if partition.leader is None or partition.leader.id < 0 else int(partition.leader.id)


def topic_settings(
    calls: AdminRequests, topics: Sequence[str], *, deadline: Deadline
) -> dict[str, dict[str, str | None]]:
    """Return the effective configuration of each topic."""
    return _settings(calls, "TOPIC", topics, deadline=deadline)


def broker_settings(
    calls: AdminRequests, brokers: Sequence[int], *, deadline: Deadline
) -> dict[int, dict[str, str | None]]:
    """Return the effective configuration of each broker."""
    found: dict[int, dict[str, str | None]] = {}
    for number in brokers:  # a request may name one broker only
        found[number] = _settings(calls, "BROKER", [str(number)], deadline=deadline)[str(number)]
    return found


def _settings(
    calls: AdminRequests, kind: str, names: Sequence[str], *, deadline: Deadline
) -> dict[str, dict[str, str | None]]:
    def request(names: Sequence[str], timeout_s: float) -> Mapping[Any, Future[Any]]:
        of = ADMIN_TYPES.ResourceType[kind]
        resources = [ADMIN_TYPES.ConfigResource(of, name) for name in names]
        asked = calls.client.describe_configs(resources, request_timeout=timeout_s)
        return {resource.name: asked[resource] for resource in resources}

    found, _ = calls.ask(f"describe configs of {kind.lower()}", list(names), request, deadline=deadline)
    return {name: {key: entry.value for key, entry in entries.items()} for name, entries in found.items()}
