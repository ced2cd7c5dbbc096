"""(c) From produce to foreachBatch for a lone message, against Spark's own Kafka source."""

from __future__ import annotations

import random
import statistics
import threading
import time

from confluent_kafka import Producer
from pyspark.sql import DataFrame

import spark_cursor_source as cursorq
from tests.benchmarks.common import Bench, print_table, spark_session
from tests.benchmarks.read import stream

MESSAGES_A_RUN = 12


def run(here: Bench) -> None:
    took: dict[str, list[float]] = {"cursorq": [], "kafka": []}
    with spark_session(here) as spark:
        cursorq.register(spark)
        for number in range(here.runs + 1):
            for source, figures in took.items():
                topic = here.fill(4)
                found = _lone_messages(here, stream(spark, here, source, topic), topic)
                if number:  # the first run of each warms up
                    figures += found
    ours, peer = (sorted(figures) for figures in took.values())
    rows = [
        [name, f"{a * 1000:.0f} ms", f"{b * 1000:.0f} ms", f"{a / b:.2f}"]
        for name, a, b in [
            ("p50", statistics.median(ours), statistics.median(peer)),
            ("p95", ours[int(len(ours) * 0.95)], peer[int(len(peer) * 0.95)]),
        ]
    ]
    header = ["produce to foreachBatch", "cursorq", "Spark's Kafka source", "ratio (goal: p50 0.50)"]
    print_table(f"a lone message, {len(ours)} of each", header, rows)


def _lone_messages(here: Bench, frame: DataFrame, topic: str) -> list[float]:
    arrived: dict[bytes, float] = {}
    news = threading.Condition()

    def on_batch(batch: DataFrame, _: int) -> None:
        values = [bytes(row.value) for row in batch.select("value").collect()]
        at = time.monotonic()  # foreachBatch begins earlier; now the message is in the user's hands
        with news:
            arrived.update(dict.fromkeys(values, at))
            news.notify()

    query = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", here.checkpoint()).start()
    producer = Producer({"bootstrap.servers": here.broker.bootstrap_servers, "linger.ms": 0})
    took = []
    try:
        with news:
            assert news.wait_for(lambda: len(arrived) == 4, timeout=60)
        for number in range(MESSAGES_A_RUN):
            time.sleep(0.5 + random.random())
            value = f"lone {number}".encode()
            sent = time.monotonic()
            producer.produce(topic, value)
            producer.flush()
            with news:
                assert news.wait_for(lambda value=value: value in arrived, timeout=60)
            took.append(arrived[value] - sent)
    finally:
        query.stop()
    return took
