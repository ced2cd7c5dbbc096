"""A Spark process that can be killed: started ahead of time, told what to be in one line on its stdin.

``python -m tests.e2e.spark_app`` makes its session, waits for ``{"role": "consumer" | "tracker", ...}`` and
becomes that. Its stdin is also its lifeline: when it closes, whoever started it is gone, and so is it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

ROLES = {"consumer": "tests.e2e.consumer_app", "tracker": "tests.e2e.tracker_app"}


def record(path: str, **facts: object) -> None:
    """Append a JSON line that is on the disk when this returns; lines of several processes never mix."""
    line = json.dumps(facts).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def session(scratch: Path) -> SparkSession:
    # The simple compiler and collector: half the time to the first batch of a JVM that lives for a minute.
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    made = (
        SparkSession.builder.master("local[2]")
        .appName("cursorq e2e")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", quick)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("WARN")
    # The first Python worker and the first job are slow: not in the time of a test.
    made.range(2).mapInArrow(lambda batches: batches, "id BIGINT").collect()
    return made


def main() -> None:
    spark = session(Path.cwd())
    told = sys.stdin.readline()
    if not told:
        return
    config: dict[str, Any] = json.loads(told)
    threading.Thread(target=end_with_parent, daemon=True).start()
    importlib.import_module(ROLES[config["role"]]).run(spark, config)


def end_with_parent() -> None:
    """Wait until whoever started this process is gone, and end it then."""
    sys.stdin.read()
    os._exit(0)  # the JVM sees its own stdin close


if __name__ == "__main__":
    main()
