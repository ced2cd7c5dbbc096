"""A driver of a cluster of its own whose handlers kill their worker, their executor, and have it killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import spark_cursor_source as cursorq
from tests.spark.harness import start_patiently

PAUSE_S = 0.002


def main(options: dict[str, str], directory: Path, at: list[int]) -> None:
    """Handle what is there. ``at`` are the offsets at which the worker, the executor and the driver die."""
    worker, executor, _ = at

    @contextmanager
    def resources() -> Iterator[None]:
        (directory / f"opened-{os.getpid()}").touch()
        yield
        (directory / f"closed-{os.getpid()}").touch()

    def handle(message: Any, _: None) -> None:
        time.sleep(PAUSE_S)
        with (directory / "calls").open("ab") as calls:
            calls.write(b"%d\n" % message.offset)
        dying = directory / f"died-{message.offset}"
        if message.offset not in at or dying.exists():
            return
        (directory / f"waits-{message.offset}").touch()
        goes = directory / f"go-{message.offset}"
        while not goes.exists():  # the test waits until those before are acked
            time.sleep(0.02)
        dying.touch()
        if message.offset == worker:
            os.kill(os.getpid(), signal.SIGKILL)
        if message.offset == executor:
            os.kill(_parent(os.getppid()), signal.SIGKILL)  # the parent of a worker is a daemon
        time.sleep(60)  # the test kills all of this app

    spark = (
        SparkSession.builder.master("local-cluster[1,1,700]")
        .config("spark.executor.memory", "700m")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    cursorq.register(spark)
    rows = spark.readStream.format("cursorq").options(**options).load()
    rows = rows.repartition(1)  # its output dies with the executor, so that Spark runs the whole stage again
    sink = cursorq.AckSink.per_row(handle, flush="200ms", resources=resources)
    writer = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
    start = writer.option("checkpointLocation", str(directory / "checkpoint")).start
    start_patiently(start).awaitTermination()
    spark.stop()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
