"""A client of Spark Connect with a server of its own: queries with sinks, and what they said, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq


def die_in_the_first_attempt(message: Any) -> None:
    """A handler whose task is run twice."""
    if message.attempt == 0:
        os._exit(1)


def main(topics: dict[str, str], options: dict[str, str], directory: Path) -> None:
    """Run a query for each topic, and print what it came to."""
    spark = SparkSession.builder.remote("local[2,3]").getOrCreate()
    cursorq.register(spark)

    def run(name: str, sink: Callable[[DataFrame, int], object]) -> str:
        rows = spark.readStream.format("cursorq").options(**options, subscribe=topics[name]).load()
        writer = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
        while True:
            try:
                query = writer.option("checkpointLocation", str(directory / name)).start()
                while query.isActive:
                    time.sleep(0.2)
                failed = str(query.exception() or "")
            except Exception as raised:  # noqa: BLE001 - it is what is looked at
                failed = str(raised)
            # Spark gives a worker ten seconds to come up, which a machine at its limits may not.
            if "failed to connect back" not in failed:
                return failed

    def write(batch: DataFrame, batch_id: int) -> None:
        (directory / f"kept-{batch_id}").write_text(json.dumps([batch.count(), batch.count()]))

    def refused(batch: DataFrame, batch_id: int) -> None:
        (directory / "called").touch()

    def outcomes(rows: DataFrame, batch_id: int) -> None:
        found = sorted((row.offset, row.action, row.result) for row in rows.collect())
        (directory / f"outcomes-{batch_id}").write_text(json.dumps(found))

    def answer(message: Any) -> str:
        return f"{message.offset} of {message.topic}"

    sinks = {
        "kept": cursorq.AckSink(write),
        "given": cursorq.AckSink(lambda batch, batch_id: None, options | {"subscribe": topics["given"]}),
        "misspelled": cursorq.AckSink(refused, options | {"subscription": "bilingg"}),
        "rows": cursorq.AckSink.per_row(answer, then=outcomes, result="STRING"),
        "again": cursorq.AckSink.per_row(die_in_the_first_attempt),
    }
    with ThreadPoolExecutor(3) as threads:
        said = threads.map(run, sinks, sinks.values())
        print(json.dumps(dict(zip(sinks, said, strict=True))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3]))
