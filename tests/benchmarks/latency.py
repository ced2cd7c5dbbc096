"""(c) From produce to foreachBatch for a lone message, against Spark's Kafka source and one without Kafka.

A plain Python source, which reads no Kafka, shows how much of the time is Spark's own. The same is measured
with the settings that docs/how-to/tune.md recommends: checkpoints through FileSystem, then also
Unix sockets between the JVM and Python.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.devkit.spark_session import CHECKPOINT_MANAGER
from tests.benchmarks.common import Bench, spark_session
from tests.benchmarks.plain_source import PlainSource
from tests.benchmarks.read import stream
from tests.benchmarks.report import Figure

MESSAGES_A_RUN = 12
FIRST = 4  #: messages that a query finds when it starts
_PEERS = {"kafka": "Spark's Kafka source", "plain": "a Python source without Kafka"}


def run(here: Bench) -> list[Figure]:
    what = "a lone message, produce to foreachBatch"
    as_it_comes = _took(here, ("cursorq", "kafka", "plain"))
    if here.runs == 1:  # the quick run
        return [_figure(f"{what}, p50", as_it_comes, peer, 0.5) for peer in _PEERS]
    checkpoints = {"spark_sql_streaming_checkpointFileManagerClass": CHECKPOINT_MANAGER}
    sockets = {"spark_python_unix_domain_socket_enabled": "true"}
    with_checkpoints = _took(here, ("cursorq", "plain"), **checkpoints)
    with_both = _took(here, ("cursorq", "plain"), **checkpoints, **sockets)
    return [
        _figure(f"{what}, p50", as_it_comes, "kafka", 0.5),
        _figure(f"{what}, p95", as_it_comes, "kafka", 0.95),
        _figure(f"{what}, p50", as_it_comes, "plain", 0.5),
        _figure(f"{what}, FileSystem checkpoints, p50", with_checkpoints, "plain", 0.5),
        _figure(f"{what}, FileSystem checkpoints and Unix sockets, p50", with_both, "plain", 0.5),
    ]


def _figure(what: str, took: dict[str, list[float]], peer: str, share: float) -> Figure:
    ours, theirs = (1000 * sorted(took[name])[int(len(took[name]) * share)] for name in ("cursorq", peer))
    return Figure(what=what, value=ours, unit="ms", peer=theirs, peer_is=_PEERS[peer])


def _took(here: Bench, sources: Iterable[str], **conf: str) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {source: [] for source in sources}
    with spark_session(here, peer="kafka" in took, **conf) as spark:
        cursorq.register(spark)
        spark.dataSource.register(PlainSource)
        for number in range(here.runs + 1):
            for source, figures in took.items():
                found = _of_plain(here, spark) if source == "plain" else _of_kafka(here, spark, source)
                if number:  # the first run of each warms up
                    figures += found
    return took


def _of_kafka(here: Bench, spark: SparkSession, source: str) -> list[float]:
    topic = here.fill(FIRST)
    producer = Producer({"bootstrap.servers": here.broker.bootstrap_servers, "linger.ms": 0})

    def send(value: bytes) -> None:
        producer.produce(topic, value)
        producer.flush()

    return _lone_messages(here, stream(spark, here, source, topic), send)


def _of_plain(here: Bench, spark: SparkSession) -> list[float]:
    path = here.scratch / "plain"
    path.write_bytes(b"x" * FIRST)
    frame = spark.readStream.format("plain").option("path", str(path)).load()
    with path.open("ab", buffering=0) as file:
        return _lone_messages(here, frame, lambda _: file.write(b"x"))


def _lone_messages(here: Bench, frame: DataFrame, send: Callable[[bytes], object]) -> list[float]:
    arrived: list[float] = []
    news = threading.Condition()

    def on_batch(batch: DataFrame, _: int) -> None:
        rows = batch.select("value").collect()
        at = time.monotonic()  # foreachBatch begins earlier; now the message is in the user's hands
        with news:
            arrived.extend([at] * len(rows))
            news.notify()

    query = frame.writeStream.foreachBatch(on_batch).option("checkpointLocation", here.checkpoint()).start()
    took = []
    try:
        with news:
            assert news.wait_for(lambda: len(arrived) == FIRST, timeout=60)
        for number in range(FIRST, FIRST + MESSAGES_A_RUN):
            time.sleep(0.5 + random.random())
            sent = time.monotonic()
            send(f"lone {number}".encode())
            with news:
                assert news.wait_for(lambda number=number: len(arrived) > number, timeout=60)
            took.append(arrived[number] - sent)
    finally:
        query.stop()
    return took
