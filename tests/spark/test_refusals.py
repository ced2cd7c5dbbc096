"""When a query, a sink or a tracker stops: what it says, and that nothing was acked or lost by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from spark_cursor_source.core.marker import End
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import (
    AckedBySource,
    InvalidArgument,
    InvalidOption,
    MissingColumns,
    MissingOption,
    UnknownOption,
)
from tests.kafka.control_plane import control_on
from tests.spark.harness import Bench, Seen, start_patiently, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def own_control(broker: EmbeddedKafka) -> dict[str, str]:
    """Names of control topics of a test's own, which the suite's tracker knows nothing of."""
    return control_on(broker).names


@pytest.fixture
def start_own_tracker(spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path) -> Any:
    """``start(checkpoint, **options)``: a tracker that ends with the test."""
    started: list[StreamingQuery] = []

    def start(checkpoint: str, options: dict[str, Any]) -> StreamingQuery:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "checkpointLocation": str(tmp_path / checkpoint),
            "trigger": "200ms",
            **options,
        }
        started.append(start_patiently(lambda: cursorq.start_tracker(spark, given)))
        return started[-1]

    yield start
    for query in started:
        query.stop()


# ---- no tracker, or two


def test_a_tracker_with_trigger_available_now_ends_by_itself_and_goes_on_the_next_time(
    own_control: dict[str, str], start_own_tracker: Any
) -> None:
    for _ in range(2):
        query = start_own_tracker("bounded", {**own_control, "trigger": "availableNow"})
        assert query.awaitTermination(240), "it ends"
        assert query.exception() is None


def test_a_query_without_a_tracker_says_so_a_new_one_and_one_with_a_past(
    bench: Bench, own_control: dict[str, str]
) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 2)
    options = bench.options(topic, trackerTimeout="3s", **own_control)
    seen = Seen()
    new = bench.failure(bench.start(options, AckSink(seen, options)))
    with_a_past = bench.failure(bench.start(options, AckSink(seen, options)))
    with_lost_checkpoint = bench.failure(bench.start(options, AckSink(seen, options), checkpoint="another"))
    for text in (new, with_a_past, with_lost_checkpoint):
        assert "NoTracker: No tracker answered for 1 queue partition in 3 s. Start one" in text
        assert own_control["markersTopic"] in text
        assert own_control["cursorsTopic"] in text
    assert seen.ids() == seen.ids(1), "nothing is planned again before a tracker has answered"


def test_a_second_tracker_does_not_start_until_it_is_told_to_take_over(
    bench: Bench,
    own_control: dict[str, str],
    start_own_tracker: Callable[[str, dict[str, Any]], StreamingQuery],
) -> None:
    # first tracker: S(0-2) -- second: refused -- third, takeOver: the first is fenced, and the leases go on
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 3)
    options = bench.options(topic, leaseTimeout="10m", **own_control)
    first = start_own_tracker("first", own_control)
    wait_until(lambda: first.recentProgress, "the first tracker is at work", queries=[first])
    seen = Seen()
    query = bench.start(options, seen)
    bench.until(lambda: len(seen.rows) == 3, "all is delivered")
    assert cursorq.ack(bench.frame(topic, [(0, 1, 1)]), options) == 1

    second = start_own_tracker("second", own_control)
    text = str(wait_until(second.exception, "the second tracker ends"))
    assert "TrackerOwnedByAnother" in text
    assert "set takeOver=true once" in text
    assert first.isActive

    third = start_own_tracker("third", own_control | {"takeOver": True})
    wait_until(lambda: third.recentProgress, "the third one has taken over", queries=[third])
    cursorq.ack(bench.frame(topic, [(0, 2, 1)]), options)
    text = str(wait_until(first.exception, "the first tracker is fenced"))
    assert "TrackerFenced" in text
    assert "was started later" in text
    assert third.isActive
    # What the first one knew is not forgotten: 0 alone is outstanding, and a release brings it back.
    cursorq.release(bench.frame(topic, [(0, 0, 1)]), options)
    bench.until(lambda: len(seen.rows) == 4, "0 comes back")
    assert seen.ids(2) == [(0, 0)]
    query.stop()
    assert third.exception() is None

    back = start_own_tracker("first", own_control)
    text = str(wait_until(back.exception, "the checkpoint of the first tracker is stale"))
    assert "It has continued beyond this checkpoint" in text


# ---- messages that are gone


def test_messages_that_retention_took_before_their_ack_are_data_loss(bench: Bench) -> None:
    # S(0-4) -- 0-2 removed from the log -- redelivery: the query fails; failOnDataLoss=false: 3, 4 come back
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 5)
    options = bench.options(topic, leaseTimeout="1s")
    seen = Seen()
    bench.drain(options, seen)
    admin = AdminClient(bench.control.config)
    for future in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        future.result(timeout=20)
    bench.until(lambda: (c := bench.cursor(topic)) is not None and c.available, "the leases are over")
    text = bench.failure(bench.start(options, AckSink(seen, options)))
    assert f"DataLoss: Messages 0 to 2 (3 of them) of '{topic}' partition 0 were lost" in text
    assert "failOnDataLoss=false" in text
    assert bench.markers(topic, kind=End) == []
    again = bench.options(topic, leaseTimeout="1s", failOnDataLoss=False)
    bench.start(again, AckSink(seen, again))
    bench.until_acked(topic, 5)
    assert {n for _, n in seen.ids() if n > 2} == {3, 4}
    assert bench.cursor(topic).totals.dead_lettered == 0


def test_a_new_subscription_begins_with_what_retention_has_left(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 5)
    admin = AdminClient(bench.control.config)
    for future in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        future.result(timeout=20)
    options = bench.options(topic)
    seen = Seen()
    bench.start(options, AckSink(seen, options))
    bench.until_acked(topic, 5)
    assert seen.ids(1) == [(0, 3), (0, 4)]
    assert bench.cursor(topic).totals.acked == 2


# ---- options and DataFrames that cannot be


def test_an_unknown_option_is_named_with_the_nearest_one(bench: Bench) -> None:
    options = {**bench.options("t"), "leaseTimeuot": "5s"}
    with pytest.raises(PySparkException, match=r"no option 'leasetimeuot'. Did you mean 'leaseTimeout'"):
        bench.read(options).schema  # noqa: B018
    with pytest.raises(UnknownOption, match="leaseTimeout"):
        AckSink(Seen(), options)
    with pytest.raises(UnknownOption, match="maxDeliveries"):
        cursorq.start_tracker(bench.spark, {"checkpointLocation": "x", "maxDelivery": 3})


def test_arguments_that_are_no_rows_and_no_options_are_refused_by_name(bench: Bench) -> None:
    options, frame = bench.options("t"), bench.frame("t", [(0, 0, 1)])
    for act in (cursorq.ack, cursorq.release, cursorq.reject, cursorq.extend):
        with pytest.raises(InvalidArgument, match=r"df=.*NoneType.* is not a DataFrame"):
            act(None, options)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"options=.*str.* is not a mapping"):
            act(frame, "billing")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"options=.*NoneType.* is not a mapping"):
        cursorq.start_tracker(bench.spark, None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"options=.*NoneType.* is not a mapping"):
        cursorq.outstanding(bench.spark, None)  # type: ignore[arg-type]
    for wrong in ("", 0, 30):
        with pytest.raises(InvalidOption, match=r"'delay' = .* is invalid"):
            cursorq.release(frame, options, delay=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match=r"'lease' = .* is invalid"):
            cursorq.extend(frame, options, lease=wrong)  # type: ignore[arg-type]


def test_the_options_of_a_view_are_refused_with_the_documented_errors(bench: Bench) -> None:
    options = bench.options("t")
    with pytest.raises(UnknownOption, match="Did you mean 'subscription'"):
        cursorq.outstanding(bench.spark, options | {"subscripton": "billing"})
    with pytest.raises(InvalidOption, match="includePayload"):
        cursorq.outstanding(bench.spark, options, payload="no")  # type: ignore[arg-type]
    with pytest.raises(MissingOption, match=r"kafka\.bootstrap\.servers"):
        cursorq.outstanding(bench.spark, {"subscription": "billing"})


@pytest.mark.parametrize(("mode", "version"), [("batch", "v1"), ("cumulative", "v2")])
def test_a_sink_is_refused_where_the_source_acks_whatever_the_sink_says(
    bench: Bench, mode: str, version: str
) -> None:
    options = bench.options("t", ackMode=mode, markerFormat=version)
    if version == "v1":
        options = {name: value for name, value in options.items() if not name.endswith("sTopic")}
    with pytest.raises(AckedBySource, match=f"ackMode={mode} and markerFormat={version} the source acks all"):
        AckSink(Seen(), options)
    with pytest.raises(AckedBySource):
        AckSink.per_row(lambda message: None, options)


def test_a_frame_that_does_not_say_which_message_a_row_is_is_refused(bench: Bench) -> None:
    cursorq.register(bench.spark)
    options = bench.options("t")
    frame = bench.frame("t", [(0, 0, 1)])
    with pytest.raises(
        MissingColumns, match="ack needs the columns partition, and the DataFrame has topic, off"
    ):
        cursorq.ack(frame.drop("partition", "delivery_count"), options)
    for act in (cursorq.release, cursorq.reject, cursorq.extend):
        with pytest.raises(MissingColumns, match=f"{act.__name__} needs the columns delivery_count"):
            act(frame.drop("delivery_count"), options)
    with pytest.raises(MissingColumns, match="per_row needs the columns offset"):
        AckSink.per_row(lambda message: None, options)(frame.drop("offset"), 0)
    with pytest.raises(PySparkException, match="a column action needs the columns delivery_count"):
        write(frame.drop("delivery_count").selectExpr("*", "'ack' AS action"), options)


@pytest.mark.parametrize("column", ["topic", "partition", "offset", "delivery_count"])
def test_a_row_that_does_not_say_which_message_it_is_acks_nothing(bench: Bench, column: str) -> None:
    topic = bench.create_topic()
    options = bench.options(topic)
    frame = bench.frame(topic, [(0, n, 1) for n in range(4)])
    one_null = frame.withColumn(column, frame[column].cast("string"))
    one_null = one_null.selectExpr(
        *(f"if(offset = 2, null, {name}) AS {name}" if name == column else name for name in frame.columns)
    ).coalesce(1)
    with pytest.raises(PySparkException, match=f"NullMessageId: release: a row has null in {column}"):
        cursorq.release(one_null, options)
    assert bench.markers(topic) == []


def test_a_batch_write_refuses_what_it_cannot_mean(bench: Bench) -> None:
    topic = bench.create_topic()
    options = bench.options(topic)
    frame = bench.frame(topic, [(0, 0, 1)])
    with pytest.raises(PySparkException, match="UnknownAction: Action 'drop' is none of ack, release"):
        write(frame.selectExpr("*", "'drop' AS action"), options)
    with pytest.raises(PySparkException, match="UnknownAction: Action 'null'"):
        write(frame.selectExpr("*", "CAST(null AS STRING) AS action"), options)
    with pytest.raises(PySparkException, match="UnfitColumn: Column 'delay' of type"):
        write(frame.selectExpr("*", "'release' AS action", "'soon' AS delay"), options)
    with pytest.raises(PySparkException, match="OverwriteRefused"):
        frame.write.format("cursorq").options(**options).mode("overwrite").save()
    assert bench.markers(topic) == []


def write(frame: DataFrame, options: dict[str, str]) -> None:
    frame.write.format("cursorq").options(**options).mode("append").save()
