"""Ranges of offsets that a topic has no longer: they are read as far as they go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.range_reader import RangeReader
from tests.conftest import CreateTopic
from tests.kafka.control_plane import produce

pytestmark = pytest.mark.broker

PATIENCE_MS = 6_000


@pytest.fixture
def reader(broker: EmbeddedKafka) -> Iterator[RangeReader]:
    config = {"bootstrap.servers": broker.bootstrap_servers}
    with closing(RangeReader(config, committed=True, stall_timeout_ms=PATIENCE_MS)) as reader:
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
