"""The replicas of a cluster of brokers."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.waiting import wait_until


def await_replicas(cluster: EmbeddedKafka) -> None:
    """Wait until all running brokers know each other, and every replica of every partition is in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def in_sync() -> bool:
        found = admin.list_topics(timeout=20)
        parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
        return found.brokers.keys() == cluster.pids.keys() and all(
            len(part.isrs) == len(part.replicas) for part in parts
        )

    wait_until(in_sync, "all replicas are in sync")
