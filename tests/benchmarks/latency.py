"""(c) From produce to foreachBatch for a lone message, against Spark's own Kafka source."""

from __future__ import annotations

import random
import threading
import time

from confluent_kafka import Producer
from pyspark.sql import DataFrame

import spark_cursor_source as cursorq
from tests.benchmarks.common import Bench, spark_session
from tests.benchmarks.read import stream
from tests.benchmarks.report import Figure

MESSAGES_A_RUN = 12


def run(here: Bench) -> list[Figure]:
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
    quantiles = {"p50": 0.5, "p95": 0.95}
    spark_is = "Spark's Kafka source"
    return [
        Figure(
            what=f"a lone message, produce to foreachBatch, {name}",
            value=1000 * ours[int(len(ours) * share)],
            unit="ms",
            peer=1000 * peer[int(len(peer) * share)],
            peer_is=spark_is,
        )
        for name, share in quantiles.items()
    ]


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
