"""A Spark process whose query writes to a Delta table. It ends with its stdin, or where it is told to die.

``python -m tests.e2e.delta_app CONFIG``, ``CONFIG`` as JSON: options, table, checkpoint, die, rival, tag.
``die`` is ``amid`` (a task of the write), ``committed`` (the table has the rows, and no ack is written) or
``acked`` (Spark has not committed the batch). It happens in the second batch. With ``rival``, another sink
writes and acks the messages of the first batch after the query's sink has looked at the table.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import spark_cursor_source as cursorq
from spark_cursor_source.devkit.spark_session import local_session
from spark_cursor_source.spark import delta_sink
from tests.e2e.processes import die


class Writing:
    """The transformation of the query, which counts the batches."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self.batches = 0

    def __call__(self, batch: DataFrame) -> DataFrame:
        self.batches += 1
        if self._config["rival"] and self.batches == 1:
            cursorq.DeltaSink(self._config["table"], transform=texts)(batch, 0)
        rows = texts(batch)
        if self.batches == 2 and self._config["die"] == "amid":
            tag, last = self._config["tag"], rows.agg(F.max("offset")).collect()[0][0]

            def text_or_death(offset: int, text: str) -> str:
                if offset == last:
                    time.sleep(1)  # the other task is to write its file
                    die(tag)
                return text

            return rows.withColumn("text", F.udf(text_or_death)("offset", "text"))
        return rows


def texts(batch: DataFrame) -> DataFrame:
    return batch.select("partition", "offset", F.col("value").cast("string").alias("text"))


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    with local_session("cursorq delta", Path.cwd()) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        cursorq.register(spark)
        writing = Writing(config)
        if config["die"] in ("committed", "acked"):
            delta_sink.write_acks = _dying(config, writing, delta_sink.write_acks)
        rows = spark.readStream.format("cursorq").options(**config["options"]).load()
        written = rows.writeStream.foreachBatch(cursorq.DeltaSink(config["table"], transform=writing))
        written.option("checkpointLocation", config["checkpoint"]).start()
        sys.stdin.read()


def _dying(config: dict[str, Any], writing: Writing, write: Callable[..., int]) -> Callable[..., int]:
    def write_and_die(*args: Any) -> int:
        is_last = writing.batches == 2
        if is_last and config["die"] == "committed":
            die(config["tag"])
        settled = write(*args)
        if is_last:
            die(config["tag"])
        return settled

    return write_and_die


if __name__ == "__main__":
    main()
