"""Ranges of offsets that a topic has no longer: they are read as far as they go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Message, Producer

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import ReadRefused, ReadStalled, RecordsGone
from spark_cursor_source.kafka import range_consumer
from spark_cursor_source.kafka.config_roles import reader_config
from spark_cursor_source.kafka.range_consumer import read_range
from spark_cursor_source.kafka.range_reader import RangeReader
from tests.conftest import CreateTopic
from tests.kafka.control_plane import produce, truncation

pytestmark = pytest.mark.broker

PATIENCE_MS = 6_000
OF_READER_MS = 10_000  #: several partitions are found to be short within it, also on a busy machine


@pytest.fixture
def reader(broker: EmbeddedKafka) -> Iterator[RangeReader]:
    config = {"bootstrap.servers": broker.bootstrap_servers}
    with closing(RangeReader(config, committed=True, stall_timeout_ms=OF_READER_MS)) as reader:
        yield reader


def test_partitions_that_are_shorter_than_their_ranges_are_read_to_their_end(
    broker: EmbeddedKafka, reader: RangeReader, create_topic: CreateTopic
) -> None:
    ranges = {
        0: (0, 2),  # all of it is there
        1: (0, 5),  # the partition ends within the range,
        2: (2, 5),  # where it begins,
        3: (4, 5),  # before it
    }
    topic = create_topic(partitions=len(ranges))
    records = [{"partition": number, "value": b"x"} for number in ranges for _ in range(2)]
    produce({"bootstrap.servers": broker.bootstrap_servers}, topic, records)
    found = sorted((message.partition(), message.offset()) for message in reader.read(topic, ranges))
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.fixture
def consumer(broker: EmbeddedKafka) -> Iterator[Consumer]:
    with closing(Consumer(reader_config({"bootstrap.servers": broker.bootstrap_servers}))) as consumer:
        yield consumer


@pytest.fixture
def two_records(broker: EmbeddedKafka, create_topic: CreateTopic) -> str:
    topic = create_topic()
    produce({"bootstrap.servers": broker.bootstrap_servers}, topic, [{"value": b"x"}] * 2)
    return topic


@pytest.mark.parametrize("start", [0, 2, 4], ids=["within", "at the end", "beyond the end"])
def test_a_range_that_its_partition_lost_is_read_to_the_end_with_a_warning(
    consumer: Consumer, two_records: str, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    removed: list[tuple[int, int]] = []
    read = read_range(
        consumer,
        two_records,
        0,
        start,
        5,
        on_removed=lambda first, past: removed.append((first, past)),
        stall_timeout_ms=PATIENCE_MS,
    )
    found = [message.offset() for messages in read for message in messages]
    assert found == list(range(start, 2))
    assert removed == [(max(start, 2), 5)]
    assert "event=records_removed" in caplog.text


@pytest.mark.parametrize("start", [0, 2, 4], ids=["within", "at the end", "beyond the end"])
def test_a_range_that_its_partition_lost_is_an_error_where_records_must_not_be_lost(
    consumer: Consumer, two_records: str, start: int
) -> None:
    found = []
    with pytest.raises(RecordsGone) as failure:
        found.extend(read_range(consumer, two_records, 0, start, 5, stall_timeout_ms=PATIENCE_MS))
    assert sum(map(len, found)) == max(2 - start, 0)
    assert failure.value.wanted == (max(start, 2), 5)
    assert failure.value.available == (0, 2)


def test_the_lost_rest_of_a_range_is_not_read_from_records_that_were_written_since(
    consumer: Consumer, two_records: str
) -> None:
    # the range 0 to 2 is read up to 1, the log is truncated to 0, and two other records are written
    removed: list[tuple[int, int]] = []
    reading = range_consumer._Messages(
        consumer, two_records, 0, 1, 2, lambda *lost: removed.append(lost), PATIENCE_MS
    )
    assert reading.deal_with(truncation(at=1, end=0), 0)
    assert removed == [(1, 2)]
    assert list(reading.whole()) == []
    strict = range_consumer._Messages(consumer, two_records, 0, 1, 2, None, PATIENCE_MS)
    with pytest.raises(RecordsGone):
        strict.deal_with(truncation(at=1, end=0), 0)


def test_records_of_an_open_transaction_are_not_lost(
    broker: EmbeddedKafka, consumer: Consumer, two_records: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": two_records})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(two_records, b"x", partition=0)
    assert producer.flush(30) == 0

    def on_removed(first: int, past: int) -> None:
        raise AssertionError(f"nothing was removed from {first} to {past}")

    read = read_range(consumer, two_records, 0, 0, 5, on_removed=on_removed, stall_timeout_ms=PATIENCE_MS)
    found: list[list[Message]] = []
    with pytest.raises(ReadStalled, match="ended at offset 2"):
        found.extend(read)
    assert [message.offset() for messages in found for message in messages] == [0, 1]
    producer.abort_transaction(30)


def test_a_range_that_the_client_refuses_is_told_with_its_place(consumer: Consumer, two_records: str) -> None:
    with pytest.raises(ReadRefused, match="cannot be read at offset -77") as refused:
        next(read_range(consumer, two_records, 0, -77, 5))
    assert (refused.value.topic, refused.value.partition, refused.value.position) == (two_records, 0, -77)
