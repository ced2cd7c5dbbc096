"""(k) Handlers that wait for something, side by side, against the ideal and bare pools of threads."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

from pyspark.sql import SparkSession

import spark_cursor_source as cursorq
from tests.benchmarks.common import Bench, medians, queue_options, sink_seconds, spark_session
from tests.benchmarks.report import Figure, rate

COUNT = 10_000
TASKS = 2
CONCURRENCY = 64
WAIT_S = 0.05
IDEAL_S = COUNT / (TASKS * CONCURRENCY) * WAIT_S


def run(here: Bench) -> list[Figure]:
    topic = here.fill(COUNT, partitions=TASKS)
    with spark_session(here, peer=False) as spark:
        cursorq.register(spark)
        runs = {
            "threads": partial(_consume, spark, here, topic, _wait),
            "async def": partial(_consume, spark, here, topic, _wait_async),
            f"{TASKS} processes with a ThreadPoolExecutor each, no Kafka": _bare_pools,
        }
        took = medians(here, *runs.values())
    ideal = rate(COUNT, IDEAL_S)
    return [
        Figure(
            what=f"handlers that wait: {name}",
            value=rate(COUNT, one),
            unit="/s",
            peer=ideal,
            peer_is="ideal",
            goal=None if number == len(took) - 1 else 0.85,
        )
        for number, (name, one) in enumerate(zip(runs, took, strict=True))
    ]


def _wait(_: Any) -> None:
    time.sleep(WAIT_S)


async def _wait_async(_: Any) -> None:
    await asyncio.sleep(WAIT_S)


def _bare_pools() -> float:
    """Seconds of the slower of the processes, without their start."""
    with ProcessPoolExecutor(TASKS, mp_context=get_context("spawn")) as processes:
        list(processes.map(_bare_pool, [0] * TASKS))
        return max(processes.map(_bare_pool, [COUNT // TASKS] * TASKS))


def _bare_pool(count: int) -> float:
    began = time.monotonic()
    with ThreadPoolExecutor(CONCURRENCY) as threads:
        list(threads.map(_wait, range(count)))
    return time.monotonic() - began


def _consume(spark: SparkSession, here: Bench, topic: str, fn: Any) -> float:
    rows = spark.readStream.format("cursorq").options(**queue_options(here, topic)).load()
    return sink_seconds(rows, here, cursorq.AckSink.per_row(fn, concurrency=CONCURRENCY))
