"""Messages of many rows: confirmed all of them, or an error that says which was not taken and why."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable

import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import (
    KafkaRefused,
    MessageRefused,
    MessagesNotDurable,
    NoSuchPartition,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics import message_sender
from spark_cursor_source.topics.message_sender import ANY_PARTITION, Row, borrowed_sender
from tests.kafka.control_plane import login, read_all

pytestmark = pytest.mark.broker


def sent(config: dict[str, str], *rows: Row) -> None:
    with borrowed_sender(config) as sender:
        for row in rows:
            sender.admit(row[0], None if row[3] == ANY_PARTITION else row[3])
        sender.send(rows)
        sender.flush()


def value(topic: str, content: bytes | None, partition: int = ANY_PARTITION) -> Row:
    return (topic, None, content, partition, None)


def test_messages_arrive_as_they_are(config: dict[str, str], create_topic: Callable[..., str]) -> None:
    one, other = create_topic(), create_topic(2)
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    sent(config, (one, b"k", b"v", 0, headers), (one, None, None, 0, None), (other, b"", b"", 1, None))
    first, second = read_all(config, one)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    (third,) = read_all(config, other)
    assert (third.key(), third.value(), third.partition()) == (b"", b"", 1)


def test_keys_choose_the_partitions_that_they_have_with_kafkas_java_producers(
    config: dict[str, str], create_topic: Callable[..., str]
) -> None:
    # murmur2 of the key, as in Kafka's own tests of it; CRC32, librdkafka's default, would differ
    topic = create_topic(100)
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    sent(config, *[(topic, key, b"", ANY_PARTITION, None) for key in hashes])
    found = {record.key(): record.partition() for record in read_all(config, topic)}
    assert found == {key: (number & 0x7FFFFFFF) % 100 for key, number in hashes.items()}
    assert found != {key: zlib.crc32(key) % 100 for key in hashes}


def test_more_messages_than_the_producer_holds_are_all_sent_and_keep_their_order(
    config: dict[str, str], create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    sent(config | {"queue.buffering.max.messages": "100"}, *[value(topic, b"%d" % n) for n in range(5_000)])
    assert [record.value() for record in read_all(config, topic)] == [b"%d" % n for n in range(5_000)]


def test_a_process_keeps_its_sender_for_the_next_task_unless_it_failed(
    config: dict[str, str], create_topic: Callable[..., str]
) -> None:
    topic = create_topic()
    message_sender._idle.close()
    sent(config, value(topic, b"x"))
    ((_, kept),) = message_sender._idle._clients
    sent(config, value(topic, b"x"))
    assert [sender for _, sender in message_sender._idle._clients] == [kept]
    with pytest.raises(NoSuchPartition):
        sent(config, value(topic, b"x", 7))
    assert message_sender._idle._clients == []
    assert len(read_all(config, topic)) == 2


def test_a_message_that_is_too_large_is_named_by_place_and_size_and_not_by_what_is_in_it(
    config: dict[str, str], create_topic: Callable[..., str]
) -> None:
    # the topic takes less: said by the broker      the client takes less: said before it is sent
    topic = create_topic(2, max_message_bytes=10_000)
    with pytest.raises(MessageRefused, match=f"20000 bytes to topic '{topic}' partition 1") as by:
        sent(config, value(topic, b"ok", 1), value(topic, b"secret" * 3_333 + b"ab", 1))
    assert "MSG_SIZE_TOO_LARGE" in str(by.value)
    assert "secret" not in repr(by.value)
    with pytest.raises(MessageRefused, match=f"1100000 bytes to topic '{topic}'.*max.request"):
        sent(config, value(topic, b"x" * 1_100_000))


def test_messages_that_are_too_large_together_can_be_sent_in_smaller_batches(
    config: dict[str, str], create_topic: Callable[..., str]
) -> None:
    topic = create_topic(max_message_bytes=10_000)
    many = [value(topic, b"%03d" % n * 50) for n in range(200)]
    with pytest.raises(MessageRefused, match=f"a message of 150 bytes to topic '{topic}' .*lower kafka"):
        sent(config, *many)
    sent(config | {"batch.size": "8000"}, *many)
    assert [record.value() for record in read_all(config, topic)] == [row[2] for row in many]


def test_a_topic_or_a_partition_that_is_not_there_is_an_error_before_anything_is_sent(
    config: dict[str, str], create_topic: Callable[..., str]
) -> None:
    topic = create_topic(2)
    for partition in (2, -7):
        with pytest.raises(
            NoSuchPartition, match=rf"'{topic}' has no partition {partition}. Its partitions are 0 to 1"
        ):
            sent(config, value(topic, b"ok", 1), value(topic, b"x", partition))
    with pytest.raises(TopicNotFound, match="'nowhere'"):
        sent(config, value("nowhere", b"x"))
    with pytest.raises(KafkaRefused, match=r"write on 'no topic'. Reason: TOPIC_EXCEPTION"):
        sent(config, value("no topic", b"x"))
    assert read_all(config, topic) == []


def test_who_may_not_write_is_told_so(guarded_broker: EmbeddedKafka) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    topic = f"queue-{uuid.uuid4().hex[:8]}"
    ClusterAdmin(servers | login("admin", "of-admin")).create({topic: (1, {})})
    with pytest.raises(NotAuthorized, match=f"write on '{topic}'"):
        sent(servers | login("bob", "of-bob"), value(topic, b"x"))


def test_brokers_that_are_away_for_too_long_fail_the_write(
    mortal: EmbeddedKafka, create_on: Callable[..., str]
) -> None:
    servers = {"bootstrap.servers": mortal.bootstrap_servers}
    topic = create_on(servers, 1)
    with borrowed_sender(servers | {"message.timeout.ms": "15000"}) as sender:
        sender.admit(topic, None)
        sender.send([value(topic, b"x")])
        sender.flush()
        mortal.stop()
        sender.send([value(topic, b"x")] * 3)
        with pytest.raises(MessagesNotDurable, match=f"messages to topic '{topic}'. .*TIMED_OUT") as by:
            sender.flush()
    assert 1 <= by.value.unsent <= 3
