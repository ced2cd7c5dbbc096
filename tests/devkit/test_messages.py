"""Messages that jobs, demos and notebooks send."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.messages import ensure_topic, send_messages
from spark_cursor_source.errors import InvalidArgument, MessagesNotDurable
from spark_cursor_source.options.kafka import KafkaOptions
from tests.kafka.control_plane import login, read_all

pytestmark = pytest.mark.broker


def test_messages_of_a_key_keep_their_order_in_one_partition(broker: EmbeddedKafka) -> None:
    kafka = KafkaOptions({"bootstrap.servers": broker.bootstrap_servers})
    topic = f"queue-{uuid.uuid4().hex[:8]}"
    assert ensure_topic(kafka, topic, partitions=3) == 3
    assert ensure_topic(kafka, topic, partitions=5) == 3  # it is there
    assert send_messages(kafka, topic, ((b"k%d" % (n % 4), b"%d" % n) for n in range(40))) == 40
    records = read_all(dict(kafka), topic)
    for key in range(4):
        own = [record for record in records if record.key() == b"k%d" % key]
        assert len({record.partition() for record in own}) == 1
        assert [record.value() for record in own] == [b"%d" % n for n in range(key, 40, 4)]


@pytest.mark.parametrize("topic", [None, "", "a,b", 7, b"queue"])
def test_a_topic_that_cannot_be_is_refused_before_a_broker_is_asked(topic: Any) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(InvalidArgument, match="argument topic="):
        ensure_topic(kafka, topic, partitions=1)
    with pytest.raises(InvalidArgument, match="argument topic="):
        send_messages(kafka, topic, [(None, b"x")])


@pytest.mark.parametrize("partitions", [None, 0, -1, "2", 1.5, 10**30])
def test_a_number_of_partitions_that_cannot_be_is_refused_before_a_broker_is_asked(partitions: Any) -> None:
    with pytest.raises(InvalidArgument, match="argument partitions="):
        ensure_topic({"bootstrap.servers": "127.0.0.1:1"}, "queue", partitions=partitions)


def test_a_header_name_without_utf_8_bytes_is_refused_and_does_not_end_the_process() -> None:
    kafka = KafkaOptions({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(InvalidArgument, match="UTF-8"):
        send_messages(kafka, "queue", [(None, b"x")], headers=[("caf\udce9", b"1")])


def test_messages_that_are_not_confirmed_are_counted(guarded_broker: EmbeddedKafka) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    topic = f"queue-{uuid.uuid4().hex[:8]}"
    ensure_topic(KafkaOptions(servers | login("admin", "of-admin")), topic, partitions=1)
    bob = KafkaOptions(servers | login("bob", "of-bob") | {"log_level": "0"})
    with pytest.raises(MessagesNotDurable, match=f"not confirmed 3 messages to topic '{topic}'") as failed:
        send_messages(bob, topic, [(None, b"x")] * 3)
    assert failed.value.unsent == 3
