"""Creation and checks of the control topics. A topic whose settings would break a guarantee is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
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

MARKERS_SETTINGS: Mapping[str, object] = {
    "cleanup.policy": "delete",
    "max.message.bytes": MAX_RECORD_BYTES,
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": 7 * _DAY_MS,
}
_REDELIVERIES: Mapping[str, object] = {
    "cleanup.policy": "delete",
    "max.message.bytes": MAX_RECORD_BYTES,
    "retention.ms": 7 * _DAY_MS,
}
# A reader starts with a read of the whole topic. Small segments are closed early, and only closed segments
# are compacted.
_CURSORS: Mapping[str, object] = {
    "cleanup.policy": "compact",
    "delete.retention.ms": _DAY_MS,
    "max.compaction.lag.ms": 600_000,
    "max.message.bytes": MAX_RECORD_BYTES,
    "min.cleanable.dirty.ratio": 0.1,
    "segment.bytes": 16 << 20,
    "segment.ms": 600_000,
}
# A record holds a whole message of a queue topic, whatever the limit of that topic is.
_RESCUE: Mapping[str, object] = {**_CURSORS, "max.message.bytes": 100 << 20, "segment.bytes": 64 << 20}
# One partition, so that changes are read in the order in which they were made, across all streams.
_STREAMS: Mapping[str, object] = {**_CURSORS, "message.timestamp.type": "LogAppendTime"}
_STREAMS_WANTED = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}

#: another client creates the same topic, or has created it
_THERE = frozenset({KafkaError.TOPIC_ALREADY_EXISTS})
_TOO_FEW_BROKERS = frozenset({KafkaError.INVALID_REPLICATION_FACTOR})
_DESCRIBE = "describe topic"
# A marker of another program can contain an invalid topic name.
_NOT_THERE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})


def control_settings(
    *, markers: str, redeliveries: str, cursors: str, streams: str
) -> dict[str, Mapping[str, object]]:
    """Return the settings with which each control topic is created, by its name."""
    return {markers: MARKERS_SETTINGS, redeliveries: _REDELIVERIES, cursors: _CURSORS, streams: _STREAMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTopics:
    """Partition count of each control topic."""

    markers: int
    redeliveries: int
    cursors: int


def ensure_control_topics(
    calls: AdminRequests,
    *,
    markers: str,
    redeliveries: str,
    cursors: str,
    partitions: int = DEFAULT_PARTITIONS,
    deadline: Deadline,
) -> ControlTopics:
    """Create missing control topics, check existing ones and wait until all can be used.

    Raises:
        MarkersTopicNotLogAppendTime, CursorsTopicNotCompacted: an existing topic has unsuitable settings.
        NotAuthorized, KafkaRefused, KafkaUnavailable
    """
    wanted = {markers: MARKERS_SETTINGS, redeliveries: _REDELIVERIES, cursors: _CURSORS}
    counts = _ensure(calls, wanted, partitions, deadline)
    settings = topic_settings(calls, [markers, cursors], deadline=deadline)
    _check_markers(markers, settings[markers], calls.servers)
    _check_cursors(cursors, settings[cursors], calls.servers)
    return ControlTopics(markers=counts[markers], redeliveries=counts[redeliveries], cursors=counts[cursors])


def ensure_markers_topic(
    calls: AdminRequests, markers: str, *, partitions: int = DEFAULT_PARTITIONS, deadline: Deadline
) -> int:
    """Create or check a markers topic and return its partition count.

    Raises:
        MarkersTopicNotLogAppendTime, NotAuthorized, KafkaRefused, KafkaUnavailable
    """
    counts = _ensure(calls, {markers: MARKERS_SETTINGS}, partitions, deadline)
    _check_markers(markers, topic_settings(calls, [markers], deadline=deadline)[markers], calls.servers)
    return counts[markers]


def ensure_cursors_topic(
    calls: AdminRequests, cursors: str, *, partitions: int = DEFAULT_PARTITIONS, deadline: Deadline
) -> int:
    """Create or check a cursors topic and return its partition count.

    Raises:
        CursorsTopicNotCompacted, NotAuthorized, KafkaRefused, KafkaUnavailable
    """
    counts = _ensure(calls, {cursors: _CURSORS}, partitions, deadline)
    _check_cursors(cursors, topic_settings(calls, [cursors], deadline=deadline)[cursors], calls.servers)
    return counts[cursors]


def ensure_rescue_topic(
    calls: AdminRequests, rescue: str, *, partitions: int = DEFAULT_PARTITIONS, deadline: Deadline
) -> int:
    """Create or check a rescue topic and return its partition count.

    Raises:
        RescueTopicNotCompacted, NotAuthorized, KafkaRefused, KafkaUnavailable
    """
    counts = _ensure(calls, {rescue: _RESCUE}, partitions, deadline)
    policy = topic_settings(calls, [rescue], deadline=deadline)[rescue].get("cleanup.policy")
    # "compact,delete" would delete the copies of messages that are not acked for long.
    if policy != "compact":
        raise RescueTopicNotCompacted(rescue, str(policy), calls.servers)
    return counts[rescue]


def ensure_streams_topic(calls: AdminRequests, streams: str, *, deadline: Deadline) -> int:
    """Create or check a streams topic and return its partition count. It is created with one partition.

    Raises:
        StreamsTopicUnfit, NotAuthorized, KafkaRefused, KafkaUnavailable
    """
    counts = _ensure(calls, {streams: _STREAMS}, 1, deadline)
    settings = topic_settings(calls, [streams], deadline=deadline)[streams]
    for setting, wanted in _STREAMS_WANTED.items():
        if settings.get(setting) != wanted:
            raise StreamsTopicUnfit(streams, setting, str(settings.get(setting)), wanted, calls.servers)
    return counts[streams]


def _ensure(
    calls: AdminRequests, wanted: Mapping[str, Mapping[str, object]], partitions: int, deadline: Deadline
) -> dict[str, int]:
    found = partition_counts(calls, list(wanted), deadline=deadline)
    create_topics(
        calls,
        {name: (partitions, wanted[name]) for name in wanted if name not in found},
        deadline=deadline,
    )
    return await_leaders(calls, list(wanted), deadline=deadline)


def _check_markers(markers: str, settings: Mapping[str, str | None], servers: str) -> None:
    stamped = settings.get("message.timestamp.type")
    if stamped != "LogAppendTime":
        raise MarkersTopicNotLogAppendTime(markers, str(stamped), servers)


def _check_cursors(cursors: str, settings: Mapping[str, str | None], servers: str) -> None:
    policy = settings.get("cleanup.policy")
    # "compact,delete" also compacts, but then deletes the cursors of idle subscriptions.
    if policy != "compact":
        raise CursorsTopicNotCompacted(cursors, str(policy), servers)


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


def _describe(
    calls: AdminRequests, topics: Sequence[str], tolerated: frozenset[int], deadline: Deadline
) -> tuple[dict[str, Any], dict[str, KafkaError]]:
    possible = [name for name in topics if why_no_topic(name) is None]

    def request(names: Sequence[str], timeout_s: float) -> Mapping[str, Future[Any]]:
        described = calls.client.describe_topics(TopicCollection(list(names)), request_timeout=timeout_s)
        return {name: described[name] for name in names}

    return calls.ask(_DESCRIBE, possible, request, deadline=deadline, tolerated=tolerated)


def partition_counts(calls: AdminRequests, topics: Sequence[str], *, deadline: Deadline) -> dict[str, int]:
    """Return the partition count of each existing topic."""
    found, _ = describe_topics(calls, topics, deadline=deadline)
    return {name: len(description.partitions) for name, description in found.items()}


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
