"""Rescue before retention, with the source of Spark and both kinds of trackers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import spark_cursor_source as cursorq
from spark_cursor_source.admin.subscriptions import Subscriptions
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.tracker import _source_options
from spark_cursor_source.spark.tracker_source import MarkerDataSource, MarkerStreamReader
from spark_cursor_source.spark.views.outstanding import OutstandingReader
from tests.client.conftest import receive
from tests.kafka.control_plane import transaction
from tests.kafka.short_queue import MakeShort, ShortRig
from tests.kafka.ways import on_both_ways
from tests.spark.harness import start_patiently
from tests.spark.harness import wait_until as spark_until
from tests.spark.plain_query import PlainQuery
from tests.tracker.spark_twin import SparkTwin
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

RunQuery = Callable[..., PlainQuery]


@pytest.fixture
def run_query(tmp_path: Path) -> Iterator[RunQuery]:
    """``run_query(rig, fn=None, **options)``: a query of the rig's queue, with one checkpoint for all."""
    with ExitStack() as stack:

        def run(rig: ShortRig, fn: Callable[[Any], Any] | None = None, **options: str) -> PlainQuery:
            query = PlainQuery({**rig.source_options, **options}, tmp_path / "query", fn)
            stack.callback(query.stop)
            return query

        yield run


def until_rows(query: PlainQuery, count: int) -> None:
    def done() -> bool:
        if (failure := query.exception()) is not None:
            raise failure
        return len(query.rows) >= count

    wait_until(done, f"{count} rows", timeout_s=120)


def subscribe(rig: ShortRig, run_query: RunQuery, **options: str) -> None:
    """Run the query until its subscription exists."""
    query = run_query(rig, **options)
    rig.until_known()
    query.stop()


@on_both_ways
def test_a_query_that_was_stopped_reads_what_retention_has_taken(
    make_short: MakeShort, run_query: RunQuery, tmp_path: Path
) -> None:
    # subscribe, stop | 300 messages | retention takes all, then 30 more come | start: 330 rows in order
    rig = make_short(2)
    with SparkTwin(rig.tracker_options | {"checkpointLocation": str(tmp_path / "tracker")}) as tracker:
        subscribe(rig, run_query, includeHeaders="true")
        rig.produce(300, headers=[("one", b"1"), ("none", None)])
        rig.until_removed(300)
        rig.produce(30)
        query = run_query(rig, includeHeaders="true")
        until_rows(query, 330)
        assert len(set(query.ids())) == 330
        for partition in range(2):
            offsets = [row.offset for row in query.rows if row.partition == partition]
            assert offsets == sorted(offsets)
        rescued = next(row for row in query.rows if row.headers)
        assert [(one["key"], one["value"]) for one in rescued.headers] == [("one", b"1"), ("none", None)]
        assert {(row.topic, row.timestampType, row.delivery_count) for row in query.rows} == {
            (rig.topic, 0, 1)
        }
        assert all(row.key == b"k" + row.value for row in query.rows)
        rig.all_acked(330)
        query.stop()
        rig.until_freed()
        assert tracker.failure is None


def test_rescued_messages_keep_the_order_of_their_keys(make_short: MakeShort, run_query: RunQuery) -> None:
    # retention takes everything | key a fails at first, and b goes on | the query is stopped, and goes on
    rig = make_short()
    rig.tracker()
    subscribe(rig, run_query, ordering="key")
    producer = Producer(rig.control.config)
    for number in range(30):
        producer.produce(rig.topic, key=b"ab"[number % 2 :][:1], value=b"%d" % number)
    producer.flush(30)
    rig.until_removed(30)
    fails = [True]

    def fn(row: Any) -> Any:
        return cursorq.Release(delay="5s") if row.offset == 0 and fails[0] else None

    first = run_query(rig, fn, ordering="key")
    until_rows(first, 16)
    assert {row.offset for row in first.rows} == {0, *range(1, 30, 2)}, "of key a the first one only"
    first.stop()
    fails[0] = False
    second = run_query(rig, fn, ordering="key")
    until_rows(second, 15)
    assert [row.offset for row in second.rows] == list(range(0, 30, 2))
    rig.all_acked(30)


def test_a_rescued_message_has_the_filter_the_delay_and_the_redeliveries_of_others(
    make_short: MakeShort, run_query: RunQuery
) -> None:
    rig = make_short()
    rig.tracker()
    subscribe(rig, run_query, queueId="mine")
    producer = Producer(rig.control.config)
    for number in range(20):
        producer.produce(rig.topic, key=b"mine" if number % 2 else b"other", value=b"%d" % number)
    producer.produce(rig.topic, key=b"mine", value=b"late", headers=[("deliverAfter", b"20s")])
    producer.flush(30)
    rig.until_removed(21)
    given_back: set[int] = set()

    def fn(row: Any) -> Any:
        if row.offset == 3 and row.offset not in given_back:
            given_back.add(row.offset)
            raise ValueError("not now")
        return None

    query = run_query(rig, fn, queueId="mine")
    until_rows(query, 12)
    assert sorted(row.value for row in query.rows if row.delivery_count == 1)[:3] == [b"1", b"11", b"13"]
    assert [row.offset for row in query.rows if row.delivery_count == 2] == [3]
    assert b"late" in {row.value for row in query.rows}
    wait_until(lambda: not any(one.outstanding for one in rig.cursors()))
    query.stop()
    rig.until_freed()


def test_transactions_in_what_retention_has_taken_are_no_loss(
    make_short: MakeShort, run_query: RunQuery
) -> None:
    rig = make_short()
    rig.tracker()
    subscribe(rig, run_query)
    transaction(rig.control.config, [(rig.topic, {"value": b"%d" % number}) for number in range(3)])
    transaction(rig.control.config, [(rig.topic, {"value": b"no"})] * 2, commit=False)
    rig.produce(2, partition=0)
    rig.until_removed(9)
    query = run_query(rig)
    until_rows(query, 5)
    assert query.ids() == [(0, 0), (0, 1), (0, 2), (0, 7), (0, 8)]
    rig.all_acked(5)


def test_a_topic_that_is_created_again_delivers_none_of_the_old_messages(
    make_short: MakeShort, run_query: RunQuery
) -> None:
    rig = make_short()
    rig.tracker()
    subscribe(rig, run_query, failOnDataLoss="false")
    rig.produce(5)
    rig.until_removed(5)
    assert len(rig.copies()) == 5
    rig.recreate()
    rig.produce(1)
    query = run_query(rig, failOnDataLoss="false")
    until_rows(query, 1)
    assert [(row.offset, row.value) for row in query.rows] == [(0, b"0")]
    query.stop()
    rig.until_freed()


def test_the_copies_of_a_deleted_subscription_are_freed(make_short: MakeShort, run_query: RunQuery) -> None:
    rig = make_short()
    rig.tracker()
    subscribe(rig, run_query)
    rig.produce(5)
    rig.until_removed(5)
    assert len(rig.copies()) == 5
    with subscriptions(rig) as admin:
        admin.delete("s", force=True)
    rig.until_freed()


def subscriptions(rig: ShortRig) -> Subscriptions:
    servers = {"bootstrap.servers": rig.control.config["bootstrap.servers"]}
    names = rig.control.topics
    return Subscriptions(servers, **names, **rig.control.groups)


def test_a_tracker_that_is_killed_and_replaced_under_load_loses_nothing(
    make_short: MakeShort, run_query: RunQuery, tmp_path: Path
) -> None:
    # 600 messages in 24 s, and no query; every 6 s another tracker joins, and the one before is killed once
    # messages are copied again: on a busy machine a takeover may take longer than 6 s, and a tracker may be
    # silent for longer than a session of 2 s, which starts another takeover
    rig = make_short(2, retention_ms=40_000)
    conf, patient = tmp_path / "tracker.toml", {"rescueBefore": "36s", "sessionTimeout": "6s"}
    with ExitStack() as stack:
        current = stack.enter_context(rig.tracker_process(conf, **patient))
        subscribe(rig, run_query)
        load = rig.load(600, 24.0)
        kills = copied = 0
        while load.is_alive() or kills < 3:
            before = current
            current = stack.enter_context(rig.tracker_process(conf, **patient))
            load.join(6)
            wait_until(lambda so_far=copied: so_far < (found := len(rig.copies())) or found == 600)
            copied = len(rig.copies())
            os.kill(before.pid, signal.SIGKILL)
            kills += 1
        load.join()
        rig.until_removed(600)
        query = run_query(rig)
        until_rows(query, 600)
        assert {row.value for row in query.rows} == {b"%d" % number for number in range(600)}
        rig.all_acked(600)
        query.stop()
        rig.until_freed()


@pytest.mark.spark
def test_spark_itself_reads_and_acks_what_retention_has_taken(
    make_short: MakeShort, spark: SparkSession, tmp_path: Path
) -> None:
    rig = make_short()
    rig.tracker()
    rig.subscribe()
    rig.produce(40)
    rig.until_removed(40)
    seen: set[bytes] = set()

    def sink(rows: DataFrame, batch_id: int) -> None:
        seen.update(row.value for row in rows.collect())

    cursorq.register(spark)
    rows = spark.readStream.format("cursorq").options(**rig.source_options).load()
    writer = rows.writeStream.foreachBatch(cursorq.AckSink(sink, rig.source_options))
    query = start_patiently(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start)
    try:
        spark_until(lambda: len(seen) == 40, "Spark has read all", queries=[query])
        rig.all_acked(40)
    finally:
        query.stop()
    assert seen == {b"%d" % number for number in range(40)}


def test_the_tracker_query_gives_its_source_what_it_needs_to_rescue(tmp_path: Path) -> None:
    given = {
        "kafka.bootstrap.servers": "broker:9092",
        "checkpointLocation": str(tmp_path),
        "rescueBefore": "90m",
        "rescueTopic": "saved",
        "rescueMaxBytes": "1000",
    }
    source = MarkerDataSource(_source_options(TrackerOptions.parse(given)))
    reader = source.streamReader(StructType())
    assert isinstance(reader, MarkerStreamReader)
    options = reader._options
    assert options.rescue_before_ms == 90 * 60_000
    assert (options.rescue_topic, options.rescue_max_bytes) == ("saved", 1_000)


def test_the_view_of_outstanding_messages_has_the_content_of_rescued_ones(make_short: MakeShort) -> None:
    rig = make_short()
    rig.tracker(rescueBefore="30s")
    rig.subscribe()
    rig.produce(2)
    rig.until_removed(2)
    consumer = rig.consumer(None, "s", consumer_receive_buffer_capacity=2)
    receive(consumer, 2)
    view = ViewOptions.parse(rig.source_options | {"view": "outstanding", "includePayload": "true"})

    def outstanding() -> list[tuple[int, bytes]]:
        reader = OutstandingReader(view)
        rows = [row for part in reader.partitions() for one in reader.read(part) for row in one.to_pylist()]
        return [(row["offset"], row["value"]) for row in rows]

    wait_until(lambda: outstanding() == [(0, b"0"), (1, b"1")])
