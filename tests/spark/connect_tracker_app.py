"""A client of Spark Connect that runs a tracker: one that it stops, and one that ends by itself, as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

import spark_cursor_source as cursorq


def main(endless: dict[str, str], bounded: dict[str, str]) -> None:
    """Start and stop both trackers, and print what became of them."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    query = started(spark, endless | {"trigger": "200ms"})
    while not query.recentProgress and query.isActive:
        time.sleep(0.2)  # then it is in its second batch, or waits for one
    begun = time.monotonic()
    query.stop()
    stopped_in_s = time.monotonic() - begun
    query = started(spark, bounded | {"trigger": "availableNow"})
    query.awaitTermination(240)
    failed = "it did not end" if query.isActive else str(query.exception() or "")
    print(json.dumps({"stopped_in_s": stopped_in_s, "failed": failed}))
    spark.stop()


def started(spark: SparkSession, options: dict[str, str]) -> Any:
    """A tracker. A busy machine is slow to bring up the Python worker of a query."""
    for _ in range(9):
        try:
            return cursorq.start_tracker(spark, options)
        except Exception as refused:
            if "connect back" not in str(refused):
                raise
    raise AssertionError("no Python worker came up")


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
