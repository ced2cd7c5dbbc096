"""(i) Rows to a queue topic, against Spark's own Kafka sink: a batch write, with a thousand keys."""

from __future__ import annotations

import time
from functools import partial

from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from tests.benchmarks.common import MESSAGE_BYTES, Bench, medians, spark_session
from tests.benchmarks.report import Figure, rate

COUNT = 1_000_000


def run(here: Bench) -> list[Figure]:
    topic = here.fill(4)
    with spark_session(here) as spark:
        cursorq.register(spark)
        rows = messages(spark)
        wide = rows.selectExpr("*", "array(named_struct('key', 'a', 'value', key)) AS headers")
        table = []
        for what, frame in {"key and value": rows, "with a header": wide}.items():
            runs = [partial(_write, here, frame, sink, topic) for sink in ("cursorq", "kafka")]
            took, of_peer = medians(here, *runs)
            ours, peer = rate(COUNT, took), rate(COUNT, of_peer)
            peer_is = "Spark's Kafka sink"
            table.append(
                Figure(what=f"write {COUNT:,}, {what}", value=ours, unit="/s", peer=peer, peer_is=peer_is)
            )
    return table


def messages(spark: SparkSession) -> DataFrame:
    """Rows of a key and a value of as many bytes as in the other benchmarks; made once and kept."""
    padding = "x" * (MESSAGE_BYTES - 10)
    rows = spark.range(0, COUNT, 1, 2).selectExpr(
        "CAST(CAST(id % 1000 AS STRING) AS BINARY) AS key",
        f"CAST(concat('{padding}', lpad(CAST(id AS STRING), 10, '0')) AS BINARY) AS value",
    )
    kept = rows.persist()
    assert kept.count() == COUNT
    return kept


def _write(here: Bench, rows: DataFrame, sink: str, topic: str) -> float:
    began = time.perf_counter()
    writer = rows.write.format(sink).option("kafka.bootstrap.servers", here.broker.bootstrap_servers)
    writer.option("topic", topic).mode("append").save()
    return time.perf_counter() - began
