"""What benchmarks share: a broker, filled topics, a Spark with the peer's jars, paired runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.benchmarks.report import Median

PARTITIONS = 4
MESSAGE_BYTES = 100
_PACKAGES = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
# Not published for 4.2.0; this one fits, and must be resolved apart, because an exclusion holds for all.
_TOKEN_PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
_TOKEN_PROVIDER_VERSION = "4.0.0"
_PRINT_JARS = """\
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway
print("jars=" + SparkConf(_jvm=launch_gateway().jvm).get("spark.jars", ""))
"""
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where a benchmark runs."""

    broker: EmbeddedKafka
    scratch: Path
    runs: int

    def fill(self, count: int, *, partitions: int = PARTITIONS, size: int = MESSAGE_BYTES) -> str:
        """A new topic with ``count`` different messages of ``size`` bytes, without keys; its name."""
        topic = f"bench-{count}-{uuid.uuid4().hex[:8]}"
        servers = {"bootstrap.servers": self.broker.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(timeout=20)
        producer = Producer(
            servers
            | {
                "linger.ms": 50,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": 1_000_000,
                "enable.idempotence": True,
            }
        )
        padding = b"x" * (size - 10)
        step = 10_000
        for first in range(0, count, step):
            numbers = range(first, min(first + step, count))
            for partition in range(partitions):
                values = [{"value": padding + b"%010d" % number} for number in numbers[partition::partitions]]
                assert producer.produce_batch(topic, values, partition=partition) == len(values)
            while len(producer) > 500_000:
                producer.poll(0.05)
        assert producer.flush(60) == 0
        return topic

    def fill_rich(self, count: int, *, key: bytes) -> str:
        """A new topic as by ``fill``, whose messages have this key and a header; its name."""
        topic = self.fill(0)
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "linger.ms": 50,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        padding = b"x" * (MESSAGE_BYTES - 10)
        headers = [("trace", b"0123456789abcdef")]
        for number in range(count):
            value = padding + b"%010d" % number
            producer.produce(topic, value, key=key, partition=number % PARTITIONS, headers=headers)
            if number % 10_000 == 0:
                while len(producer) > 500_000:
                    producer.poll(0.05)
        assert producer.flush(60) == 0
        return topic

    def checkpoint(self) -> str:
        """A directory for a new query."""
        return str(self.scratch / f"checkpoint-{uuid.uuid4().hex}")


@contextmanager
def bench(*, runs: int) -> Iterator[Bench]:
    """A fresh broker and a directory, both gone afterwards."""
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="cursorq-bench-"))
        broker = stack.enter_context(EmbeddedKafka(heap_mb=1024, long_lived=True))
        yield Bench(broker=broker, scratch=Path(scratch), runs=runs)


@contextmanager
def without_broker(*, runs: int) -> Iterator[Bench]:
    """A directory alone, for benchmarks in memory."""
    nobody: Any = None
    with tempfile.TemporaryDirectory(prefix="cursorq-bench-") as scratch:
        yield Bench(broker=nobody, scratch=Path(scratch), runs=runs)


@contextmanager
def spark_session(here: Bench, *, peer: bool = True, **conf: object) -> Iterator[SparkSession]:
    """Spark on two cores, with the jars of its own Kafka source if ``peer``; config with ``_`` for ``.``."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(here.scratch / "local"))
        .config("spark.sql.warehouse.dir", str(here.scratch / "warehouse"))
    )
    if peer:
        builder = (
            builder.config("spark.jars.packages", _PACKAGES)
            .config("spark.jars.excludes", _TOKEN_PROVIDER)
            .config("spark.jars", _token_provider_jar(here))
        )
    for name, value in conf.items():
        builder = builder.config(name.replace("_", "."), str(value))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    gateway = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(timeout=30)
        SparkContext._gateway = SparkContext._jvm = None  # or the next session would look for this JVM


def _token_provider_jar(here: Bench) -> str:
    script = here.scratch / "print_jars.py"
    script.write_text(_PRINT_JARS)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    # fmt: off
    command = [str(submit), "--master", "local[1]",
               "--packages", f"{_TOKEN_PROVIDER}:{_TOKEN_PROVIDER_VERSION}",
               "--exclude-packages", "org.apache.kafka:kafka-clients,com.google.code.findbugs:jsr305",
               str(script)]
    # fmt: on
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    jars = next(line for line in done.stdout.splitlines() if line.startswith("jars="))
    return next(jar for jar in jars.removeprefix("jars=").split(",") if "token-provider" in jar)


def trigger_seconds(frame: DataFrame, here: Bench, *, rows: int) -> float:
    """Seconds of the trigger that reads all there is, into nothing: ``rows``, in one batch."""
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", here.checkpoint())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches: list[Any] = [batch for batch in query.recentProgress if batch["numInputRows"]]
    assert [batch["numInputRows"] for batch in batches] == [rows], batches
    return float(batches[0]["durationMs"]["triggerExecution"]) / 1000


def queue_options(here: Bench, topic: str) -> dict[str, str]:
    """Options of a query that reads a topic from its beginning, with a subscription of its own."""
    return {
        "kafka.bootstrap.servers": here.broker.bootstrap_servers,
        "subscribe": topic,
        "subscription": f"bench-{uuid.uuid4().hex[:8]}",
        "trackerTimeout": "1h",  # none runs here: it is measured by itself
    }


def sink_seconds(frame: DataFrame, here: Bench, sink: Callable[[DataFrame, int], object]) -> float:
    """Seconds of the triggers that hand all there is to a sink."""
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", here.checkpoint())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches: list[Any] = [batch for batch in query.recentProgress if batch["numInputRows"]]
    assert batches
    return sum(float(batch["durationMs"]["triggerExecution"]) for batch in batches) / 1000


def append(producer: Producer, topic: str, partition: int, key: bytes, value: bytes) -> tuple[int, float]:
    """Append a record at once; its offset, and its timestamp in seconds."""
    stored: list[tuple[int, float]] = []
    producer.produce(
        topic,
        value,
        key,
        partition,
        on_delivery=lambda _, message: stored.append((message.offset() or 0, message.timestamp()[1] / 1000)),
    )
    assert producer.flush(60) == 0
    return stored[0]


def medians(here: Bench, *runs: Callable[[], float], warm_up: int = 1) -> tuple[Median, ...]:
    """The median of each, run in turns, so that whatever else the machine does meets all of them alike."""
    for run in runs * warm_up:
        run()
    figures = [[run() for run in runs] for _ in range(here.runs)]
    return tuple(Median.of(column) for column in zip(*figures, strict=True))
