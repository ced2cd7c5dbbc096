"""(e) How late a message comes back after its lease, in foreachBatch; tracker trigger one second."""

from __future__ import annotations

import random
import time
import uuid

from confluent_kafka import Producer
from pyspark.sql import DataFrame

import spark_cursor_source as cursorq
from tests.benchmarks.common import Bench, spark_session
from tests.benchmarks.report import Figure

MESSAGES = 150
LEASE_MS = 4_000


def run(here: Bench) -> list[Figure]:
    with spark_session(here, peer=False) as spark:
        cursorq.register(spark)
        servers = {"kafka.bootstrap.servers": here.broker.bootstrap_servers}
        topic = here.fill(4)
        options = servers | {
            "subscribe": topic,
            "subscription": f"bench-{uuid.uuid4().hex[:8]}",
            "startingOffsets": "latest",
            "leaseTimeout": f"{LEASE_MS}ms",
        }
        tracker = cursorq.start_tracker(spark, servers | {"checkpointLocation": here.checkpoint()})
        back: dict[tuple[int, int], float] = {}

        def on_batch(batch: DataFrame, _: int) -> None:
            at_ms = time.time() * 1000
            rows = batch.select("topic", "partition", "offset", "delivery_count").collect()
            for row in rows:
                if row.delivery_count == 2:
                    back[row.partition, row.offset] = at_ms
            again = [row for row in rows if row.delivery_count == 2]
            if again:
                cursorq.ack(spark.createDataFrame(again), options)

        query = (
            spark.readStream.format("cursorq")
            .options(**options)
            .load()
            .writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", here.checkpoint())
            .start()
        )
        producer = Producer({"bootstrap.servers": here.broker.bootstrap_servers})
        try:
            time.sleep(10)
            for number in range(MESSAGES):
                time.sleep(0.1 + 0.4 * random.random())
                producer.produce(topic, f"{number}".encode())
                producer.flush()
            until = time.monotonic() + 60
            while len(back) < MESSAGES and time.monotonic() < until:
                time.sleep(0.2)
        finally:
            query.stop()
            tracker.stop()
        markers = spark.read.format("cursorq").options(**servers).option("view", "markers").load()
        starts = markers.where("upper(type) = 'START' and delivery_count = 1").collect()
    late = sorted(
        (at_ms - begun) / 1000 - LEASE_MS / 1000
        for (partition, offset), at_ms in back.items()
        for begun in [
            max(
                start.timestamp.timestamp() * 1000
                for start in starts
                if start.topic == topic
                and start.partition == partition
                and any(piece.start <= offset < piece.stop for piece in start.offsets)
            )
        ]
    )
    what = "back after its lease, the Spark tracker with a trigger of 1 s"
    return [
        Figure(what=f"{what}, p50", value=late[len(late) // 2]),
        Figure(what=f"{what}, p99", value=late[int(len(late) * 0.99)], goal=2.5),
        Figure(what=f"came back, of {MESSAGES}", value=len(late), unit="", goal=MESSAGES),
    ]
