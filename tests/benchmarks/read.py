"""(a) Read into nothing, against Spark's own Kafka source: trigger time of a topic in one warm batch."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tests.benchmarks.common import Bench, medians, print_table, spark_session, trigger_seconds
from tests.benchmarks.plain_source import PlainSource

GOALS = {1_000_000: 1.2, 4_000_000: 0.9}


def run(here: Bench) -> None:
    rows = []
    with spark_session(here) as spark:
        spark.dataSource.register(PlainSource)
        for count, goal in GOALS.items():
            topic = here.fill(count)
            ours, peer = medians(
                here,
                lambda topic=topic, count=count: trigger_seconds(
                    _stream(spark, here, "plain", topic), here, rows=count
                ),
                lambda topic=topic, count=count: trigger_seconds(
                    _stream(spark, here, "kafka", topic), here, rows=count
                ),
                warm_up=2,
            )
            # fmt: off
            rows.append([f"{count:,}", f"{ours:.2f} s", f"{count / ours / 1000:,.0f}k/s", f"{peer:.2f} s",
                         f"{count / peer / 1000:,.0f}k/s", f"{peer / ours:.2f}", f"{goal:.2f}"])
            # fmt: on
    header = ["rows", "cursorq", "", "Spark's Kafka source", "", "ratio", "goal"]
    print_table(f"read into noop, trigger time, median of {here.runs}", header, rows)


def _stream(spark: SparkSession, here: Bench, source: str, topic: str) -> DataFrame:
    return (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", here.broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
