"""A member of a kafka-mq-go consumer group that stays in it without reading."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation, AclPermissionType, AdminClient, ResourceType

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import NotAuthorized
from spark_cursor_source.interop.group_reader import GroupReader
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from tests.conftest import CreateTopic
from tests.kafka.control_plane import bind_bob, login, produce

pytestmark = pytest.mark.broker

MESSAGES = 40


@pytest.fixture
def reader(config: dict[str, str], create_topic: CreateTopic) -> Iterator[GroupReader]:
    topic = create_topic()
    produce(config, topic, [{"value": b"x", "partition": 0}] * MESSAGES)

    with closing(reader_of(config, topic)) as reader:
        yield reader


def reader_of(config: dict[str, str], topic: str) -> GroupReader:
    def on_removed(partition: int, start: int, stop: int) -> None:
        raise AssertionError(f"nothing was removed of {partition}: {start} to {stop}")

    return GroupReader(
        config,
        topic,
        f"group-{uuid.uuid4().hex}",
        name="a-member",
        isolation="read_committed",
        session_ms=10_000,
        on_removed=on_removed,
        on_revoked=lambda: None,
    )


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


def test_a_member_whose_right_to_the_topic_is_withdrawn_names_the_topic(
    guarded_broker: EmbeddedKafka,
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    config, topic = servers | login("admin", "of-admin"), f"withdrawn-{uuid.uuid4().hex[:8]}"
    ClusterAdmin(config).create({topic: (1, {})})
    produce(config, topic, [{"value": b"x", "partition": 0}] * MESSAGES)
    admin = AdminClient(config)
    with closing(reader_of(servers | login("bob", "of-bob"), topic)) as reader:
        bind_bob(admin, ResourceType.GROUP, reader._group, AclOperation.READ, AclPermissionType.ALLOW)
        bind_bob(admin, ResourceType.TOPIC, topic, AclOperation.READ, AclPermissionType.ALLOW)
        read_some(reader, 10)
        bind_bob(admin, ResourceType.TOPIC, topic, AclOperation.READ, AclPermissionType.DENY)
        with pytest.raises(NotAuthorized) as refused:
            reader.commit(Deadline.after_ms(10_000))
    assert refused.value.resource == topic
    assert refused.value.acls == (f"--operation Read --topic {topic}",)
