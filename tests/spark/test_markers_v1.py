"""The source and the sink of a queue whose tracker is kafka-mq-go's, on real Kafka and real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import MissingColumns, RejectRefused
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, decode
from tests.kafka.control_plane import read_all
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def lone_bench(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, create_topic: Callable[..., str]
) -> Iterator[Bench]:
    """A bench without a tracker: V1's is not ours."""
    made = Bench(spark, broker.bootstrap_servers, tmp_path, create_topic)
    yield made
    made.close()


def options_of(bench: Bench, topic: str, **more: object) -> dict[str, str]:
    bench.topics.ensure_markers(f"{topic}-markers", partitions=4)
    return {
        "kafka.bootstrap.servers": bench.servers,
        "subscribe": topic,
        "subscription": "s",
        "groupIdPrefix": bench.group_prefix,
        "markerFormat": "v1",
        "markersTopic": f"{topic}-markers",
        **{name: str(value) for name, value in more.items()},
    }


def marked(options: dict[str, str]) -> list[MarkerV1]:
    """The markers, those of a queue id in their order."""
    config = {"bootstrap.servers": options["kafka.bootstrap.servers"]}
    decoded = [decode(one.key(), one.value()) for one in read_all(config, options["markersTopic"])]
    return [one for one in decoded if isinstance(one, MarkerV1)]


def shown(marker: MarkerV1) -> tuple[bytes, int, int, int, int]:
    return marker.queue_id, marker.type, marker.partition, marker.offset, marker.redeliver_after_ms


def test_no_row_reaches_user_code_before_its_start_is_durable_and_each_is_ended_by_its_ack(
    lone_bench: Bench,
) -> None:
    # Each handler looks, from its executor, for the Start of its own message in the markers topic.
    topic = lone_bench.create_topic(2)
    lone_bench.produce(topic, [{"key": b"q%d" % (n % 2), "value": b"%d" % n} for n in range(4)])
    lone_bench.produce(topic, [{"key": b"q1", "value": None}, {"value": b"of nobody"}], partition=1)
    options = options_of(lone_bench, topic)
    found: list[Any] = []

    def handle(message: Any) -> str:
        started = [one for one in marked(options) if one.type == MarkerType.START]
        wanted = message.partition, message.offset, bytes(message.value or b""), bytes(message.key)
        number = [(one.partition, one.offset, one.value, one.queue_id) for one in started].count(wanted)
        return f"started {number}"

    def remember(outcomes: DataFrame, batch_id: int) -> None:
        found.extend((row.partition, row.offset, row.result) for row in outcomes.collect())

    lone_bench.start(options, AckSink.per_row(handle, options, then=remember, result="STRING"))
    lone_bench.until(
        lambda: len([one for one in marked(options) if one.type == MarkerType.END]) >= 5,
        "all messages are acked",
    )
    ids = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert sorted(found) == [(*one, "started 1") for one in ids]
    for kind in (MarkerType.START, MarkerType.END):
        of_kind = [(one.partition, one.offset) for one in marked(options) if one.type == kind]
        assert sorted(of_kind) == ids, "the message without a key has none"
    assert {shown(one) for one in marked(options) if one.type == MarkerType.END} >= {
        (b"q1", MarkerType.END, 1, 0, 0)
    }


def test_a_sink_that_calls_its_function_once_a_batch_ends_each_message(lone_bench: Bench) -> None:
    topic = lone_bench.create_topic()
    lone_bench.produce(topic, [{"key": b"q", "value": b"x"}] * 3)
    options, seen = options_of(lone_bench, topic), Seen()
    lone_bench.drain(options, AckSink(seen, options))
    ended = [shown(one) for one in marked(options) if one.type == MarkerType.END]
    assert seen.ids() == [(0, 0), (0, 1), (0, 2)]
    assert sorted(ended) == [(b"q", MarkerType.END, 0, n, 0) for n in range(3)]


def test_each_action_is_the_marker_that_their_tracker_has_for_it(lone_bench: Bench) -> None:
    topic = lone_bench.create_topic()
    options = options_of(lone_bench, topic)
    schema = "key STRING, topic STRING, partition INT, offset BIGINT, action STRING, delay_ms BIGINT"
    rows = [("q", topic, 0, n, action, delay) for n, (action, delay) in enumerate(ACTIONS)]
    df = lone_bench.spark.createDataFrame(rows, schema)
    alone = df.drop("action", "delay_ms")

    assert cursorq.ack(alone.where("offset = 0"), options) == 1
    assert cursorq.release(alone.where("offset = 1"), options) == 1
    assert cursorq.release(alone.where("offset = 2"), options, delay="12h") == 1
    assert cursorq.extend(alone.where("offset = 3"), options, lease="2m") == 1
    written = df.where("offset > 3")
    written.write.format("cursorq").options(**options).mode("append").save()
    half_a_day = 12 * 3_600_000
    assert sorted(map(shown, marked(options)), key=lambda one: one[3]) == [
        (b"q", MarkerType.END, 0, 0, 0),
        (b"q", MarkerType.KEEP_ALIVE, 0, 1, 0),
        (b"q", MarkerType.KEEP_ALIVE, 0, 2, half_a_day),
        (b"q", MarkerType.KEEP_ALIVE, 0, 3, 120_000),
        (b"q", MarkerType.END, 0, 4, 0),
        (b"q", MarkerType.KEEP_ALIVE, 0, 5, 500),
        (b"q", MarkerType.KEEP_ALIVE, 0, 7, 60_000),
    ], "the release without a delay, offset 6, is left to its lease"

    before = len(marked(options))
    with pytest.raises(MissingColumns, match="ack needs the columns key"):
        cursorq.ack(alone.drop("key"), options)
    with pytest.raises(RejectRefused, match="has no dead letters"):
        cursorq.reject(alone, options)
    rejecting = df.selectExpr("key", "topic", "partition", "offset", "'reject' AS action")
    with pytest.raises(PySparkException, match="markerFormat=v1 does not support reject"):
        cursorq_write(rejecting.unionByName(df.drop("delay_ms")), options)
    nobodys = df.selectExpr("CAST(NULL AS STRING) AS key", "topic", "partition", "offset")
    with pytest.raises(PySparkException, match="ack: a row has null in key"):
        cursorq_write(nobodys, options)
    assert len(marked(options)) == before, "nothing of a refused write"


#: action and delay of the rows of the test above, by offset; the first four are done by functions
ACTIONS = [
    *[("ack", None)] * 4,
    ("ack", None),
    ("release", 500),
    ("release", None),
    ("extend", None),
]


def cursorq_write(df: DataFrame, options: dict[str, str]) -> None:
    df.coalesce(1).write.format("cursorq").options(**options).mode("append").save()
