"""A member of a kafka-mq-go consumer group that stays in it without reading."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from spark_cursor_source.interop.group_reader import GroupReader
from tests.conftest import CreateTopic
from tests.kafka.control_plane import produce

pytestmark = pytest.mark.broker

MESSAGES = 40


@pytest.fixture
def reader(config: dict[str, str], create_topic: CreateTopic) -> Iterator[GroupReader]:
    topic = create_topic()
    produce(config, topic, [{"value": b"x", "partition": 0}] * MESSAGES)

    def on_removed(partition: int, start: int, stop: int) -> None:
        raise AssertionError(f"nothing was removed of {partition}: {start} to {stop}")

    reader = GroupReader(
        config,
        topic,
        f"group-{uuid.uuid4().hex}",
        name="a-member",
        isolation="read_committed",
        session_ms=10_000,
        on_removed=on_removed,
        on_revoked=lambda: None,
    )
    with closing(reader):
        yield reader


def read_some(reader: GroupReader, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        for fetched in reader.read(count - len(offsets), 0.2):
            offsets += [message.offset() or 0 for message in fetched.messages]
    return offsets


def test_a_member_that_stays_without_reading_loses_no_record_after_an_error(reader: GroupReader) -> None:
    offsets = read_some(reader, 10)
    for _ in range(5):
        reader.stay()
        # the topic was denied for a moment, so the partitions are assigned again
        if reader._reads.deal_with(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), 0):
            reader._reads.assign()
    reader.pause(frozenset())
    offsets += read_some(reader, MESSAGES - 10)
    assert offsets == list(range(MESSAGES))
