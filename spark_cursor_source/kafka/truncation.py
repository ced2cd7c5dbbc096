"""Detection of truncated partitions: an unclean leader election loses the last records of a log.

Retention removes the first records of a log and never its last ones. After a truncation, new records get the
offsets of the lost ones, so the offsets alone show nothing. The leader epochs do: the broker tells where the
records of an epoch end.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import FEW_RECORDS, reader_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import (
    OFFSET_RESET,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    is_truncation,
    refusal,
    truncated_at,
    unavailable,
)

_POLL_S = 0.25
# Only the first answer for each partition is needed.
_ONE_RECORD = {**FEW_RECORDS, "queued.min.messages": "1", "fetch.message.max.bytes": "1024"}


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Offset that a log had reached while its leader had this epoch."""

    offset: int
    epoch: int


def truncated_ends(
    config: Mapping[str, str], places: Mapping[tuple[str, int], LogPlace], deadline: Deadline
) -> dict[tuple[str, int], int | None]:
    """Return the end of the remaining records of partitions that were truncated below their places.

    The end of a partition that was not truncated is None. Partitions of missing topics are left out.

    Raises:
        KafkaUnavailable: the brokers did not answer in time.
        NotAuthorized, KafkaRefused
    """
    ends: dict[tuple[str, int], int | None] = {}
    waiting = set(places)
    last: KafkaError | None = None
    # A consumer of its own: one that has read the partition may not validate a position again.
    with closing(open_client(Consumer, reader_config({**config, **_ONE_RECORD}))) as consumer:
        consumer.assign(
            [
                TopicPartition(topic, number, place.offset, leader_epoch=place.epoch)
                for (topic, number), place in places.items()
            ]
        )
        while waiting:
            if deadline.over:
                raise unavailable("compare leader epochs", deadline, last)
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            at = (message.topic() or "", message.partition() or 0)
            if at not in waiting:
                continue  # further records, or an error of all partitions
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                ends[at] = None
            elif is_truncation(error):
                ends[at] = min(truncated_at(error) or 0, places[at].offset)
            elif error.code() in OFFSET_RESET:
                ends[at] = None  # retention has removed the place
            elif error.code() in UNAUTHORIZED:
                raise refusal(error, operation="compare leader epochs", resource=at[0])
            elif error.code() not in UNKNOWN_TOPIC:
                last = error
                continue
            waiting.discard(at)
    return ends
