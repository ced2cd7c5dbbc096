"""(a) Read into nothing, against Spark's own Kafka source: trigger time of a topic in one warm batch."""

from __future__ import annotations

import uuid
from functools import partial

from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from tests.benchmarks.common import Bench, medians, print_table, spark_session, trigger_seconds

GOALS = {1_000_000: 1.2, 4_000_000: 0.9}


def run(here: Bench) -> None:
    table = []
    with spark_session(here) as spark:
        cursorq.register(spark)
        for count, goal in GOALS.items():
            topic = here.fill(count)
            runs = [partial(_read, spark, here, source, topic, count) for source in ("cursorq", "kafka")]
            ours, peer = medians(here, *runs, warm_up=2)
            # fmt: off
            table.append([f"{count:,}", f"{ours:.2f} s", f"{count / ours / 1000:,.0f}k/s", f"{peer:.2f} s",
                          f"{count / peer / 1000:,.0f}k/s", f"{peer / ours:.2f}", f"{goal:.2f}"])
            # fmt: on
    header = ["rows", "cursorq", "", "Spark's Kafka source", "", "ratio", "goal"]
    print_table(f"read into noop, trigger time, median of {here.runs}", header, table)


def _read(spark: SparkSession, here: Bench, source: str, topic: str, count: int) -> float:
    return trigger_seconds(stream(spark, here, source, topic), here, rows=count)


def stream(spark: SparkSession, here: Bench, source: str, topic: str) -> DataFrame:
    """The whole topic, read by ``cursorq`` (with a new subscription) or by Spark's ``kafka``."""
    reader = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", here.broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if source == "cursorq":
        # No tracker takes part in reading; without one a query ends when it runs longer than this.
        reader = reader.option("subscription", f"bench-{uuid.uuid4().hex[:8]}").option("trackerTimeout", "1h")
    return reader.load()
