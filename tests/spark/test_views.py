"""Batch reads on a real broker: every view says what is there, and changes nothing."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

import pytest
from chispa import assert_df_equality
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import spark_cursor_source as cursorq
from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cursor import (
    Available,
    CursorSnapshot,
    Delayed,
    HeldLetters,
    Lease,
    SavedState,
    Totals,
)
from spark_cursor_source.core.delivery_times import FirstDeliveries
from spark_cursor_source.core.marker import (
    Block,
    CloseBreaker,
    Delete,
    End,
    EndOffsetObserved,
    EndUpTo,
    Hello,
    KeepAlive,
    OpenBreaker,
    Reject,
    Release,
    Seek,
    Start,
)
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.errors import ConflictingOptions, InvalidOption, UnknownOption
from spark_cursor_source.options.view import View, ViewOptions
from spark_cursor_source.spark.source import CursorqDataSource
from spark_cursor_source.spark.views import view_columns
from spark_cursor_source.spark.views.columns import arrow_schema, ddl
from spark_cursor_source.spark.views.cursors import CursorsReader
from spark_cursor_source.spark.views.outstanding import outstanding_batches
from spark_cursor_source.tracker.dead_letter_copier import DeadLetterCopier
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import transaction
from tests.spark.control import Control, cell
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

AT_MS = time.time_ns() // 1_000_000 - 60_000  # of late: what is older than a topic's retention is removed
MINUTE_MS = 60_000


def some(*ranges: tuple[int, int]) -> OffsetSet:
    return OffsetSet.of(*ranges)


def same(df: DataFrame, expected: DataFrame) -> None:
    assert_df_equality(df, expected, ignore_row_order=True, ignore_nullable=True)


def offsets(df: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in df.select("partition", "offset").collect())


# -- columns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("headers", ["true", "false"])
def test_spark_and_arrow_agree_on_the_columns_of_every_view(
    spark: SparkSession, view: View, headers: str
) -> None:
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "subscription": "s", "view": view.value}
    columns = view_columns(ViewOptions.parse(options | {"includeHeaders": headers}))
    assert to_arrow_schema(StructType.fromDDL(ddl(columns)), timezone="UTC") == arrow_schema(columns)


# -- messages --------------------------------------------------------------------------------------------


def test_messages_have_the_columns_of_the_stream_and_no_delivery_count(control: Control) -> None:
    topic = control.create_topic(2)
    control.produce(topic, {"key": b"k", "value": b"v"}, {"value": None}, timestamp=AT_MS)
    control.produce(
        topic, {"value": b"w", "headers": [("h", b"1"), ("n", None)]}, timestamp=AT_MS, partition=1
    )
    expected = control.spark.createDataFrame(
        [
            (bytearray(b"k"), bytearray(b"v"), topic, 0, 0, 0, None, None),
            (None, None, topic, 0, 1, 0, None, None),
            (None, bytearray(b"w"), topic, 1, 0, 0, [("h", bytearray(b"1")), ("n", None)], None),
        ],
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestampType INT,"
        " headers ARRAY<STRUCT<key: STRING, value: BINARY>>, delivery_count INT",
    ).selectExpr(
        "key", "value", "topic", "partition", "offset", f"timestamp_millis({AT_MS}) timestamp",
        "timestampType", "headers", "delivery_count",
    )  # fmt: skip
    same(control.view("messages", subscribe=topic, includeHeaders=True), expected)
    same(control.view("messages", subscribe=topic), expected.drop("headers"))


def test_messages_are_the_default_and_leave_no_trace(control: Control) -> None:
    topic = control.create_topic()
    control.produce(topic, b"0", b"1")
    options = control.options(subscribe=topic, subscription="s")
    assert control.spark.read.format("cursorq").options(**options).load().count() == 2
    assert set(control.ends(control.names["markersTopic"]).values()) == {0}
    assert control.topics.committed("cursorq-s", [(topic, 0)]) == {}


def test_any_range_of_messages_can_be_read(control: Control) -> None:
    topic = control.create_topic(2)
    for n in range(10):
        control.produce(topic, b"%d" % n, timestamp=AT_MS + n, partition=0)
        control.produce(topic, b"%d" % n, timestamp=AT_MS + n, partition=1)

    def read(**more: Any) -> list[tuple[int, int]]:
        return offsets(control.view("messages", subscribe=topic, **more))

    start = f'{{"{topic}": {{"0": 7, "1": -2}}}}'
    end = f'{{"{topic}": {{"0": 9, "1": 2}}}}'
    assert read(startingOffsets=start, endingOffsets=end) == [(0, 7), (0, 8), (1, 0), (1, 1)]
    assert read(startingTimestamp=AT_MS + 8) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    by_time = f'{{"{topic}": {{"0": {AT_MS + 9}, "1": {AT_MS + 99}}}}}'
    assert read(startingOffsetsByTimestamp=by_time) == [(0, 9)]
    assert read(startingOffsets=f'{{"{topic}": {{"0": 5}}}}', endingOffsets=end) == [
        *((0, n) for n in range(5, 9)), (1, 0), (1, 1),
    ]  # fmt: skip
    assigned = control.view("messages", assign=f'{{"{topic}": [1]}}', startingTimestamp=AT_MS + 9)
    assert offsets(assigned) == [(1, 9)]


def test_a_range_is_read_by_as_many_tasks_as_the_options_ask_for(control: Control) -> None:
    topic = control.create_topic(2)
    control.produce(topic, *(b"%d" % n for n in range(100)))
    control.produce(topic, *(b"%d" % n for n in range(20)), partition=1)

    def tasks(**more: Any) -> list[int]:
        df = control.view("messages", subscribe=topic, **more)
        return sorted(df.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect())

    assert tasks() == [20, 100]
    assert tasks(maxRecordsPerPartition=40) == [20, 20, 40, 40]
    assert len(tasks(minPartitions=6)) >= 6


def test_with_a_subscription_each_message_says_how_often_it_was_delivered(control: Control) -> None:
    # 0,1 acked; 2 leased for the 3rd time; 3 delayed; 4 acked; 5 available; from 6 on never delivered
    topic = control.create_topic(2)
    control.produce(topic, *(b"%d" % n for n in range(8)))
    control.produce(topic, b"0", partition=1)
    control.put(
        CursorSnapshot(
            cell=cell(topic),
            read_position=6,
            next_marker=0,
            leases=((Lease(AT_MS, 3, "run"), some((2, 3))),),
            delayed=((Delayed(AT_MS, 2, False), some((3, 4))),),
            available=((Available(1, False), some((5, 6))),),
        )
    )
    rows = control.view("messages", subscribe=topic, subscription="s", maxRecordsPerPartition=3).collect()
    counts = {(row.partition, row.offset): row.delivery_count for row in rows}
    in_0 = {(0, n): count for n, count in enumerate([None, None, 3, 2, None, 1, 0, 0])}
    assert counts == in_0 | {(1, 0): 0}
    other = control.view("messages", subscribe=topic, subscription="other").collect()
    assert {row.delivery_count for row in other} == {0}


def test_messages_of_transactions_are_read_as_isolation_says(control: Control) -> None:
    topic = control.create_topic()
    for commit in (True, False):
        transaction(control.config, [(topic, {"value": b"x"})], commit=commit)
    assert offsets(control.view("messages", subscribe=topic)) == [(0, 0)]
    assert offsets(control.view("messages", subscribe=topic, isolation="read_uncommitted")) == [
        (0, 0),
        (0, 2),
    ]


def test_messages_of_one_queue_id_are_those_with_that_key(control: Control) -> None:
    topic = control.create_topic()
    control.produce(topic, *({"key": b"q%d" % (n % 2), "value": b"v"} for n in range(4)))
    assert offsets(control.view("messages", subscribe=topic, queueId="q1")) == [(0, 1), (0, 3)]


def test_a_range_that_is_not_there_is_an_error_unless_loss_is_tolerated(
    control: Control, admin: AdminClient
) -> None:
    topic = control.create_topic()
    control.produce(topic, *(b"%d" % n for n in range(10)))
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(20)
    removed = {"startingOffsets": f'{{"{topic}": {{"0": 2}}}}'}
    with pytest.raises(PySparkException, match=r"are not available. The partition has 4 to 10"):
        control.view("messages", subscribe=topic, **removed).count()
    beyond = {"endingOffsets": f'{{"{topic}": {{"0": 12}}}}'}
    with pytest.raises(PySparkException, match="partition 0 can be read up to offset 10 now"):
        control.view("messages", subscribe=topic, **beyond).count()
    tolerant = control.view("messages", subscribe=topic, failOnDataLoss=False, **removed, **beyond)
    assert offsets(tolerant) == [(0, n) for n in range(4, 10)]
    assert control.view("messages", subscribe=topic).count() == 6


def test_a_partition_that_is_not_read_cannot_be_given_a_position(control: Control) -> None:
    topic = control.create_topic()
    for option in ("startingOffsets", "startingOffsetsByTimestamp", "endingOffsets"):
        with pytest.raises(
            PySparkException, match=rf"'{option}' = 'ordres 0'.* that are read are {topic} 0\."
        ):
            control.view("messages", subscribe=topic, **{option: '{"ordres": {"0": 5}}'}).count()
    with pytest.raises(PySparkException, match=r"'assign'.*has 1 partitions, counted from 0"):
        control.view("messages", assign=f'{{"{topic}": [3]}}').count()
    with pytest.raises(PySparkException, match="These topics do not exist: 'nowhere'"):
        control.view("messages", subscribe="nowhere").count()


def test_a_pattern_reads_neither_control_topics_nor_the_dead_letters_of_its_own_queues(
    control: Control,
) -> None:
    name = f"pat-{uuid.uuid4().hex[:8]}"
    for topic in (f"{name}-a", f"{name}-b", f"{name}-a-s-DLQ"):
        control.create_topic(name=topic)
        control.produce(topic, b"v")
    pattern = f"{name}.*|{control.names['markersTopic']}"
    control.send(End(cell=cell("t"), offsets=some((0, 1))))
    topics = {row.topic for row in control.view("messages", subscribePattern=pattern).collect()}
    assert topics == {f"{name}-a", f"{name}-b"}


def test_a_frame_of_messages_keeps_its_range_and_the_next_one_goes_on(control: Control) -> None:
    topic = control.create_topic()
    control.produce(topic, b"0")
    df = control.view("messages", subscribe=topic)
    assert df.count() == 1
    control.produce(topic, b"1")
    assert len(df.collect()) == 1
    assert control.view("messages", subscribe=topic).count() == 2


def test_options_that_cannot_be_are_refused_when_the_view_is_loaded(control: Control) -> None:
    with pytest.raises(PySparkException, match=r"'endingoffset'. Did you mean 'endingOffsets'"):
        control.view("messages", subscribe="t", endingOffset="latest")
    with pytest.raises(PySparkException, match="a batch read needs none with view=messages"):
        control.spark.read.format("cursorq").options(**control.options(subscribe="t")).load()
    with pytest.raises(PySparkException, match="Option 'view' = 'curses'"):
        control.view("curses")


def test_a_stream_has_no_view() -> None:
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "subscription": "s", "view": "cursors"}
    with pytest.raises(UnknownOption, match=r"'view': it belongs to a batch read, spark\.read"):
        CursorqDataSource(options).streamReader(StructType())


# -- cursors ---------------------------------------------------------------------------------------------

CURSORS = (
    "subscription STRING, topic STRING, partition INT, mark_delete BIGINT, read_position BIGINT,"
    " outstanding BIGINT, leased BIGINT, available BIGINT, delayed BIGINT,"
    " blocked BIGINT, blocking BIGINT, held BIGINT,"
    " oldest_unacked TIMESTAMP, log_end BIGINT, backlog BIGINT, delivered BIGINT, acked BIGINT,"
    " redelivered BIGINT, dead_lettered BIGINT, expired BIGINT, breaker_opened TIMESTAMP,"
    " trouble STRING, next_try TIMESTAMP, end_trouble STRING"
)


def test_a_cursor_says_where_the_subscription_stands(control: Control) -> None:
    # 0-2 acked | 3 leased | 4 acked | 5 delayed | 6 held | 7 waits for 3 | 8 available | 9 acked
    # 10, 11 not read
    topic = control.create_topic(3)
    control.produce(topic, *({"value": b"v", "timestamp": AT_MS + n} for n in range(12)))
    control.produce(topic, *({"value": b"v", "timestamp": AT_MS + n} for n in range(4)), partition=1)
    control.put(
        CursorSnapshot(
            cell=cell(topic),
            read_position=10,
            next_marker=0,
            leases=((Lease(AT_MS, 1, "run"), some((3, 4))),),
            delayed=((Delayed(AT_MS, 2, False), some((5, 6))),),
            available=((Available(1, True), some((8, 9))),),
            held=((HeldLetters(1, "no", "", 0, "no leader", AT_MS + 7, 2), some((6, 7))),),
            blocked=Blocked(offsets=some((7, 8)), behind=(3,), delivery_counts=(0,)),
            totals=Totals(delivered=12, acked=6, redelivered=2, dead_lettered=1, expired=3),
            breaker=Breaker(trip="t", opened_ms=AT_MS, closes_ms=AT_MS + 9),
        ),
        CursorSnapshot(cell=cell(topic, 1), read_position=2, next_marker=0),
        CursorSnapshot(cell=cell(topic, 2), read_position=0, next_marker=0),
    )
    df = control.view("cursors")
    same(
        df.drop("ack_holes"),
        control.frame(
            CURSORS,
            (
                "s",
                topic,
                0,
                2,
                10,
                5,
                1,
                2,
                1,
                1,
                1,
                1,
                AT_MS + 3,
                12,
                7,
                12,
                6,
                2,
                1,
                3,
                AT_MS,
                "no leader",
                AT_MS + 7,
                None,
            ),
            ("s", topic, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, AT_MS + 2, 4, 2, 0, 0, 0, 0, 0, *[None] * 4),
            ("s", topic, 2, -1, 0, 0, 0, 0, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, 0, 0, *[None] * 4),
        ),
    )
    holes = {row.partition: [tuple(one) for one in row.ack_holes] for row in df.collect()}
    assert holes == {0: [(4, 5), (9, 10)], 1: [], 2: []}


def test_a_frame_of_cursors_shows_what_has_moved_since(control: Control) -> None:
    topic = control.create_topic()
    control.put(CursorSnapshot(cell=cell(topic), read_position=5, next_marker=0))
    df = control.view("cursors")
    assert [row.read_position for row in df.collect()] == [5]
    control.put(CursorSnapshot(cell=cell(topic), read_position=7, next_marker=1))
    assert [row.read_position for row in df.collect()] == [7]


def test_cursors_as_of_a_past_time_are_those_of_then(control: Control) -> None:
    topic = control.create_topic()
    here = cell(topic)
    saved = SavedState(
        name="then", at_ms=AT_MS, read_position=5, next_marker=0, outstanding=((1, some((2, 4))),)
    )
    control.put(CursorSnapshot(cell=here, read_position=9, next_marker=0, saved=(saved,)))
    assert [row.read_position for row in control.view("cursors").collect()] == [9]
    (row,) = control.view("cursors", asOf=AT_MS).collect()
    assert (row.read_position, row.mark_delete, row.outstanding) == (5, 1, 2)
    assert control.view("cursors", asOf="2001-01-01T00:00:00Z").collect() == []
    with pytest.raises(ConflictingOptions, match="the view stats has no past"):
        ViewOptions.parse({"kafka.bootstrap.servers": "b:1", "view": "stats", "asOf": "5"})
    with pytest.raises(InvalidOption, match="it is not an instant"):
        CursorsReader(
            ViewOptions.parse({"kafka.bootstrap.servers": "b:1", "view": "cursors", "asOf": "yesterday"})
        )


def test_cursors_are_those_of_the_subscription_and_topics_asked_for(control: Control) -> None:
    one, two = control.create_topic(2), control.create_topic(2)
    for subscription in ("a", "b"):
        for topic in (one, two):
            for partition in (0, 1):
                of = cell(topic, partition, subscription)
                control.put(CursorSnapshot(cell=of, read_position=1, next_marker=0))

    def found(**more: Any) -> list[tuple[str, str, int]]:
        rows = control.view("cursors", **more).collect()
        return sorted((row.subscription, row.topic, row.partition) for row in rows)

    assert len(found()) == 8
    assert len(found(minPartitions=3)) == 8
    assert found(subscription="a", subscribe=one) == [("a", one, 0), ("a", one, 1)]
    assert found(subscribePattern=f"{two}.*", subscription="b") == [("b", two, 0), ("b", two, 1)]
    assert found(assign=f'{{"{one}": [1]}}') == [("a", one, 1), ("b", one, 1)]
    with pytest.raises(PySparkException, match=r"no cursor of subscription 'c'. Its subscriptions are: a, b"):
        found(subscription="c")
    with pytest.raises(PySparkException, match=r"no cursor of queue topic 'no-such'. Its topics are"):
        found(subscribe="no-such", subscription="a")


def test_the_oldest_message_is_looked_for_behind_gaps_and_removed_records(
    control: Control, admin: AdminClient
) -> None:
    # offsets 0: committed, 1: its control record, 2: aborted, 3: control record, 4: a message, 5, 6 ...
    topic = control.create_topic()
    for commit in (True, False):
        transaction(control.config, [(topic, {"value": b"x", "timestamp": AT_MS})], commit=commit)
    control.produce(topic, *({"value": b"v", "timestamp": AT_MS + n} for n in range(4, 10)))

    def oldest(*outstanding: tuple[int, int], read_position: int = 8) -> int | None:
        control.put(
            CursorSnapshot(
                cell=cell(topic),
                read_position=read_position,
                next_marker=0,
                available=((Available(1, False), some(*outstanding)),) if outstanding else (),
            )
        )
        row = control.view("cursors").selectExpr("unix_millis(oldest_unacked) at").first()
        return None if row is None else row.at

    assert oldest((1, 4), (6, 7)) == AT_MS + 6, "1 to 3 are no messages, 4 and 5 are acked"
    assert oldest((1, 4)) == AT_MS + 8, "the first that was never read"
    assert oldest(read_position=2) == AT_MS + 4
    assert oldest(read_position=10) is None
    for future in admin.delete_records([TopicPartition(topic, 0, 7)]).values():
        future.result(20)
    assert oldest((4, 8)) == AT_MS + 7


def test_a_cursor_outlives_its_topic(control: Control) -> None:
    control.put(
        CursorSnapshot(
            cell=cell("gone"),
            read_position=3,
            next_marker=0,
            available=((Available(1, False), some((1, 2))),),
        )
    )
    row = control.view("cursors").first()
    assert row is not None
    assert (row.topic, row.outstanding, row.log_end, row.backlog, row.oldest_unacked) == (
        "gone", 1, None, None, None,
    )  # fmt: skip


def test_a_cursor_with_a_million_holes_in_parts_shows_all_of_them(control: Control) -> None:
    odd = OffsetSet.from_offsets(range(1, 2_000_000, 2))
    snapshot = CursorSnapshot(
        cell=cell("t"), read_position=2_000_000, next_marker=0, available=((Available(1, False), odd),)
    )
    control.put(snapshot, max_bytes=50_000)
    row = (
        control.view("cursors")
        .selectExpr(
            "size(ack_holes) n", "ack_holes[0] first", "element_at(ack_holes, -1) last", "outstanding"
        )
        .first()
    )
    assert row is not None
    assert (row.n, tuple(row.first), tuple(row.last), row.outstanding) == (
        999_999, (2, 3), (1_999_998, 1_999_999), 1_000_000,
    )  # fmt: skip


@pytest.mark.parametrize("view", ["cursors", "stats", "outstanding"])
def test_without_a_cursors_topic_the_view_says_so(control: Control, view: str) -> None:
    with pytest.raises(PySparkException, match="These topics do not exist: 'no-cursors'"):
        control.view(view, cursorsTopic="no-cursors").count()


# -- stats -----------------------------------------------------------------------------------------------


def test_the_stats_of_a_subscription_are_one_row_with_its_consumers(control: Control) -> None:
    topic = control.create_topic(2)
    control.produce(topic, *({"value": b"v", "timestamp": AT_MS + n} for n in range(12)))
    control.put(
        CursorSnapshot(
            cell=cell(topic),
            read_position=10,
            next_marker=0,
            leases=((Lease(AT_MS, 1, "run"), some((3, 4))),),
            delayed=((Delayed(AT_MS, 2, False), some((5, 6))),),
            blocked=Blocked(offsets=some((6, 8)), behind=(3, 3), delivery_counts=(0, 1)),
            totals=Totals(delivered=12, acked=6, redelivered=2, unknown_ends=1, overlapped=4),
        ),
        CursorSnapshot(cell=cell(topic, 1), read_position=0, next_marker=0),
    )
    member = Consumer({**control.config, "group.id": "etl-s", "client.id": "kcat"})
    member.subscribe([topic])
    wait_until(lambda: member.poll(0.1) is not None or bool(member.assignment()))
    (row,) = control.view("stats", subscribe=topic, groupIdPrefix="etl").collect()
    member.close()
    assert (row.topic, row.subscription, row.backlog, row.outstanding, row.leased) == (topic, "s", 6, 4, 1)
    assert (row.available, row.delayed, row.held, row.ack_holes) == (1, 1, 0, 2)
    assert (row.blocked, row.blocking) == (2, 1)
    assert (row.delivered, row.acked, row.unknown_ends, row.overlapped) == (12, 6, 1, 4)
    assert row.oldest_unacked_age_ms == 8
    assert [tuple(one) for one in row.positions] == [(0, 2, 10, 12, 6), (1, -1, 0, 0, 0)]
    assert [(one.client_id, one.host, one.partitions) for one in row.consumers] == [
        ("kcat", "127.0.0.1", [0, 1])
    ]
    with pytest.raises(PySparkException, match="no cursor of subscription 'nobody'"):
        control.view("stats", subscription="nobody").collect()


# -- outstanding -----------------------------------------------------------------------------------------

OUTSTANDING = (
    "subscription STRING, topic STRING, partition INT, offset BIGINT, state STRING, delivery_count INT,"
    " deadline TIMESTAMP, run_id STRING, behind BIGINT"
)


def test_each_outstanding_message_says_who_holds_it_and_how_long(control: Control) -> None:
    control.put(
        CursorSnapshot(
            cell=cell("t"),
            read_position=10,
            next_marker=0,
            leases=(
                (Lease(AT_MS, 1, "run-1"), some((0, 2))),
                (Lease(AT_MS + MINUTE_MS, 2, ""), some((4, 5))),
            ),
            delayed=((Delayed(AT_MS + 5_000, 3, True), some((6, 7))),),
            available=((Available(4, False), some((8, 9))),),
            held=((HeldLetters(5, "no"), some((9, 10))),),
            blocked=Blocked(offsets=some((2, 4), (7, 8)), behind=(1, 0, 4), delivery_counts=(0, 2, 0)),
        ),
        CursorSnapshot(cell=cell("t", 1, "b"), read_position=5, next_marker=0),
    )
    same(
        control.view("outstanding"),
        control.frame(
            OUTSTANDING,
            ("s", "t", 0, 0, "leased", 1, AT_MS, "run-1", None),
            ("s", "t", 0, 1, "leased", 1, AT_MS, "run-1", None),
            ("s", "t", 0, 2, "blocked", 0, None, None, 1),
            ("s", "t", 0, 3, "blocked", 2, None, None, 0),
            ("s", "t", 0, 4, "leased", 2, AT_MS + MINUTE_MS, None, None),
            ("s", "t", 0, 6, "delayed", 3, AT_MS + 5_000, None, None),
            ("s", "t", 0, 7, "blocked", 0, None, None, 4),
            ("s", "t", 0, 8, "available", 4, None, None, None),
            ("s", "t", 0, 9, "held", 5, None, None, None),
        ),
    )
    assert control.view("outstanding", subscription="b").count() == 0
    with pytest.raises(PySparkException, match="UnknownSubscription"):
        control.view("outstanding", subscription="nobody").count()


def test_outstanding_messages_have_their_payload_and_carry_the_options_of_an_action(control: Control) -> None:
    # log:     (0) is removed by retention, 1 ... 9 are there
    # cursor:  0 and 4 leased, 7 available
    topic = control.create_topic()
    control.produce(topic, *({"key": b"k%d" % n, "value": b"v%d" % n} for n in range(10)), timestamp=AT_MS)
    admin = AdminClient(control.config)
    for removed in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
        removed.result(timeout=30)
    control.put(
        CursorSnapshot(
            cell=cell(topic),
            read_position=10,
            next_marker=0,
            leases=((Lease(AT_MS, 1, "run-1"), some((0, 1), (4, 5))),),
            available=((Available(2, False), some((7, 8))),),
        )
    )
    options = control.options(subscribe=topic, subscription="s")
    rows = cursorq.outstanding(control.spark, options)
    same(
        # computed again, a column does not carry the options
        rows.drop("timestamp")
        .selectExpr(
            "* EXCEPT (offset, key, value)", "offset + 0 offset", "STRING(key) key", "STRING(value) value"
        )
        .select(*rows.drop("timestamp").columns),
        control.frame(
            f"{OUTSTANDING}, key STRING, value STRING",
            ("s", topic, 0, 0, "leased", 1, AT_MS, "run-1", None, None, None),
            ("s", topic, 0, 4, "leased", 1, AT_MS, "run-1", None, "k4", "v4"),
            ("s", topic, 0, 7, "available", 2, None, None, None, "k7", "v7"),
        ),
    )
    same(
        rows.selectExpr("offset + 0 offset", "timestamp"),
        control.frame("offset BIGINT, timestamp TIMESTAMP", (0, None), (4, AT_MS), (7, AT_MS)),
    )
    assert cursorq.outstanding(control.spark, options, payload=False).columns == rows.columns[:9]
    assert cursorq.outstanding(control.spark, options | {"includeHeaders": "true"}).columns[-1] == "headers"
    assert cursorq.reject(rows.where("value = 'v7'"), reason="given up") == 1
    (rejected,) = [one for one in control.marked() if isinstance(one, Reject)]
    assert (rejected.cell, list(rejected.offsets), rejected.delivery_count) == (cell(topic), [7], 2)


def test_a_million_outstanding_messages_are_listed(control: Control) -> None:
    every_third = OffsetSet.from_offsets(range(0, 3_000_000, 3))
    control.put(
        CursorSnapshot(
            cell=cell("t"),
            read_position=3_000_000,
            next_marker=0,
            leases=((Lease(AT_MS, 1, "run"), every_third),),
        )
    )
    row = (
        control.view("outstanding").selectExpr("count(*) n", "sum(offset) total", "max(offset) last").first()
    )
    assert row is not None
    assert (row.n, row.total, row.last) == (1_000_000, 3 * sum(range(1_000_000)), 2_999_997)


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.integers(3, 200_000),
        st.tuples(
            st.sampled_from(["leased", "delayed", "available", "blocked"]),
            st.integers(1, 4),
            st.integers(1, 3),
        ),
        max_size=300,
    )
)
def test_the_rows_are_those_that_a_loop_would_make(held: dict[int, tuple[str, int, int]]) -> None:
    groups: dict[tuple[str, int, int], list[int]] = {}
    for offset, group in held.items():
        groups.setdefault(group, []).append(offset)
    sets = [(*group, OffsetSet.from_offsets(members)) for group, members in groups.items()]
    waits = sorted((offset, n, at) for offset, (state, n, at) in held.items() if state == "blocked")
    cursor = CursorSnapshot(
        cell=cell("t", 3),
        read_position=200_001,
        next_marker=0,
        leases=tuple((Lease(at, n, f"run-{at}"), them) for state, n, at, them in sets if state == "leased"),
        delayed=tuple((Delayed(at, n, at == 1), them) for state, n, at, them in sets if state == "delayed"),
        available=tuple((Available(n, at == 1), them) for state, n, at, them in sets if state == "available"),
        blocked=Blocked(
            offsets=OffsetSet.from_offsets([offset for offset, _, _ in waits]),
            behind=tuple(offset - at for offset, _, at in waits),
            delivery_counts=tuple(n for _, n, _ in waits),
        ),
    )
    rows = [row for batch in outstanding_batches(cursor) for row in batch.to_pylist()]
    names = ("state", "delivery_count", "run_id", "behind")
    assert {row["offset"]: tuple(row[name] for name in names) for row in rows} == {
        offset: (
            *(state, n, f"run-{at}" if state == "leased" else None),
            offset - at if state == "blocked" else None,
        )
        for offset, (state, n, at) in held.items()
    }
    assert len(rows) == len(held)


# -- dead letters ----------------------------------------------------------------------------------------


def dead_letter(control: Control, template: str, *decisions: DeadLetter) -> None:
    """Copy messages to their dead letters as the tracker does."""
    policy = RedeliveryPolicy(dead_letter_topic=template)
    copier = DeadLetterCopier(control.config, control.topics, lambda subscription: policy, patience_ms=30_000)
    copier.copy(decisions)
    copier.close()


def given_up(topic: str, offset: int, partition: int = 0, subscription: str = "s") -> DeadLetter:
    return DeadLetter(
        cell=cell(topic, partition, subscription),
        offsets=some((offset, offset + 1)),
        delivery_count=5,
        reason=f"reason {offset}",
        error="boom" if offset else "",
        last_delivery_ms=AT_MS if offset else None,
        first_deliveries=FirstDeliveries(((1, AT_MS - 60_000),)),
    )


DEAD_LETTERS = (
    "value STRING, topic STRING, delivery_count INT, reason STRING, subscription STRING, origin_topic STRING,"
    " origin_partition INT, origin_offset BIGINT, error STRING, first BIGINT, last BIGINT, at BIGINT"
)


def test_a_dead_letter_is_whole_and_says_where_it_comes_from_and_why(control: Control) -> None:
    topic = control.create_topic(2)
    control.produce(topic, b"0", b"1", timestamp=AT_MS)
    headers = [("own", b"h"), ("cursorq-error", b"of another life")]
    control.produce(topic, {"value": b"2", "headers": headers}, partition=1, timestamp=AT_MS)
    dead_letter(control, "{topic}-{subscription}-DLQ", given_up(topic, 1), given_up(topic, 0, partition=1))
    control.produce(f"{topic}-s-DLQ", b"stray")
    # A tracker that dies between its copies and its transaction writes them again.
    dead_letter(control, "{topic}-{subscription}-DLQ", given_up(topic, 1))
    # An operator brought this message back, and it expired again.
    again = replace(given_up(topic, 0, partition=1), generation_ms=AT_MS)
    dead_letter(control, "{topic}-{subscription}-DLQ", again, again)
    df = control.view("deadletters", subscribe=topic, subscription="s")
    same(
        df.selectExpr(
            "string(value) value",
            *("topic", *df.columns[7:-3]),
            "unix_millis(first_delivery) first",
            "unix_millis(last_delivery) last",
            "unix_millis(origin_timestamp) at",
        ),
        control.frame(
            DEAD_LETTERS,
            ("1", f"{topic}-s-DLQ", 5, "reason 1", "s", topic, 0, 1, "boom", AT_MS - 60_000, AT_MS, AT_MS),
            *[("2", f"{topic}-s-DLQ", 5, "reason 0", "s", topic, 1, 0, None, None, None, AT_MS)] * 2,
            ("stray", f"{topic}-s-DLQ", *[None] * 10),
        ),
    )
    whole = control.view("deadletters", subscribe=topic, subscription="s", includeHeaders=True)
    row = whole.where("value = '2'").selectExpr("*", "unix_millis(timestamp) at").first()
    assert row is not None
    assert (row.at > AT_MS, row.headers[0].key, bytes(row.headers[0].value)) == (True, "own", b"h")


def test_of_headers_that_stand_twice_or_are_damaged_the_last_counts_or_none(control: Control) -> None:
    dead = control.create_topic()
    control.produce(
        dead,
        {"value": b"0", "headers": [("cursorq-offset", b"3"), ("x", b"y"), ("cursorq-offset", b"7")]},
        {"value": b"1", "headers": [("cursorq-offset", b"seven"), ("cursorq-reason", b"\xff")]},
        {"value": b"2", "headers": [("cursorq-offset", None), ("cursorq-partition", b"99999999999999")]},
    )
    df = control.view("deadletters", deadLetterTopic=dead).orderBy("offset")
    found = [(row.origin_offset, row.origin_partition, row.reason) for row in df.collect()]
    assert found == [(7, None, None), (None, None, "\ufffd"), (None, None, None)]


def test_one_topic_of_all_dead_letters_is_looked_through_by_origin(control: Control) -> None:
    one, two, dead = control.create_topic(2), control.create_topic(), control.create_topic()
    control.produce(one, b"0", b"1")
    control.produce(one, b"0", partition=1)
    control.produce(two, b"0")
    dead_letter(
        control,
        dead,
        given_up(one, 0, subscription="a"),
        given_up(one, 1, subscription="b"),
        given_up(one, 0, partition=1, subscription="a"),
        given_up(two, 0, subscription="a"),
    )

    def found(**more: Any) -> list[tuple[str, int, int, str]]:
        rows = control.view("deadletters", deadLetterTopic=dead, **more).collect()
        return sorted((r.origin_topic, r.origin_partition, r.origin_offset, r.subscription) for r in rows)

    assert len(found()) == 4
    assert found(subscription="b") == [(one, 0, 1, "b")]
    assert found(subscribe=two) == [(two, 0, 0, "a")]
    assert found(assign=f'{{"{one}": [1]}}', subscription="a") == [(one, 1, 0, "a")]


def test_where_nothing_was_given_up_there_are_no_dead_letters(control: Control) -> None:
    topic = control.create_topic()
    assert control.view("deadletters", subscribe=topic, subscription="s").collect() == []


# -- markers ---------------------------------------------------------------------------------------------

MARKERS = (
    "version INT, type STRING, subscription STRING, topic STRING, partition INT, messages BIGINT,"
    " delivery_count INT, lease_ms BIGINT, delay_ms BIGINT, reason STRING, run_id STRING, position BIGINT"
)


def test_every_kind_of_marker_is_shown_decoded(control: Control) -> None:
    of, both = cell("t", 1), some((3, 5), (7, 8))
    control.send(
        Hello(cell=of, run_id="run", position=3),
        Start(cell=of, offsets=both, lease_ms=60_000, delivery_count=1, run_id="run"),
        KeepAlive(cell=of, offsets=both, lease_ms=30_000, run_id="run"),
        End(cell=of, offsets=both),
        Release(cell=of, offsets=both, delivery_count=2, delay_ms=500, reason="why"),
        Reject(cell=of, offsets=both, delivery_count=3, reason="no"),
        EndUpTo(cell=of, position=9),
        Seek(cell=of, position=4),
        Release(cell=of, offsets=both, delivery_count=1, due_ms=AT_MS),
        Block(cell=of, offsets=both, behind=(1, 1, 2), delivery_count=2),
    )
    df = control.view("markers")
    same(
        df.drop("marker_partition", "marker_offset", "timestamp", "offsets", "due", "behind", "error"),
        control.frame(
            MARKERS,
            (2, "HELLO", "s", "t", 1, None, None, None, None, None, "run", 3),
            (2, "START", "s", "t", 1, 3, 1, 60_000, None, None, "run", None),
            (2, "KEEPALIVE", "s", "t", 1, 3, None, 30_000, None, None, "run", None),
            (2, "END", "s", "t", 1, 3, None, None, None, None, None, None),
            (2, "RELEASE", "s", "t", 1, 3, 2, None, 500, "why", None, None),
            (2, "REJECT", "s", "t", 1, 3, 3, None, None, "no", None, None),
            (2, "END_UP_TO", "s", "t", 1, None, None, None, None, None, None, 9),
            (2, "SEEK", "s", "t", 1, None, None, None, None, None, None, 4),
            (2, "RELEASE", "s", "t", 1, 3, 1, None, None, None, None, None),
            (2, "BLOCK", "s", "t", 1, 3, 2, None, None, None, None, None),
        ),
    )
    rows = df.orderBy("marker_offset").selectExpr("*", "unix_millis(due) due_ms").collect()
    assert [row.marker_offset for row in rows] == list(range(10))
    assert [row.due_ms for row in rows] == [None] * 8 + [AT_MS, None]
    assert [row.behind for row in rows] == [None] * 9 + [[1, 1, 2]]
    assert {row.marker_partition for row in rows} == {of.control_partition(2)}
    assert [tuple(one) for one in rows[1].offsets] == [(3, 5), (7, 8)]
    assert rows[0].offsets is None
    assert all(row.timestamp is not None and row.error is None for row in rows)


def test_markers_of_the_breaker_the_ttl_and_the_operator_are_shown(control: Control) -> None:
    of = cell("t", 1)
    control.send(
        CloseBreaker(cell=of),
        OpenBreaker(cell=of, trip="why"),
        EndOffsetObserved(cell=of, position=8),
        Delete(cell=of),
    )
    rows = control.view("markers").orderBy("marker_offset").collect()
    assert [(row.type, row.partition, row.reason, row.position, row.error) for row in rows] == [
        ("RESUME", 1, None, None, None),
        ("HOLD", 1, "why", None, None),
        ("LOG_END", 1, None, 8, None),
        ("DELETE", 1, None, None, None),
    ]


def test_markers_of_kafka_mq_go_are_shown_with_their_queue(control: Control) -> None:
    start = marker_wire.MarkerV1(
        queue_id=b"q1", type=0, partition=3, offset=8, redeliver_after_ms=60_000, key=b"q1", value=b"x"
    )
    markers = control.names["markersTopic"]
    control.produce(markers, {"key": b"q1", "value": marker_wire.encode_v1(start)})
    row = control.view("markers", subscription="q1").first()
    assert row is not None
    assert (row.version, row.type, row.subscription, row.topic, row.partition) == (1, "START", "q1", None, 3)
    assert ([tuple(one) for one in row.offsets], row.messages, row.lease_ms) == ([(8, 9)], 1, 60_000)
    assert control.view("markers", subscription="q2").count() == 0


def test_what_is_no_marker_is_shown_with_the_reason_and_nothing_else(control: Control) -> None:
    markers, of = control.names["markersTopic"], cell("t")
    control.produce(
        markers,
        {"key": None, "value": b"x"},
        {"key": of.key, "value": b""},
        {"key": of.key, "value": b"\xff\xff"},
        {"key": b"q1", "value": bytes.fromhex("08091a020803")},
    )
    control.send(End(cell=of, offsets=some((0, 1))))
    df = control.view("markers", subscription="somebody-else")
    rows = df.orderBy("marker_offset").collect()
    assert [row.error for row in rows] == [
        "the record has no key",
        "the record has no value",
        "the value is not a protobuf message of markers",
        "its version 9 is unknown",
    ]
    said = df.columns[3:-1]
    assert all(row[name] is None for row in rows for name in said)


def test_markers_are_those_of_the_subscription_and_topics_asked_for(control: Control) -> None:
    for subscription in ("a", "b"):
        for topic in ("t", "u"):
            control.send(End(cell=cell(topic, 0, subscription), offsets=some((0, 1))))
    assert control.view("markers").count() == 4
    assert control.view("markers", minPartitions=4).count() == 4
    rows = control.view("markers", subscription="b", subscribe="u").collect()
    assert [(row.subscription, row.topic) for row in rows] == [("b", "u")]
    with pytest.raises(PySparkException, match="These topics do not exist: 'no-markers'"):
        control.view("markers", markersTopic="no-markers").count()
