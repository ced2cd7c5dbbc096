"""(a) Read into nothing, against Spark's own Kafka source: trigger time of a topic in one warm batch.

It uses the native reader where it is installed; ``CURSORQ_NATIVE=0`` measures without it.
"""

from __future__ import annotations

import os
import uuid
from functools import partial
from importlib.util import find_spec

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import spark_cursor_source as cursorq
from tests.benchmarks.common import Bench, medians, spark_session, trigger_seconds
from tests.benchmarks.report import Figure, rate

QUEUE = "q1"
_PEER = "Spark's Kafka source"
# (rows, whether records have a key and a header, which are read and filtered by, goal with the native reader,
# goal without it)
CASES = [
    (1_000_000, False, 2.0, 1.2),
    (4_000_000, False, 1.5, 0.9),
    (1_000_000, True, 1.8, 0.9),
    (4_000_000, True, 1.35, 0.8),
]


def run(here: Bench) -> list[Figure]:
    is_native = (
        find_spec("spark_cursor_source_native") is not None and os.environ.get("CURSORQ_NATIVE") != "0"
    )
    table: list[Figure] = []
    with spark_session(here) as spark:
        cursorq.register(spark)
        for count, rich, native_goal, plain_goal in CASES:
            topic = here.fill_rich(count, key=QUEUE.encode()) if rich else here.fill(count)
            runs = [
                partial(_read, spark, here, source, topic, count, rich) for source in ("cursorq", "kafka")
            ]
            took, of_peer = medians(here, *runs, warm_up=2)
            goal = native_goal if is_native else plain_goal
            what = f"read {count:,}" + (", headers and queue id" if rich else "")
            ours, peer = rate(count, took), rate(count, of_peer)
            table.append(Figure(what=what, value=ours, unit="/s", peer=peer, peer_is=_PEER, goal=goal))
    return table


def _read(spark: SparkSession, here: Bench, source: str, topic: str, count: int, rich: bool) -> float:
    options = {"includeHeaders": "true"} if rich else {}
    if rich and source == "cursorq":
        options["queueId"] = QUEUE
    frame = stream(spark, here, source, topic, **options)
    if rich and source == "kafka":
        frame = frame.where(f.col("key") == f.lit(QUEUE.encode()))
    return trigger_seconds(frame, here, rows=count)


def stream(spark: SparkSession, here: Bench, source: str, topic: str, **options: str) -> DataFrame:
    """The whole topic, read by ``cursorq`` (with a new subscription) or by Spark's ``kafka``."""
    reader = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", here.broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
    )
    if source == "cursorq":
        # No tracker takes part in reading; without one a query ends when it runs longer than this.
        reader = reader.option("subscription", f"bench-{uuid.uuid4().hex[:8]}").option("trackerTimeout", "1h")
    return reader.load()
