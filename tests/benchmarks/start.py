"""(m) From the start of a query in a warm session to its first row, against Spark's Kafka source."""

from __future__ import annotations

import threading
import time
from functools import partial

from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.tracker import Tracker
from tests.benchmarks.common import Bench, medians, spark_session
from tests.benchmarks.read import stream
from tests.benchmarks.report import Figure


def run(here: Bench) -> list[Figure]:
    servers = {"kafka.bootstrap.servers": here.broker.bootstrap_servers}
    with Tracker(servers), spark_session(here) as spark:
        cursorq.register(spark)
        topic = here.fill(4)
        runs = [partial(first_row_s, spark, here, source, topic) for source in ("cursorq", "kafka")]
        ours, peer = medians(here, *runs, warm_up=2)
    what = "start of a query to its first row"
    return [Figure(what=what, value=ours, peer=peer, peer_is="Spark's Kafka source", goal=round(1 / 1.3, 2))]


def first_row_s(spark: SparkSession, here: Bench, source: str, topic: str) -> float:
    """Seconds from the start of a query without a checkpoint until its function has the first rows."""
    arrived = threading.Event()

    def on_batch(batch: DataFrame, _: int) -> None:
        if batch.select("value").collect():
            arrived.set()

    frame = stream(spark, here, source, topic)
    began = time.monotonic()
    query = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", here.checkpoint()).start()
    try:
        assert arrived.wait(60), query.exception()
        return time.monotonic() - began
    finally:
        query.stop()
