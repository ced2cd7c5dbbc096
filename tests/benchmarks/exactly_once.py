"""(p) From a queue to a topic: outputs and acks in one transaction, against at-least-once writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from tests.benchmarks.common import Bench, medians, queue_options, sink_seconds, spark_session
from tests.benchmarks.report import Figure, rate

COUNT = 300_000
_Write = Callable[[DataFrame, int], object]


def run(here: Bench) -> list[Figure]:
    topic, target = here.fill(COUNT), here.fill(0)
    servers = here.broker.bootstrap_servers
    with spark_session(here) as spark:
        cursorq.register(spark)
        writes = {
            "KafkaSink, exactly once": cursorq.KafkaSink(target),
            "AckSink with df.write.format('cursorq'), at least once": cursorq.AckSink(
                partial(_append, "cursorq", servers, target)
            ),
            "AckSink with Spark's Kafka sink, at least once": cursorq.AckSink(
                partial(_append, "kafka", servers, target)
            ),
        }
        runs = [partial(_from_queue, spark, here, topic, write) for write in writes.values()]
        *ours, peer = medians(here, *runs, partial(_from_kafka, spark, here, topic, target))
    peer_is = "Spark's Kafka source and sink, without acks"
    return [
        Figure(what=name, value=rate(COUNT, took), unit="/s", peer=rate(COUNT, peer), peer_is=peer_is)
        for name, took in zip(writes, ours, strict=True)
    ]


def _append(sink: str, servers: str, topic: str, batch: DataFrame, _: int) -> None:
    rows = batch.select("key", "value").write.format(sink).option("kafka.bootstrap.servers", servers)
    rows.option("topic", topic).mode("append").save()


def _from_queue(spark: SparkSession, here: Bench, topic: str, write: _Write) -> float:
    rows = spark.readStream.format("cursorq").options(**queue_options(here, topic)).load()
    return sink_seconds(rows, here, write)


def _from_kafka(spark: SparkSession, here: Bench, topic: str, target: str) -> float:
    servers = here.broker.bootstrap_servers
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options).load()
    return sink_seconds(rows, here, partial(_append, "kafka", servers, target))
