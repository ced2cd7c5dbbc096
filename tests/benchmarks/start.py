"""(m) From the start of a query in a warm session to its first row, against Spark's Kafka source.

A plain Python source, which reads no Kafka, shows how much of the time is Spark's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame

import spark_cursor_source as cursorq
from spark_cursor_source.tracker import Tracker
from tests.benchmarks.common import Bench, medians, spark_session
from tests.benchmarks.plain_source import PlainSource, plain_stream
from tests.benchmarks.read import stream
from tests.benchmarks.report import Figure


def run(here: Bench) -> list[Figure]:
    servers = {"kafka.bootstrap.servers": here.broker.bootstrap_servers}
    with Tracker(servers), spark_session(here) as spark:
        cursorq.register(spark)
        spark.dataSource.register(PlainSource)
        topic = here.fill(4)
        made = [
            partial(stream, spark, here, "cursorq", topic),
            partial(stream, spark, here, "kafka", topic),
            partial(plain_stream, spark, here),
        ]
        ours, kafka, plain = medians(here, *(partial(first_row_s, here, make) for make in made), warm_up=2)
    what = "start of a query to its first row"
    return [
        Figure(what=what, value=ours, peer=kafka, peer_is="Spark's Kafka source", goal=round(1 / 1.3, 2)),
        Figure(what=what, value=ours, peer=plain, peer_is="a Python source without Kafka"),
    ]


def first_row_s(here: Bench, make: Callable[[], DataFrame]) -> float:
    """Seconds from the start of a query without a checkpoint until its function has the first rows."""
    arrived = threading.Event()

    def on_batch(batch: DataFrame, _: int) -> None:
        if batch.select("value").collect():
            arrived.set()

    frame = make()
    began = time.monotonic()
    query = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", here.checkpoint()).start()
    try:
        assert arrived.wait(60), query.exception()
        return time.monotonic() - began
    finally:
        query.stop()
