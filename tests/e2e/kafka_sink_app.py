"""A Spark process whose query writes to a topic. It ends with its stdin, or where it is told to die.

``python -m tests.e2e.kafka_sink_app CONFIG``, with JSON (see ``tests.e2e.sink_apps``).
``die`` is ``amid`` (the brokers have the outputs and acks of a transaction, which is not committed),
``committed`` (a transaction is committed, and its task has not ended) or ``acked`` (all tasks have ended, and
Spark has not committed the batch). It happens in the second batch. With ``rival``, a file, the first task
stands still until the file exists. ``stands`` is ``looked`` (it knows which messages are acked, and no
transaction is open) or ``written`` (its transaction is open and has the outputs and acks).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import spark_cursor_source as cursorq
from spark_cursor_source.devkit.spark_session import local_session
from spark_cursor_source.kafka.transaction import TransactionalProducer
from spark_cursor_source.spark import output_task
from tests.e2e.processes import die
from tests.e2e.sink_apps import stand_still


class Writing:
    """The transformation of the query, which counts the batches."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self.batches = 0

    def __call__(self, batch: DataFrame) -> DataFrame:
        self.batches += 1
        tag, how, go = self._config["tag"], self._config["die"], self._config["rival"]
        stands = self._config.get("stands")
        if not ((self.batches == 2 and how in ("amid", "committed")) or (self.batches == 1 and go)):
            return batch.select("message", "value")

        def prepared(value: bytes) -> bytes:
            prepare_worker(tag, how, go, stands)
            return value

        return batch.select("message", F.udf(prepared, "binary")("value").alias("value"))


def prepare_worker(tag: str, how: str | None, go: str | None, stands: str | None) -> None:
    """Let the next transaction of this Python worker die or stand still."""
    commit: Callable[..., Any] = TransactionalProducer.commit
    if hasattr(commit, "is_prepared"):
        return
    if stands is not None:
        output_task.PATIENCE_MS *= 5  # for this task the time goes on while it stands still

    def prepared(self: TransactionalProducer, *args: Any, **more: Any) -> bool:
        TransactionalProducer.commit = commit  # type: ignore[method-assign]

        def inspect(written: object) -> bool:
            if how == "amid":
                die(tag)
            if stands == "written":
                stand_still(go)
            return True

        if stands == "looked":
            stand_still(go)
        committed: bool = commit(self, *args, **more, inspect=inspect)
        if how == "committed":
            die(tag)
        return committed

    prepared.is_prepared = True  # type: ignore[attr-defined]
    TransactionalProducer.commit = prepared  # type: ignore[method-assign]


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    with local_session("cursorq kafka sink", Path.cwd()) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        cursorq.register(spark)
        writing = Writing(config)
        sink = cursorq.KafkaSink(config["target"], transform=writing)

        def write(batch: DataFrame, batch_id: int) -> None:
            sink(batch, batch_id)
            print(f"batch {batch_id} is written", flush=True)
            if writing.batches == 2 and config["die"] == "acked":
                die(config["tag"])

        rows = spark.readStream.format("cursorq").options(**config["options"]).load()
        written = rows.writeStream.foreachBatch(write)
        written.option("checkpointLocation", config["checkpoint"]).start()
        sys.stdin.read()


if __name__ == "__main__":
    main()
