"""The reader of a queue topic that belongs to no group: positions that the log cannot have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, Producer

from spark_cursor_source.errors import KafkaRefused, QueueTopicEndsEarlier, TopicGone
from spark_cursor_source.kafka.tail_consumer import TailConsumer
from tests.conftest import CreateTopic, DeleteTopic
from tests.kafka.control_plane import truncation
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(config: dict[str, str], create_topic: CreateTopic) -> str:
    name = create_topic()
    producer = Producer(config)
    for _ in range(3):
        producer.produce(name, b"x", partition=0)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def reader(config: dict[str, str], topic: str) -> Iterator[TailConsumer]:
    def on_removed(partition: int, start: int, stop: int) -> None:
        raise AssertionError(f"nothing was removed of {partition}: {start} to {stop}")

    with closing(TailConsumer(config, topic, isolation="read_committed", on_removed=on_removed)) as made:
        yield made


def read_all(reader: TailConsumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        for one in reader.read(10, 0.2):
            found += [message.offset() or 0 for message in one.messages]
    return found


def test_partitions_are_read_from_where_they_are_followed(reader: TailConsumer) -> None:
    reader.follow({0: 1})
    assert read_all(reader, 2) == [1, 2]
    reader.follow({0: 0})
    assert read_all(reader, 3) == [0, 1, 2]
    reader.leave([0])
    assert reader.read(10, 0.2) == []


def test_a_login_that_is_denied_for_a_moment_ends_no_read(reader: TailConsumer) -> None:
    # a token has expired before the client has the next one
    reader.follow({0: 0})
    assert not reader._reads.deal_with(KafkaError(KafkaError._AUTHENTICATION), None)
    assert read_all(reader, 3) == [0, 1, 2]


def test_a_login_that_stays_denied_is_an_error(reader: TailConsumer) -> None:
    reader.follow({0: 3})
    reader._reads._denial_ms = 300

    def turned_away() -> bool:
        return reader._reads.deal_with(KafkaError(KafkaError._AUTHENTICATION), None)

    with pytest.raises(KafkaRefused, match="_AUTHENTICATION"):
        wait_until(turned_away)


def test_a_login_that_works_again_ends_its_denial(reader: TailConsumer) -> None:
    reader.follow({0: 3})
    reads = reader._reads
    reads.look_every_s, reads._denial_ms = 0.2, 60_000
    reads.deal_with(KafkaError(KafkaError._AUTHENTICATION), None)
    assert reads._denials
    while reads._denials:
        assert reader.read(10, 0.2) == []


def test_a_log_that_ends_before_the_position_is_an_error_after_a_while(
    reader: TailConsumer, topic: str
) -> None:
    reader.follow({0: 5})
    with pytest.raises(QueueTopicEndsEarlier, match=f"Topic '{topic}' partition 0 ends at offset 3"):
        read_all(reader, 1)


def test_records_that_were_lost_are_an_error_although_the_log_has_others_at_their_offsets(
    reader: TailConsumer, topic: str
) -> None:
    reader.follow({0: 2})
    with pytest.raises(QueueTopicEndsEarlier, match=f"Topic '{topic}' partition 0 ends at offset 1, before"):
        reader._reads.deal_with(truncation(at=2, end=1), 0)


def test_lost_records_are_told_once_where_the_caller_goes_on(config: dict[str, str], topic: str) -> None:
    told: list[QueueTopicEndsEarlier] = []
    tail = TailConsumer(
        config, topic, isolation="read_committed", on_removed=lambda *_: None, on_truncated=told.append
    )
    with closing(tail):
        tail.follow({0: 2})
        for _ in range(2):
            assert tail._reads.deal_with(truncation(at=2, end=1), 0), "it is assigned again"
        assert [(one.position, one.end) for one in told] == [(2, 1)]
        tail._reads.assign()
        assert read_all(tail, 1) == [2]


def test_a_deleted_topic_is_named_with_a_partition_that_was_read(
    config: dict[str, str], create_topic: CreateTopic, delete_topic: DeleteTopic
) -> None:
    name = create_topic(partitions=2)
    delete_topic(name)
    tail = TailConsumer(config, name, isolation="read_committed", on_removed=lambda *_: None)
    with closing(tail):
        tail.follow({1: 0})
        # librdkafka reports the deletion without a partition, and not in every case.
        assert tail._reads.deal_with(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), None)
        with pytest.raises(TopicGone) as gone:
            read_all(tail, 1)
    assert (gone.value.topic, gone.value.partition) == (name, 1)


def test_a_quiet_topic_that_is_deleted_is_noticed_without_an_error_of_the_client(
    reader: TailConsumer, topic: str, delete_topic: DeleteTopic
) -> None:
    reader.follow({0: 0})
    read_all(reader, 3)
    reader._reads.look_every_s, reader._reads._denial_ms = 0.2, 500
    # librdkafka does not report each deletion
    reader._reads.deal_with = lambda error, number: False  # type: ignore[method-assign]
    delete_topic(topic)
    with pytest.raises(TopicGone, match=topic):
        read_all(reader, 1)
