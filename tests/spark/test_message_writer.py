"""Writes of messages on a real broker: what rows say is what records are, or the write fails."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from spark_cursor_source.client import Client
from spark_cursor_source.core.marker import Start
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.wire.deliver_at import due
from tests.kafka.control_plane import read_all
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]

MESSAGE = (
    "key STRING, value BINARY, topic STRING, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


class Queues:
    """A session that writes, and a look at what is in topics."""

    def __init__(self, spark: SparkSession, servers: str, create_topic: Callable[..., str]) -> None:
        cursorq.register(spark)
        self.spark, self.create_topic = spark, create_topic
        self.config = {"bootstrap.servers": servers}

    def rows(self, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), schema).coalesce(1)

    def write(self, rows: DataFrame, *, mode: str = "append", **options: str) -> None:
        servers = self.config["bootstrap.servers"]
        writer = rows.write.format("cursorq").option("kafka.bootstrap.servers", servers)
        writer.options(**options).mode(mode).save()

    def stream(self, directory: Path, rows: DataFrame, **options: str) -> DataStreamWriter:
        """A stream of rows that are put into a file first."""
        rows.write.mode("append").parquet(str(directory / "rows"))
        stream = self.spark.readStream.schema(rows.schema).parquet(str(directory / "rows"))
        return self.streamed(directory, stream, **options)

    def streamed(self, directory: Path, stream: DataFrame, **options: str) -> DataStreamWriter:
        writer = stream.writeStream.format("cursorq").options(**options)
        writer = writer.option("kafka.bootstrap.servers", self.config["bootstrap.servers"])
        return writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value() for record in read_all(self.config, topic)]


@pytest.fixture
def queues(spark: SparkSession, broker: EmbeddedKafka, create_topic: Callable[..., str]) -> Queues:
    return Queues(spark, broker.bootstrap_servers, create_topic)


def run(writer: DataStreamWriter) -> None:
    assert writer.start().awaitTermination(120)


def test_each_row_is_a_message_with_what_its_columns_say(queues: Queues) -> None:
    one, other = queues.create_topic(), queues.create_topic(3)
    rows = queues.rows(
        f"other DATE, {MESSAGE}",
        (None, "k", bytearray(b"\x00v"), one, None, [("a", bytearray(b"1")), ("a", None)]),
        (None, None, None, one, 0, []),
        (None, "", bytearray(b""), other, 2, None),
    )
    queues.write(rows, action="enqueue")
    first, second = read_all(queues.config, one)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"\x00v", [("a", b"1"), ("a", None)])
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    (third,) = read_all(queues.config, other)
    assert (third.key(), third.value(), third.partition()) == (b"", b"", 2)


def test_a_message_that_is_due_in_two_days_says_so_in_its_header(queues: Queues) -> None:
    topic = queues.create_topic()
    rows = queues.spark.sql(
        "SELECT 'customer-7' AS key, 'pay, please' AS value,"
        " current_timestamp() + INTERVAL 2 DAYS AS deliverAt"
    )
    queues.write(rows, topic=topic)
    (message,) = read_all(queues.config, topic)
    assert (message.key(), message.value()) == (b"customer-7", b"pay, please")
    asked = due(message.headers() or [], None).at_ms or 0
    assert abs(asked - message.timestamp()[1] - 2 * 86_400_000) < 120_000


def test_the_option_topic_is_for_every_row_whatever_the_column_says(queues: Queues) -> None:
    topic = queues.create_topic(4)
    rows = queues.spark.range(40_000).selectExpr("CAST(id % 7 AS STRING) key", "CAST(id AS STRING) value")
    queues.write(rows.withColumn("topic", F.lit("elsewhere")), topic=topic)
    records = read_all(queues.config, topic)
    assert sorted(int(record.value() or b"") for record in records) == list(range(40_000))
    assert len({(record.key(), record.partition()) for record in records}) == 7, "a key has one partition"


def test_a_stream_appends_each_batch_and_a_replayed_one_twice(queues: Queues, tmp_path: Path) -> None:
    # batch 0: a, b      batch 1: c      its commit is lost, and it is done again: c
    topic = queues.create_topic()
    run(queues.stream(tmp_path, queues.rows("value STRING", ("a",), ("b",)), topic=topic))
    writer = queues.stream(tmp_path, queues.rows("value STRING", ("c",)), topic=topic)
    run(writer)
    assert queues.values(topic) == [b"a", b"b", b"c"]
    for commit in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        commit.unlink()
    run(writer)
    assert queues.values(topic) == [b"a", b"b", b"c", b"c"]


def test_in_complete_mode_each_batch_appends_the_whole_result(queues: Queues, tmp_path: Path) -> None:
    topic = queues.create_topic()
    rows = queues.rows("value STRING", ("a",), ("b",), ("a",))
    rows.write.parquet(str(tmp_path / "rows"))
    stream = queues.spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    counts = stream.groupBy("value").count().selectExpr("concat(value, count) AS value")
    run(queues.streamed(tmp_path, counts, topic=topic).outputMode("complete"))
    assert sorted(queues.values(topic)) == [b"a2", b"b1"]


def test_a_message_with_deliver_at_is_delivered_when_it_is_due(bench: Bench) -> None:
    topic = bench.create_topic()
    options = bench.options(topic)
    seen = Seen()
    bench.produce(topic, [b"first"])
    bench.start(options, AckSink(seen, options))
    bench.until_acked(topic, 1)  # the query is at work
    due_ms = round(time.time() * 1000) + 12_000  # more than the write below takes
    later = datetime.fromtimestamp(due_ms / 1000, UTC)
    rows = bench.spark.createDataFrame([("later", later), ("now", None)], "value STRING, deliverAt TIMESTAMP")
    rows.coalesce(1).write.format("cursorq").options(**options).option("topic", topic).mode("append").save()
    bench.until_acked(topic, 3)
    assert [bytes(row.value) for row in seen.rows] == [b"first", b"now", b"later"]
    assert {row.delivery_count for row in seen.rows} == {1}
    started = [one.at_ms for one in bench.markers(topic, kind=Start) if 1 in one.marker.offsets]
    assert started[-1] >= due_ms, "not before its time, by the broker's clock"


def test_a_readonly_partition_takes_no_rows_and_a_paused_one_is_resumed_by_them(
    queues: Queues,
) -> None:
    topic, streams = queues.create_topic(2), f"streams-{uuid.uuid4().hex[:8]}"
    servers = {"kafka.bootstrap.servers": queues.config["bootstrap.servers"]}
    with Client({**servers, "streamsTopic": streams}) as client:
        client.set_stream_readonly(topic, partitions=[0])
        client.pause_stream(topic)
        to_one = queues.rows("value STRING, partition INT", ("x", 1))
        queues.write(to_one, topic=topic, streamsTopic=streams)
        assert not client.fetch_partition_metadata(topic, 1).paused
        for rows in (
            queues.rows("value STRING, partition INT", ("x", 0)),
            queues.rows("value STRING", ("x",)),
        ):
            with pytest.raises(PySparkException, match=f"Partition 0 of stream '{topic}' is readonly"):
                queues.write(rows, topic=topic, streamsTopic=streams)
        assert client.fetch_partition_metadata(topic, 0).paused
        assert [record.partition() for record in read_all(queues.config, topic)] == [1]
        client.set_stream_readonly(topic, readonly=False)
        queues.write(queues.rows("value STRING", ("x",)), topic=topic, streamsTopic=streams)
        assert not client.fetch_partition_metadata(topic, 0).paused


@pytest.mark.parametrize(
    ("schema", "row", "options", "message"),
    [
        ("key STRING", ("k",), {"topic": "TOPIC"}, "NoMessageColumn: enqueue needs the column 'value'"),
        ("value STRING", ("v",), {"action": "enqueue"}, "Give the option topic, or a column topic"),
        ("value STRING", ("v",), {}, "MissingOption: Option 'action' is missing. To append the rows"),
        ("value BIGINT", (1,), {"topic": "TOPIC"}, "'value' has the type bigint. Give a STRING or BINARY"),
        (
            "value STRING, topic STRING",
            ("v", None),
            {"action": "enqueue"},
            "'topic' has a null. Give the opt",
        ),
        (
            "value STRING, partition INT",
            ("v", 1),
            {"topic": "TOPIC"},
            "has no partition 1. Its partitions are 0 to 0",
        ),
        (
            "value STRING, partition INT",
            ("v", -1),
            {"topic": "TOPIC"},
            "has no partition -1. Its partitions are 0 to 0",
        ),
        ("value STRING", ("v",), {"topic": "no-such-topic"}, "These topics do not exist: 'no-such-topic'"),
        (
            "value STRING",
            ("secret" * 4_000,),
            {"topic": "TOPIC"},
            "a message of 24000 bytes to topic",
        ),
        (
            "value STRING",
            ("v",),
            {"topic": "TOPIC", "mode": "overwrite"},
            "A write of messages can only append",
        ),
        ("value STRING", ("v",), {"topic": "TOPIC", "mode": "error"}, '"Append" or "Overwrite" mode instead'),
    ],
)
def test_rows_that_are_no_messages_fail_the_write(
    queues: Queues, schema: str, row: tuple[Any, ...], options: dict[str, str], message: str
) -> None:
    topic = queues.create_topic(max_message_bytes=10_000)
    options = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(PySparkException, match=message.replace("TOPIC", topic)) as refused:
        queues.write(queues.rows(schema, row), **options)
    assert "secret" not in str(refused.value)
    assert queues.values(topic) == []
