"""A fault of the broker that a test cannot tell from one of ours without the broker's log."""

from __future__ import annotations

import re

from confluent_kafka.admin import AdminClient

from spark_cursor_source.devkit.broker import EmbeddedKafka

TRIES = 3  #: of tests that kill a broker amid transactions; one of them fails in eight by this fault
FAULT = f"KAFKA-20734: the broker has forgotten the end of a transaction {TRIES} times"


def forgotten(broker: EmbeddedKafka) -> set[str]:
    """The partitions, as ``topic-0``, in which a broker has dropped the marker that ends a transaction.

    Kafka 4.3.1 does, as KAFKA-20734 says, if the coordinator looks for the leader of a partition while there
    is none, as when it shuts down or starts after a crash: the transaction is over for the coordinator, and
    open for ever in the partition.
    """
    first = broker.log_path
    paths = first.parent.parent.glob(f"broker-*/{first.name}") if first.parent.name == "broker-1" else [first]
    logs = "\n".join(path.read_text(errors="replace") for path in paths)
    dropped = re.findall(r"find leader endpoint for partitions \w*Set\(([^)]*)\)", logs)
    return {partition for partitions in dropped for partition in partitions.split(", ")}


def is_forgotten(broker: EmbeddedKafka, topic: str, partition: int) -> bool:
    """True if a broker has dropped the marker that ends a transaction in this partition."""
    return f"{topic}-{partition}" in forgotten(broker)


def offsets_are_forgotten(broker: EmbeddedKafka, group: str) -> bool:
    """The same of the partition with the offsets of a consumer group."""
    topic, number = "__consumer_offsets", 0
    for character in group:  # Java's hash of a string
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    count = len(admin.list_topics(topic, timeout=20).topics[topic].partitions)
    return is_forgotten(broker, topic, (number & 0x7FFFFFFF) % count)
