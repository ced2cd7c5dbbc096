"""Rights on topics, checked together. Operations have the names of ``kafka-acls.sh``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, TopicCollection

from spark_cursor_source.kafka.admin_requests import ADMIN_TYPES, AdminRequests
from spark_cursor_source.kafka.deadline import Deadline

#: operations on a topic, as values of ``kafka-acls.sh --operation``
CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ, WRITE = "Create", "Describe", "DescribeConfigs", "Read", "Write"

Rights = dict[str, tuple[str, ...]]  #: topic -> operations

_MADE = (CREATE, DESCRIBE, DESCRIBE_CONFIGS)  # for control topics, which are created and checked on first use

_ENUM = {
    DESCRIBE: "DESCRIBE",
    DESCRIBE_CONFIGS: "DESCRIBE_CONFIGS",
    READ: "READ",
    WRITE: "WRITE",
}
_HIDDEN = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED})
_NOT_THERE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION})
# Refusals for other reasons than a missing right. The later creation of the topic reports them.
_MAY_BE_MADE = frozenset(
    {
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_ALREADY_EXISTS,
        KafkaError.TOPIC_EXCEPTION,
    }
)


def of_consumer(
    *, markers: str, redeliveries: str, cursors: str, streams: str, queues: Collection[str]
) -> Rights:
    """Return the rights to read a queue under a subscription and to ack."""
    return dict.fromkeys(queues, (DESCRIBE, READ)) | {
        markers: (*_MADE, WRITE),
        redeliveries: (CREATE, DESCRIBE, READ),
        cursors: (*_MADE, READ),
        streams: (DESCRIBE, READ),
    }


def of_consumer_v1(*, markers: str, streams: str, queues: Collection[str]) -> Rights:
    """Return the rights to read and ack with kafka-mq-go's tracker."""
    return dict.fromkeys(queues, (DESCRIBE, READ)) | {
        markers: (*_MADE, READ, WRITE),
        streams: (DESCRIBE, READ),
    }


def of_producer(*, streams: str, queues: Collection[str]) -> Rights:
    """Return the rights to write messages to queues.

    Brokers that create missing topics automatically require Create too.
    """
    rights: Rights = dict.fromkeys(queues, (DESCRIBE, WRITE))
    return rights | {streams: (DESCRIBE, READ)}


def of_tracker(*, markers: str, redeliveries: str, cursors: str) -> Rights:
    """Return the rights that the tracker needs before it can start."""
    return {
        markers: (*_MADE, READ, WRITE),
        redeliveries: (CREATE, DESCRIBE, WRITE),
        cursors: (*_MADE, READ, WRITE),
    }


def of_rescue(rescue: str) -> Rights:
    """Return the tracker's rights to the rescue topic."""
    return {rescue: (*_MADE, READ, WRITE)}


def of_dead_letters(letters: Mapping[str, Collection[str]]) -> Rights:
    """Return the tracker's rights to write dead letters, for ``{queue topic: its dead-letter topics}``."""
    rights: Rights = dict.fromkeys(letters, (DESCRIBE, READ))
    return rights | {name: (CREATE, DESCRIBE, WRITE) for names in letters.values() for name in names}


def missing_rights(
    calls: AdminRequests, wanted: Mapping[str, Collection[str]], *, deadline: Deadline
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the missing (topic, operation) pairs among ``{topic: operations}``, and the visible topics.

    The visible topics exist and may be described. Create is only checked if the topic is missing. A topic
    that may not be described may be missing too.

    Raises:
        KafkaUnavailable, KafkaRefused
    """
    described, refused = calls.ask(
        "describe topic",
        sorted(wanted),
        lambda names, timeout_s: _describe(calls, names, timeout_s),
        deadline=deadline,
        tolerated=_HIDDEN | _NOT_THERE,
    )
    hidden = {name for name, error in refused.items() if error.code() in _HIDDEN}
    absent = [name for name in refused if name not in hidden and CREATE in wanted[name]]
    not_to_be_made = _not_to_be_made(calls, absent, deadline)
    missing: list[tuple[str, str]] = []
    for name, operations in sorted(wanted.items()):
        if name in hidden:
            missing += [(name, operation) for operation in dict.fromkeys((*operations, DESCRIBE))]
        elif name in not_to_be_made:
            missing.append((name, CREATE))
        elif name in described:
            # None: the brokers do not check rights, or are too old to report them.
            allowed = described[name].authorized_operations
            missing += [
                (name, operation)
                for operation in operations
                if operation in _ENUM and allowed and _operation(operation) not in allowed
            ]
    return sorted(missing), sorted(described)


def _operation(name: str) -> Any:
    return ADMIN_TYPES.AclOperation[_ENUM[name]]


def _describe(calls: AdminRequests, names: Sequence[str], timeout_s: float) -> Mapping[str, Future[Any]]:
    described = calls.client.describe_topics(
        TopicCollection(list(names)), request_timeout=timeout_s, include_authorized_operations=True
    )
    return {name: described[name] for name in names}


def _not_to_be_made(calls: AdminRequests, names: Sequence[str], deadline: Deadline) -> Collection[str]:
    """Return the topics that this principal may not create. No topic is created."""

    def request(names: Sequence[str], timeout_s: float) -> Mapping[str, Future[Any]]:
        new = [ADMIN_TYPES.NewTopic(name, num_partitions=1, replication_factor=-1) for name in names]
        made = calls.client.create_topics(new, request_timeout=timeout_s, validate_only=True)
        return {name: made[name] for name in names}

    _, refused = calls.ask(
        "create topic", list(names), request, deadline=deadline, tolerated=_HIDDEN | _MAY_BE_MADE
    )
    return {name for name, error in refused.items() if error.code() in _HIDDEN}
