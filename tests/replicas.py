"""The replicas of a cluster of brokers."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.waiting import wait_until


def await_replicas(broker: EmbeddedKafka) -> None:
    """Wait until every replica of every partition is in sync."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})

    def in_sync() -> bool:
        found = admin.list_topics(timeout=20)
        parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
        return bool(parts) and all(len(part.isrs) == len(part.replicas) for part in parts)

    wait_until(in_sync, "all replicas are in sync")
