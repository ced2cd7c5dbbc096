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
from tests.benchmarks.common import Bench, medians, print_table, spark_session, trigger_seconds

COUNT = 1_000_000
Sink = Callable[[DataFrame, int], object]


def run(here: Bench) -> None:
    topic = here.fill(COUNT)
    with spark_session(here, peer=False) as spark:
        cursorq.register(spark)
        sinks = {
            "read alone, into noop": None,
            "whole batch, by the source (ackMode=batch), into noop": "batch",
            "whole batch, written into noop": lambda o: cursorq.AckSink(_into_noop, o),
            "whole batch, persist=False, nothing else done": lambda o: cursorq.AckSink(
                _nothing, o, persist=False
            ),
            "per row, handler returns": lambda o: cursorq.AckSink.per_row(_accept, o),
            "per row, handler reads the value": lambda o: cursorq.AckSink.per_row(_read_value, o),
        }
        runs = [partial(_consume, spark, here, topic, make) for make in sinks.values()]
        *ours, share = medians(here, *runs, partial(_share_group, here, topic))
    alone = ours[0]
    names = [*sinks, "Kafka share group, explicit ack of each"]
    rows = [
        [name, f"{took:.2f} s", f"{COUNT / took:,.0f}/s", f"{alone / took:.2f}", f"{share / took:.2f}"]
        for name, took in zip(names, [*ours, share], strict=True)
    ]
    header = [f"{COUNT:,} messages", "time", "", "of read alone", "of share group"]
    title = f"read and ack, median of {here.runs}; goals: 0.90 of read alone, 200k/s per row"
    print_table(title, header, rows)


def _into_noop(batch: DataFrame, _: int) -> None:
    batch.write.format("noop").mode("overwrite").save()


def _nothing(_: DataFrame, __: int) -> None:
    return None


def _accept(_: object) -> None:
    return None


def _read_value(message: object) -> bool:
    return len(message.value) > 0  # type: ignore[attr-defined]


def _consume(
    spark: SparkSession, here: Bench, topic: str, make: Callable[[dict[str, str]], Sink] | str | None
) -> float:
    options = {
        "kafka.bootstrap.servers": here.broker.bootstrap_servers,
        "subscribe": topic,
        "subscription": f"bench-{uuid.uuid4().hex[:8]}",
        "trackerTimeout": "1h",  # none runs here: it is measured by itself
    }
    if isinstance(make, str):
        options["ackMode"] = make
    frame = spark.readStream.format("cursorq").options(**options).load()
    if make is None or isinstance(make, str):
        return trigger_seconds(frame, here, rows=COUNT)
    query = (
        frame.writeStream.foreachBatch(make(options))
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
