"""What a consumer group has committed.

Asked by a consumer that never joins, not by an AdminClient: librdkafka's ``ListConsumerGroupOffsets`` ends
the process (SIGSEGV, librdkafka issue 5040) when the broker answers that it is not the coordinator, as one
that has just started or has lost its leadership does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cursor_source.kafka.client_roles import consumer_config
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.failures import (
    RETRIABLE,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    Complaints,
    error_of,
    refusal,
    unavailable,
)

_OPERATION = "read offsets of group"
_ONE_REQUEST_S = 2.0
_PAUSE_S = 0.02
_NOT_NOW = RETRIABLE | UNKNOWN_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """What a consumer group has committed for a partition."""

    position: int
    metadata: str


def committed_offsets(
    config: Mapping[str, Any], group: str, partitions: Iterable[tuple[str, int]], deadline: Deadline
) -> dict[tuple[str, int], CommittedOffset]:
    """The positions of those of the partitions that have one; a transaction that commits them is waited for.

    Raises:
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    wanted = sorted(set(partitions))
    if not wanted:
        return {}
    complaints = Complaints()
    # read_committed: an offset that an open transaction is about to set is "not stable yet".
    settings = {"group.id": group, "isolation.level": "read_committed", "error_cb": complaints}
    consumer: Consumer = open_client(Consumer, consumer_config(config, settings))
    try:
        while True:
            found, last = _ask(consumer, wanted, deadline)
            if last is None:
                return found
            if last.code() not in _NOT_NOW:
                raise refusal(last, operation=_OPERATION, resource=group)
            told = consumer.poll(0)  # that the group may not be seen is a message; the request just times out
            if told is not None and (error := told.error()) is not None and error.code() in UNAUTHORIZED:
                raise refusal(error, operation=_OPERATION, resource=group)
            if deadline.over:
                raise unavailable(_OPERATION, deadline, last, complaints)
            deadline.pause(_PAUSE_S)
    finally:
        consumer.close()


def _ask(
    consumer: Consumer, wanted: Iterable[tuple[str, int]], deadline: Deadline
) -> tuple[dict[tuple[str, int], CommittedOffset], KafkaError | None]:
    partitions = [TopicPartition(topic, number) for topic, number in wanted]
    try:
        answers = consumer.committed(partitions, timeout=deadline.left_s(most=_ONE_REQUEST_S, least=0.05))
    except KafkaException as raised:
        return {}, error_of(raised)
    failed = next((one.error for one in answers if one.error is not None), None)
    return {
        (one.topic, one.partition): CommittedOffset(position=one.offset, metadata=one.metadata or "")
        for one in answers
        if one.offset >= 0
    }, failed
