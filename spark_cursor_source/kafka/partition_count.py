"""How many partitions a topic has, as a producer is told."""

from __future__ import annotations

from confluent_kafka import KafkaException, Producer

from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, UNKNOWN_TOPIC, error_of

_PAUSE_S = 0.05
_ONE_REQUEST_S = 10.0


def partition_count(
    producer: Producer, topic: str, deadline: Deadline, *, denial: Deadline | None = None
) -> int:
    """Ask until the brokers say; that there is no such topic is believed when ``denial`` is over, or at once.

    Brokers that make topics by themselves (``auto.create.topics.enable``) make one that is asked for.

    Raises:
        KafkaException: an answer that waiting does not change, or the last one before the deadline.
    """
    while True:
        try:
            found = producer.list_topics(topic, timeout=deadline.left_s(most=_ONE_REQUEST_S))
            described = found.topics[topic]
            if described.error is None:
                return len(described.partitions)
            error = described.error
        except KafkaException as raised:
            error = error_of(raised)
        lagging = error.code() in UNKNOWN_TOPIC and denial is not None and not denial.over
        if deadline.over or not (lagging or error.code() in RETRIABLE):
            raise KafkaException(error)
        deadline.pause(_PAUSE_S)
