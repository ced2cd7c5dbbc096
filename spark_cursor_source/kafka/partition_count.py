"""Partition count of a topic, requested through a producer."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer

from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, UNKNOWN_TOPIC, error_of

_PAUSE_S = 0.05
_ONE_REQUEST_S = 10.0


def partition_count(
    producer: Producer, topic: str, deadline: Deadline, *, denial: Deadline | None = None
) -> int:
    """Return the partition count. Retry until the brokers report it.

    An unknown topic is an error after ``denial`` is over, or immediately without ``denial``. Brokers with
    ``auto.create.topics.enable`` create a topic that does not exist.

    Raises:
        KafkaException: an error that a retry does not resolve, or the last error before the deadline.
    """
    while True:
        try:
            metadata = producer.list_topics(topic, timeout=deadline.left_s(most=_ONE_REQUEST_S))
            described = metadata.topics[topic]
            if described.error is None:
                return len(described.partitions)
            error = described.error
        except KafkaException as raised:
            error = error_of(raised)
        lagging = error.code() in UNKNOWN_TOPIC and denial is not None and not denial.over
        if deadline.over or not (lagging or error.code() in RETRIABLE):
            raise KafkaException(error)
        deadline.pause(_PAUSE_S)
