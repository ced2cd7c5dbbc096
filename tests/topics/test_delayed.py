"""Messages that are not due, read from a real broker: held back, told once for each time, never lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.topics.delayed import DelayFilter
from spark_cursor_source.topics.queue import Missing, arrow_batches
from tests.conftest import CreateTopic
from tests.kafka.ways import same_on_both_ways
from tests.logged import events

pytestmark = pytest.mark.broker

NOW_MS = 1_700_000_000_000


def produce(config: dict[str, str], topic: str, records: Sequence[dict[str, Any]]) -> None:
    producer = Producer(config)
    for record in records:
        producer.produce(topic, value=b"x", partition=0, **record)
    assert producer.flush(30) == 0


Found = tuple[list[int], dict[int, tuple[tuple[int, int], ...]], dict[Missing, OffsetSet]]


def read(config: dict[str, str], topic: str, stop: int, *, queue_id: bytes | None = None) -> Found:
    """Offsets that are delivered, those held back by when to look again, those that are missing."""
    return same_on_both_ways(lambda: read_once(config, topic, stop, queue_id))


def read_once(config: dict[str, str], topic: str, stop: int, queue_id: bytes | None) -> Found:
    early: dict[int, tuple[tuple[int, int], ...]] = {}
    missing: dict[Missing, OffsetSet] = {}

    def on_early(piece: Slice, offsets: OffsetSet, due_ms: int) -> None:
        assert due_ms not in early
        early[due_ms] = offsets.ranges

    batches = arrow_batches(
        config,
        [Slice(topic=topic, partition=0, offsets=OffsetSet.of((0, stop)), delivery_count=1)],
        include_headers=False,
        queue_id=queue_id,
        on_missing=lambda piece, offsets, why: missing.update({why: offsets}),
        hold_back=DelayFilter(now_ms=NOW_MS, on_early=on_early),
    )
    found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    return found, early, missing


def at(due_ms: int) -> dict[str, Any]:
    return {"headers": {"deliverAt": str(due_ms)}}


def test_what_is_due_is_delivered_and_the_rest_is_told_by_when_it_is(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    after = {"headers": [("trace", b"\x00"), ("deliverAfter", b"10s")]}
    records = [
        {},
        at(NOW_MS + 5_000),
        at(NOW_MS),
        after | {"timestamp": NOW_MS - 4_900},
        after | {"timestamp": NOW_MS - 10_000},
        at(NOW_MS + 1),
        at(NOW_MS + 5_000),
        {"headers": {"trace": b"1"}},
    ]
    produce(config, topic, records)
    found, early, missing = read(config, topic, 8)
    assert found == [0, 2, 4, 7]
    assert early == {NOW_MS + 250: ((5, 6),), NOW_MS + 5_000: ((1, 2), (6, 7)), NOW_MS + 5_250: ((3, 4),)}
    assert missing == {}, "what is held back is no gap"


def test_a_slice_of_which_nothing_is_due_has_no_rows(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(config, topic, [at(NOW_MS + 60_000)] * 2_500)
    assert read(config, topic, 2_500) == ([], {NOW_MS + 60_000: ((0, 2_500),)}, {})


def test_messages_of_another_queue_are_ended_whenever_they_are_due(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(config, topic, [at(NOW_MS + 9_000) | {"key": key} for key in (b"ours", b"theirs")])
    found, early, missing = read(config, topic, 2, queue_id=b"ours")
    assert (found, early) == ([], {NOW_MS + 9_000: ((0, 1),)})
    assert missing == {Missing.FILTERED: OffsetSet.of((1, 2))}


def test_a_header_that_is_no_time_delays_nothing_and_is_warned_of_once_a_slice(
    config: dict[str, str], create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic()
    secret = b"secret-of-bob"
    produce(config, topic, [{}, {"headers": {"deliverAfter": secret}}, {"headers": {"deliverAt": secret}}])
    with caplog.at_level(logging.WARNING, logger="spark_cursor_source"):
        assert read(config, topic, 3) == ([0, 1, 2], {}, {})
    assert set(events(caplog.records)) == {
        f"due_time_unreadable topic={topic} partition=0 offset=1 header=deliverAfter messages=2"
    }
