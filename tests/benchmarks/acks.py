"""(b) Read and ack every message, by batch and by row, against reading alone and a Kafka share group."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial

from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from tests.benchmarks.common import Bench, medians, queue_options, spark_session, trigger_seconds
from tests.benchmarks.report import Figure, rate

COUNT = 1_000_000
MakeSink = Callable[[], Callable[[DataFrame, int], object]]


def run(here: Bench) -> list[Figure]:
    topic = here.fill(COUNT)
    with spark_session(here, peer=False) as spark:
        cursorq.register(spark)
        sinks: dict[str, tuple[str, MakeSink | None]] = {
            "read alone, into noop": ("individual", None),
            "whole batch, by the source (ackMode=batch), into noop": ("batch", None),
            "AckSink, ackMode=batch, written into noop": ("batch", lambda: cursorq.AckSink(_into_noop)),
            "AckSink, written into noop": ("individual", lambda: cursorq.AckSink(_into_noop)),
            "AckSink, persist=False, nothing else done": (
                "individual",
                lambda: cursorq.AckSink(_nothing, persist=False),
            ),
            "per row, ackMode=batch, 1 of 1,000 released": (
                "batch",
                lambda: cursorq.AckSink.per_row(_release_some),
            ),
            "per row, handler returns": ("individual", lambda: cursorq.AckSink.per_row(_accept)),
            "per row, handler reads the value": ("individual", lambda: cursorq.AckSink.per_row(_read_value)),
        }
        runs = [partial(_consume, spark, here, topic, *how) for how in sinks.values()]
        *ours, share = medians(here, *runs, partial(_share_group, here, topic))
    of_share = "share group, explicit ack of each"
    figures = [
        Figure(what=name, value=rate(COUNT, took), unit="/s", peer=rate(COUNT, share), peer_is=of_share)
        for name, took in zip(sinks, ours, strict=True)
    ]
    alone = rate(COUNT, ours[0])
    name = "AckSink, written into noop"
    written = rate(COUNT, ours[list(sinks).index(name)])
    last = Figure(what=name, value=written, unit="/s", peer=alone, peer_is="read alone", goal=0.9)
    return [*figures, last]


def _into_noop(batch: DataFrame, _: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


def _nothing(_: DataFrame, __: int) -> None:
    return None


def _accept(_: object) -> None:
    return None


def _release_some(message: object) -> object:
    return None if message.offset % 1_000 else cursorq.Release(delay="1h")  # type: ignore[attr-defined]


def _read_value(message: object) -> bool:
    return len(message.value) > 0  # type: ignore[attr-defined]


def _consume(spark: SparkSession, here: Bench, topic: str, mode: str, make: MakeSink | None) -> float:
    options = queue_options(here, topic) | {"ackMode": mode}
    frame = spark.readStream.format("cursorq").options(**options).load()
    if make is None:
        return trigger_seconds(frame, here, rows=COUNT)
    query = (
        frame.writeStream.foreachBatch(make())
        .option("checkpointLocation", here.checkpoint())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(batch["durationMs"]["triggerExecution"] for batch in query.recentProgress[:1]) / 1000


def _share_group(here: Bench, topic: str) -> float:
    """Seconds from the first message to the last acknowledgement, in one process with one consumer."""
    servers = {"bootstrap.servers": here.broker.bootstrap_servers}
    group = f"share-{uuid.uuid4().hex[:8]}"
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient(servers)
    admin.incremental_alter_configs([resource])[resource].result(timeout=10)
    consumer = ShareConsumer(servers | {"group.id": group, "share.acknowledgement.mode": "explicit"})
    consumer.subscribe([topic])
    got, began = 0, 0.0
    try:
        while got < COUNT:
            messages = consumer.poll(timeout=5.0)
            began = began or time.monotonic()
            for message in messages:
                consumer.acknowledge(message)
            got += len(messages)
        consumer.commit_sync()
        return time.monotonic() - began
    finally:
        consumer.close()
