"""A client of Spark Connect with a server of its own: queries with sinks, and what they said, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
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
    # Spark gives a Python worker ten seconds to come up. On a machine at its limits, workers that start side
    # by side would each take longer, in each new attempt again.
    starting = Lock()

    def run(name: str, sink: Callable[[DataFrame, int], object]) -> str:
        rows = spark.readStream.format("cursorq").options(**options, subscribe=topics[name]).load()
        writer = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)

        def attempt(until_its_end: bool) -> str:
            try:
                with starting:
                    query = writer.option("checkpointLocation", str(directory / name)).start()
                    while until_its_end and query.isActive:
                        time.sleep(0.2)
                while query.isActive:
                    time.sleep(0.2)
                return str(query.exception() or "")
            except Exception as raised:  # noqa: BLE001 - it is what is looked at
                return str(raised)

        failed = attempt(until_its_end=False)
        while "failed to connect back" in failed:
            failed = attempt(until_its_end=True)
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
    # A session that is still open calls its server when Python ends, and waits for one that is gone.
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3]))
