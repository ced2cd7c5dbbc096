"""Questions about a running embedded cluster: who leads a partition, a group, a transaction, the cluster."""

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
    """Id of the broker that leads a partition; None while there is no leader, or no such partition."""
    return _leaders(config, topic).get(partition)


def group_coordinator(config: Mapping[str, str], group: str) -> int | None:
    """Id of the broker that coordinates a consumer group; None before the first group of the cluster."""
    return _coordinator(config, _GROUPS, group)


def transaction_coordinator(config: Mapping[str, str], transactional_id: str) -> int | None:
    """Id of the broker that coordinates a producer's transactions; None before the cluster's first one."""
    return _coordinator(config, _TRANSACTIONS, transactional_id)


def active_controller(directories: Iterable[Path]) -> int | None:
    """Id of the elected controller by what the brokers of these directories know; None while there is none.

    Metadata names any broker as the controller, because every broker forwards; the quorum's own record of
    its last election is in a file of each controller.
    """
    latest = (-1, -1)
    for directory in directories:
        try:
            found = json.loads((directory / "logs/__cluster_metadata-0/quorum-state").read_bytes())
        except (OSError, ValueError):
            continue  # none yet, or one that is being written
        latest = max(latest, (int(found["leaderEpoch"]), int(found["leaderId"])))
    return latest[1] if latest[1] >= 0 else None


def java_hash(text: str) -> int:
    """``String.hashCode``, by which Kafka assigns groups and transactional ids to their partitions.

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
    # As Kafka's Utils.abs: the number that has no positive counterpart is 0.
    return leaders.get((0 if hashed == -(1 << 31) else abs(hashed)) % len(leaders))


def _leaders(config: Mapping[str, str], topic: str) -> dict[int, int | None]:
    try:
        found = AdminClient({**config, "log_level": "0"}).list_topics(timeout=_TIMEOUT_S).topics.get(topic)
    except KafkaException:
        return {}
    if found is None:
        return {}
    return {number: part.leader if part.leader >= 0 else None for number, part in found.partitions.items()}
