"""Sinks and the source of their rows: checked before anything is done to a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from spark_cursor_source.consumer.action_columns import OUTCOME, ActionColumns
from spark_cursor_source.errors import (
    AckedBySource,
    ConflictingOptions,
    CursorqError,
    MissingColumns,
    OptionsNotCarried,
    RowsOfTwoSources,
    SinkOfAnotherSource,
)
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.row_origin import RowOrigin
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.spark import ack_sink
from spark_cursor_source.spark.actions import difference_of_sources
from spark_cursor_source.spark.kept import computed_once, kept
from spark_cursor_source.spark.schema import message_schema, origin_of
from tests.spark.harness import Bench

pytestmark = pytest.mark.spark

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "subscription": "billing"}
MISSPELLED = OPTIONS | {"subscription": "bilingg"}


def rows_of(spark: SparkSession, **more: str) -> DataFrame:
    """Rows as a source with such options delivers them; there are none."""
    origin = RowOrigin.of(SourceOptions.parse(OPTIONS | more))
    return spark.createDataFrame([], message_schema(include_headers=True, origin=origin))


@pytest.fixture
def called() -> list[Any]:
    return []


def sinks(
    called: list[Any], options: dict[str, str] | None = None
) -> list[Callable[[DataFrame, int], object]]:
    """A sink of each kind."""

    def of_batch(batch: DataFrame, batch_id: int) -> None:
        called.append(batch_id)

    def of_row(message: Any) -> None:
        raise AssertionError("there is no row")

    return [
        AckSink(of_batch, options),
        AckSink(of_batch, options, persist=False),
        AckSink.per_row(of_row, options),
        AckSink.per_row(of_row, options, then=of_batch),
    ]


@pytest.mark.parametrize(
    ("source", "options", "refusal"),
    [
        ({}, MISSPELLED, SinkOfAnotherSource),
        ({"markersTopic": "m"}, OPTIONS, SinkOfAnotherSource),
        ({"kafka.sasl.password": "secret"}, None, OptionsNotCarried),
        ({"ackMode": "cumulative"}, None, AckedBySource),
        ({"ackMode": "cumulative"}, OPTIONS, AckedBySource),
    ],
    ids=str,
)
def test_a_sink_that_is_not_of_its_source_is_refused_before_its_function_is_called(
    spark: SparkSession,
    called: list[Any],
    source: dict[str, str],
    options: dict[str, str] | None,
    refusal: type[CursorqError],
) -> None:
    for sink in sinks(called, options):
        with pytest.raises(refusal):
            sink(rows_of(spark, **source), 0)
    assert called == []


@pytest.mark.parametrize("options", [None, OPTIONS], ids=["no options", "options"])
@pytest.mark.parametrize("column", ["topic", "partition", "offset"])
def test_a_batch_without_its_columns_is_refused_before_the_function_is_called(
    spark: SparkSession, called: list[Any], options: dict[str, str] | None, column: str
) -> None:
    for sink in sinks(called, options):
        with pytest.raises(MissingColumns, match=column):
            sink(rows_of(spark).drop(column), 0)
    assert called == []


def test_a_sink_that_releases_or_acks_v1_needs_its_column_before_the_function_is_called(
    spark: SparkSession, called: list[Any]
) -> None:
    def of_batch(batch: DataFrame, batch_id: int) -> None:
        called.append(batch_id)

    with pytest.raises(MissingColumns, match="delivery_count"):
        AckSink(of_batch, OPTIONS | {"action": "release"})(rows_of(spark).drop("delivery_count"), 0)
    with pytest.raises(MissingColumns, match="key"):
        AckSink(of_batch, OPTIONS | {"markerFormat": "v1"})(rows_of(spark, markerFormat="v1").drop("key"), 0)
    assert called == []


def test_rows_say_their_source_through_what_a_query_does_to_them(spark: SparkSession) -> None:
    rows = rows_of(spark)
    other = spark.range(3).withColumnRenamed("id", "partition")
    for same in (
        rows.where("offset > 5").select("topic", "partition", "offset"),
        rows.join(other, "partition").dropDuplicates(["offset"]),
        rows.selectExpr("offset AS offset"),
        rows.union(rows),
        rows.localCheckpoint(eager=False),
    ):
        origin = origin_of(same.schema)
        assert origin is not None
        assert origin.options["subscription"] == "billing"
    assert origin_of(rows.withColumn("offset", F.expr("offset + 0")).schema) is None
    assert origin_of(rows.drop("offset").schema) is None


def test_a_table_keeps_the_source_of_its_rows_unless_the_metadata_are_taken_away(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = rows_of(spark).select("topic", "partition", "offset")
    rows.write.parquet(str(tmp_path / "kept"))
    rows.withMetadata("offset", {}).write.parquet(str(tmp_path / "anew"))
    assert origin_of(spark.read.parquet(str(tmp_path / "kept")).schema) == origin_of(rows.schema)
    assert origin_of(spark.read.parquet(str(tmp_path / "anew")).schema) is None


@pytest.mark.parametrize("given", [{"action": "ack"}, {"action": "reject", "reason": "x"}, {"delay": "9s"}])
def test_the_outcomes_of_a_handler_count_and_not_an_action_of_the_options(
    spark: SparkSession, called: list[Any], monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    def settle(outcomes: DataFrame, options: AckOptions) -> int:
        called.append(ActionColumns.of(options, outcomes.columns).used)
        return 0

    monkeypatch.setattr(ack_sink, "run_action", settle)
    AckSink.per_row(lambda message: None, OPTIONS | given, then=lambda rows, _: None)(rows_of(spark), 0)
    (columns,) = called
    assert set(OUTCOME) <= set(columns)


class KeepsNothing:
    """A DataFrame of serverless compute, which refuses to keep rows."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df

    def localCheckpoint(self, eager: bool = True) -> DataFrame:
        raise PySparkException("[NOT_SUPPORTED_WITH_SERVERLESS] LOCAL CHECKPOINT is not supported")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._df, name)


def test_a_server_that_keeps_nothing_computes_a_batch_again_and_outcomes_once(spark: SparkSession) -> None:
    numbered: Any = KeepsNothing(spark.range(4).selectExpr("id", "rand() AS chance"))
    with kept(numbered) as rows:
        assert rows is numbered
    with computed_once(numbered) as rows:
        assert rows.schema == numbered.schema
        assert rows.collect() == rows.collect()
        assert rows.count() == 4


def test_stragglers_are_refused_where_the_order_of_a_key_counts(spark: SparkSession) -> None:
    sink = AckSink.per_row(lambda message: None, stragglers="5s")
    with pytest.raises(ConflictingOptions, match=r"stragglers.*subscriptionType"):
        sink(rows_of(spark, subscriptionType="key_shared"), 0)


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("subscription", "mails"),
        ("markersTopic", "m"),
        ("markerFormat", "v1"),
        ("ackMode", "batch"),
        ("subscriptionType", "key_shared"),
        ("ordering", "key"),
    ],
)
def test_a_union_of_unlike_sources_is_refused_before_the_function_is_called(
    spark: SparkSession, called: list[Any], option: str, other: str
) -> None:
    rows = rows_of(spark).union(rows_of(spark, **{option: other}))
    for options in (None, OPTIONS):
        for sink in sinks(called, options):
            with pytest.raises(RowsOfTwoSources, match=f"{option}=.* and {option}={other}"):
                sink(rows.where("offset > 3").repartition(2), 0)
    with pytest.raises(RowsOfTwoSources):
        cursorq.ack(rows)
    assert called == []


def test_sources_that_are_settled_alike_may_be_a_union_and_unlike_ones_a_join(spark: SparkSession) -> None:
    rows, other = rows_of(spark), rows_of(spark, subscription="mails")
    unlike = other.union(rows_of(spark, subscription="letters"))
    for accepted in (
        rows.union(rows_of(spark, subscribe="refunds", leaseTimeout="5m")),
        rows.join(other.drop("offset"), "key"),
        rows.join(unlike.selectExpr("key", "offset AS theirs"), "key"),
    ):
        origin = origin_of(accepted.schema)
        assert origin is not None
        assert difference_of_sources(accepted, origin) is None


@pytest.mark.broker
def test_a_query_of_two_subscriptions_is_refused_also_if_one_of_them_has_no_message(bench: Bench) -> None:
    called: list[Any] = []
    first, second = bench.create_topic(), bench.create_topic()
    bench.produce(second, [b"x"])
    rows = bench.read(bench.options(first, "a")).union(bench.read(bench.options(second, "b")))
    query = bench.begin(rows.writeStream.foreachBatch(sinks(called)[0]))
    assert "RowsOfTwoSources" in bench.failure(query)
    assert called == []
