"""Queries to a running embedded cluster: leaders, coordinators and the controller."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

_TIMEOUT_S = 5.0
_GROUPS = "__consumer_offsets"
_TRANSACTIONS = "__transaction_state"


def leader_of(config: Mapping[str, str], topic: str, partition: int) -> int | None:
    """Returns the id of the leader of a partition; None without a leader or without such a partition."""
    return _leaders(config, topic).get(partition)


def group_coordinator(config: Mapping[str, str], group: str) -> int | None:
    """Returns the id of the coordinator of a consumer group; None before the cluster's first group."""
    return _coordinator(config, _GROUPS, group)


def transaction_coordinator(config: Mapping[str, str], transactional_id: str) -> int | None:
    """Returns the id of the coordinator of a transactional id; None before the first transaction."""
    return _coordinator(config, _TRANSACTIONS, transactional_id)


def active_controller(directories: Iterable[Path]) -> int | None:
    """Returns the id of the elected controller known to these brokers' directories; None without one.

    Metadata responses can name any broker as the controller, because every broker forwards requests. So the
    result comes from the file in which each controller records the quorum's last election.
    """
    latest = (-1, -1)
    for directory in directories:
        try:
            found = json.loads((directory / "logs/__cluster_metadata-0/quorum-state").read_bytes())
        except (OSError, ValueError):
            continue  # the file does not exist yet or is being written
        latest = max(latest, (int(found["leaderEpoch"]), int(found["leaderId"])))
    return latest[1] if latest[1] >= 0 else None


def java_hash(text: str) -> int:
    """Returns ``String.hashCode``, by which Kafka assigns groups and transactional ids to partitions.

    >>> java_hash("cursorq"), java_hash("polygenelubricants")
    (1126979547, -2147483648)
    """
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _coordinator(config: Mapping[str, str], topic: str, name: str) -> int | None:
    leaders = _leaders(config, topic)
    if not leaders:
        return None
    hashed = java_hash(name)
    # Like Kafka's Utils.abs: the number without a positive counterpart becomes 0.
    return leaders.get((0 if hashed == -(1 << 31) else abs(hashed)) % len(leaders))


def _leaders(config: Mapping[str, str], topic: str) -> dict[int, int | None]:
    try:
        found = AdminClient({**config, "log_level": "0"}).list_topics(timeout=_TIMEOUT_S).topics.get(topic)
    except KafkaException:
        return {}
    if found is None:
        return {}
    return {number: part.leader if part.leader >= 0 else None for number, part in found.partitions.items()}
