"""What a batch holds, where a query begins: limits, selections of topics, starting offsets, single runs."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_cursor_source import AckSink, Leave
from spark_cursor_source.client import Client
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Release
from spark_cursor_source.core.offsets import OffsetSet
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_available_now_takes_what_is_there_and_the_redeliveries_that_are_due_and_ends(bench: Bench) -> None:
    # run 1: S(0-3, 1), acked 0, 1 -- the lease of 2, 3 is over -- run 2: S(2-3, 2), S(4-5, 1) -- ends
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 4)
    options = bench.options(topic, leaseTimeout="1s")
    first, second = Seen(), Seen()

    def ack_two(message: Any) -> Any:
        return None if message.offset < 2 else Leave()

    def remember(batch: DataFrame, batch_id: int) -> None:
        first(batch, batch_id)
        AckSink.per_row(ack_two, options)(batch, batch_id)

    bench.drain(options, remember)
    bench.until(
        lambda: (c := bench.cursor(topic)) is not None and c.available and c.waiting.ranges == ((2, 4),),
        "the leases are over",
    )
    bench.produce(topic, [b"x"] * 2)
    query = bench.drain(options, AckSink(second, options))
    assert not query.isActive
    assert first.ids(1) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert second.ids(2) == [(0, 2), (0, 3)]
    assert second.ids(1) == [(0, 4), (0, 5)]
    bench.until_acked(topic, 6)
    bench.until(lambda: bench.group(topic) == 6, "the consumer group has no lag")


def test_a_limit_of_offsets_holds_for_every_batch_redeliveries_included(bench: Bench) -> None:
    topic = bench.create_topic(2)
    bench.produce(topic, [b"x"] * 60, partition=0)
    bench.produce(topic, [b"x"] * 30, partition=1)
    options = bench.options(topic, maxOffsetsPerTrigger=20, leaseTimeout="6s")
    seen = bench.plain(
        options, lambda row: Leave() if row.delivery_count == 1 and row.offset % 3 == 0 else None
    )
    bench.until_acked(topic, {0: 60, 1: 30})
    assert seen.ids(1) == [(0, n) for n in range(60)] + [(1, n) for n in range(30)]
    third = [(p, n) for p, n in seen.ids(1) if n % 3 == 0]
    assert seen.ids(2) == third
    assert len(seen.rows) == 120
    # One announcement is never divided: those of 20 third ones make one batch each.
    assert max(len(rows) for rows in seen.batches) <= 20


def test_no_new_message_is_leased_while_too_many_are_outstanding(bench: Bench) -> None:
    # 0-29 leased and left open -- none new -- 0-9 acked -- 10 new ones -- all acked -- the rest
    import spark_cursor_source as cursorq

    topic = bench.create_topic(2)
    for partition in (0, 1):
        bench.produce(topic, [b"x"] * 40, partition=partition)
    options = bench.options(topic, maxOutstanding=30, leaseTimeout="10m")
    seen = Seen()
    query = bench.start(options, seen)
    bench.until(lambda: len(seen.rows) == 30, "30 are leased")
    time.sleep(0.8)  # several triggers
    assert len(seen.rows) == 30
    progress = bench.until(lambda: query.lastProgress, "the batch is over")
    shown = json.loads(progress["sources"][0]["latestOffset"])
    assert (shown["outstanding"], shown["maxOutstanding"], shown["maxOutstandingReached"]) == (30, 30, True)
    cursorq.ack(bench.frame(topic, [(p, n, 1) for p, n in seen.ids()[:10]]), options)
    bench.until(lambda: len(seen.rows) == 40, "10 more are leased")
    time.sleep(0.8)
    assert len(seen.rows) == 40

    def all_seen() -> bool:
        cursorq.ack(bench.frame(topic, [(p, n, 1) for p, n in seen.ids()]), options)
        return len(seen.rows) == 80

    bench.until(all_seen, "all are leased in the end")
    assert seen.ids(1) == [(p, n) for p in (0, 1) for n in range(40)]


def test_both_branches_of_a_union_see_redeliveries_and_new_messages(bench: Bench) -> None:
    # S(0-3, 1), released by both branches -- S(0-3, 2), acked by both
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 4)
    options = bench.options(topic)
    seen = Seen()

    def release_first(message: Any) -> Any:
        from spark_cursor_source import Release

        return Release() if message.delivery_count == 1 else None

    def handle(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        AckSink.per_row(release_first, options)(batch, batch_id)

    rows = bench.read(options)
    both = rows.where("offset % 2 = 0").union(rows.where("offset % 2 = 1"))
    bench.begin(both.writeStream.foreachBatch(handle).trigger(processingTime="100 milliseconds"))
    bench.until_acked(topic, 4)
    assert seen.ids(2) == seen.ids(1) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_available_now_keeps_to_the_limit_of_offsets(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 25)
    options = bench.options(topic, maxOffsetsPerTrigger=10)
    seen = Seen()
    bench.drain(options, AckSink(seen, options))
    assert [len(rows) for rows in seen.batches] == [10, 10, 5]


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("minPartitions", 4, [10, 10, 10, 10]),
        ("maxRecordsPerPartition", 12, [4, 12, 12, 12]),
        ("failOnDataLoss", False, [10, 30]),
    ],
)
def test_a_batch_is_split_as_the_options_say(
    bench: Bench, option: str, value: object, expected: list[int]
) -> None:
    topic = bench.create_topic(2)
    bench.produce(topic, [b"x"] * 30, partition=0)
    bench.produce(topic, [b"x"] * 10, partition=1)
    options = bench.options(topic, **{option: value})
    found: list[int] = []

    def count_tasks(batch: DataFrame, batch_id: int) -> None:
        found.extend(row["count"] for row in batch.groupBy(F.spark_partition_id()).count().collect())

    bench.drain(options, AckSink(count_tasks, options))
    assert sorted(found) == (expected if option != "maxRecordsPerPartition" else [6, 10, 12, 12])


def test_all_messages_of_a_key_go_to_one_task_in_order_however_a_partition_is_split(bench: Bench) -> None:
    topic = bench.create_topic()
    keys = [f"key {number}".encode() for number in range(10)]
    bench.produce(topic, [{"key": key, "value": b"x"} for _ in range(4) for key in keys])
    options = bench.options(topic, subscriptionType="key_shared", minPartitions=3)
    tasks: list[list[tuple[bytes, int]]] = []

    def collect_tasks(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select("key", "offset").rdd.glom().collect()
        tasks.extend([(bytes(row.key), row.offset) for row in task] for task in rows)

    bench.drain(options, AckSink(collect_tasks, options))
    assert len(tasks) == 3
    assert all(tasks)
    assert sum(len({key for key, _ in task}) for task in tasks) == len(keys)
    for task in tasks:
        offsets = [offset for _, offset in task]
        assert offsets == sorted(offsets)


def test_a_batch_waits_for_enough_messages_but_not_for_ever(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 3)
    options = bench.options(topic, minOffsetsPerTrigger=10, maxTriggerDelay="4s")
    seen = Seen()
    bench.start(options, AckSink(seen, options))
    bench.until_acked(topic, 3)
    bench.produce(topic, [b"x"] * 10)
    bench.until_acked(topic, 13)
    assert [len(rows) for rows in seen.batches] == [3, 10]


def test_a_pattern_takes_in_topics_that_come_later_from_their_beginning(bench: Bench) -> None:
    first = bench.create_topic()
    prefix = first[:-4]
    bench.produce(first, [b"first"])
    seen = bench.plain(bench.options(None, subscribePattern=f"{prefix}.*"))
    bench.until_acked(first, 1)
    later = bench.create_topic(2, name=f"{prefix}-later")
    # What its own dead letters go to is no queue of it.
    dead = bench.create_topic(name=f"{first}-s-DLQ")
    bench.produce(later, [b"later"], partition=1)
    bench.produce(dead, [b"dead"])
    bench.until_acked(later, {1: 1})
    assert sorted((row.topic, row.value) for row in seen.rows) == sorted(
        [(first, b"first"), (later, b"later")]
    )


def test_assigned_partitions_are_read_and_no_others(bench: Bench) -> None:
    topic = bench.create_topic(3)
    for partition in range(3):
        bench.produce(topic, [b"%d" % partition] * 2, partition=partition)
    seen = bench.plain(bench.options(None, assign=json.dumps({topic: [0, 2]})))
    bench.until_acked(topic, {0: 2, 2: 2})
    assert seen.ids() == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert bench.cursor(topic, partition=1) is None


def test_partitions_that_are_added_while_it_runs_are_read_from_their_beginning(bench: Bench) -> None:
    topic = bench.create_topic()
    options = bench.options(topic, startingOffsets="latest", leaseTimeout="6s")
    bench.produce(topic, [b"before"])
    seen = bench.plain(options, lambda row: Leave() if row.partition and row.delivery_count == 1 else None)
    bench.until(lambda: bench.group(topic) == 1, "the query is there")
    admin = AdminClient(bench.control.config)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(timeout=20)
    # librdkafka producers may not know the new partitions at once
    bench.until(lambda: len(bench.ends(topic)) == 3, "the partitions are there")
    bench.produce(topic, [b"new 1"], partition=1)
    bench.produce(topic, [b"old"], partition=0)
    bench.produce(topic, [b"new 2"] * 2, partition=2)
    bench.until_acked(topic, {0: 2, 1: 1, 2: 2})
    assert seen.ids(1) == [(0, 1), (1, 0), (2, 0), (2, 1)]
    assert seen.ids(2) == [(1, 0), (2, 0), (2, 1)]


def test_messages_of_other_queues_of_the_topic_are_ended(bench: Bench) -> None:
    topic = bench.create_topic()
    keys = [b"a", b"b", None, b"a", b"", b"c", b"a", b"b"]
    bench.produce(topic, [{"key": key, "value": b"x"} for key in keys])
    seen_by_a = bench.plain(bench.options(topic, "a", queueId="a"), checkpoint="a")
    seen_by_b = bench.plain(bench.options(topic, "b", queueId="b"), checkpoint="b")
    bench.until_acked(topic, 8, "a")
    bench.until_acked(topic, 8, "b")
    assert seen_by_a.ids() == [(0, 0), (0, 3), (0, 6)]
    assert seen_by_b.ids() == [(0, 1), (0, 7)]
    assert {row.key for row in seen_by_b.rows} == {b"b"}


def test_a_new_subscription_begins_where_its_options_say(bench: Bench) -> None:
    # partition 0: offsets 0-9 at 1000, 2000, ... ms; partition 1: 0-4 at 6000, 7000, ... ms
    topic = bench.create_topic(2)
    base = 1_700_000_000_000
    for partition, size, first in ((0, 10, 1), (1, 5, 6)):
        bench.produce(
            topic,
            [{"value": b"x", "timestamp": base + 1000 * (first + n)} for n in range(size)],
            partition=partition,
        )
    whole = [(0, n) for n in range(10)] + [(1, n) for n in range(5)]
    by_instant = {topic: {"0": base + 4000}}
    cases: dict[str, tuple[dict[str, object], list[tuple[int, int]]]] = {
        "default": ({}, whole),
        "earliest": ({"startingOffsets": "earliest"}, whole),
        "latest": ({"startingOffsets": "latest"}, []),
        "json": (
            {"startingOffsets": json.dumps({topic: {"0": 7, "1": -1}})},
            [(0, 7), (0, 8), (0, 9)],
        ),
        "json-earliest": ({"startingOffsets": json.dumps({topic: {"0": -1, "1": -2}})}, whole[10:]),
        "instant": ({"startingTimestamp": base + 8000}, [(0, 7), (0, 8), (0, 9), (1, 2), (1, 3), (1, 4)]),
        "instants": ({"startingOffsetsByTimestamp": json.dumps(by_instant)}, whole[3:]),
    }
    seen = {
        name: bench.plain(bench.options(topic, name, **starts), checkpoint=name)
        for name, (starts, _) in cases.items()
    }
    for name in cases:
        bench.until(lambda n=name: bench.group(topic, n, 1) is not None, f"{name} has begun")
    bench.produce(topic, [b"new"], partition=0)
    for name, (_, expected) in cases.items():
        bench.until_acked(topic, 11, name)
        bench.until(lambda n=name, e=expected: len(seen[n].rows) >= len(e) + 1, f"{name} is delivered")
        assert seen[name].ids() == seen[name].ids(1) == sorted([*expected, (0, 10)]), name


def test_headers_are_a_column_where_they_are_asked_for(bench: Bench) -> None:
    topic = bench.create_topic()
    headers = [("a", b"1"), ("a", b"2"), ("null", None)]
    bench.produce(topic, [{"key": b"k", "value": b"v", "headers": headers}, {"value": None}])
    options = bench.options(topic, includeHeaders=True)
    seen = Seen()
    bench.drain(options, AckSink(seen, options))
    first, second = sorted(seen.rows, key=lambda row: row.offset)
    assert [(one.key, one.value) for one in first.headers] == headers
    assert (second.headers, second.key, second.value) == (None, None, None)
    assert "headers" not in bench.read(bench.options(topic)).columns


def test_nothing_of_a_paused_partition_is_delivered_nor_comes_back_until_it_is_published_to(
    bench: Bench,
) -> None:
    # p0: 0 delivered, left open -- paused -- 1 -- 0 is released -- [nothing of p0] -- publish: 0 1 2
    # p1:                                   -- 0: delivered
    topic, streams = bench.create_topic(2), f"streams-{uuid.uuid4().hex[:8]}"
    options = bench.options(topic, leaseTimeout="10m", streamsTopic=streams)
    first = (0, 0, 1)

    def ack_later(row: Any) -> Any:
        return Leave() if (row.partition, row.offset, row.delivery_count) == first else None

    with Client({"kafka.bootstrap.servers": bench.servers, "streamsTopic": streams}) as client:
        bench.produce(topic, [b"x"])
        seen = bench.plain(options, ack_later)
        bench.until(lambda: seen.ids(), "the first message is delivered")
        client.pause_stream(topic, partitions=[0])
        bench.until(lambda: (topic, 0) in seen.paused, "the query knows of the pause")
        bench.produce(topic, [b"x"])
        bench.produce(topic, [b"x"], partition=1)
        bench.until(lambda: (1, 0) in seen.ids(), "the other partition goes on")
        cell, zero = Cell(subscription="s", topic=topic, partition=0), OffsetSet.of((0, 1))
        bench.control.write(Release(cell=cell, offsets=zero, delivery_count=1, delay_ms=0))
        bench.until(lambda: (c := bench.cursor(topic)) is not None and c.available, "it is available")
        time.sleep(0.5)  # it asks for the next batch twenty times a second
        assert seen.ids() == [(0, 0), (1, 0)]
        client.publish(topic, b"x", partition=0)
        bench.until_acked(topic, {0: 3, 1: 1})
    assert (seen.ids(1), seen.ids(2)) == ([(0, 0), (0, 1), (0, 2), (1, 0)], [(0, 0)])
