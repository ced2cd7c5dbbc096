"""The consumer of the crash tests: one query, whose messages say what is to become of their handler.

What a message's value begins with decides: ``exit`` ends the Python worker that handles it, ``kill`` ends
every process of the app, ``wait`` waits for as long as the gate (a file) exists, ``reject`` is rejected. The
first time, ``flaky`` fails, ``crash`` ends its Python worker, ``slow`` outlasts its lease, ``release`` is
given back and ``leave`` is left to its lease. All others are just acked.
Each message that reaches the handler is written to ``events`` before anything else is done with it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.core.duration import parse_duration
from tests.e2e.processes import die
from tests.e2e.spark_app import record

GATE_POLL_S = 0.02
PAUSE_S = 0.2  # before a query that failed is started again


def run(spark: SparkSession, config: dict[str, Any]) -> None:
    """Run the query; one that fails is started again as often as ``config["restarts"]`` says."""
    cursorq.register(spark)
    for attempt in range(config["restarts"] + 1):
        handling = Handling(config, f"{config['run']}.{attempt}")
        query = (
            spark.readStream.format("cursorq")
            .options(**config["options"])
            .load()
            .writeStream.foreachBatch(handling.sink())
            .option("checkpointLocation", config["checkpoint"])
            .trigger(processingTime=config["trigger"])
            .start()
        )
        handling.note("started")
        try:
            query.awaitTermination()
        except Exception as problem:  # noqa: BLE001 - whatever ended it, it is started again
            handling.note("failed", error=str(problem))
        time.sleep(PAUSE_S)


class Handling:
    """What is done with the messages of one run of the query."""

    def __init__(self, config: dict[str, Any], run: str) -> None:
        self._config = config
        self._run = run

    def note(self, event: str, **facts: object) -> None:
        record(self._config["events"], event=event, run=self._run, at=time.time(), **facts)

    def sink(self) -> Any:
        """What goes into foreachBatch."""
        options = self._config["options"]
        if "ackMode" in options:
            return self.batch
        if self._config["per_row"]:
            return cursorq.AckSink.per_row(self.one, options)
        return cursorq.AckSink(self.batch, options)

    def batch(self, rows: DataFrame, batch_id: int) -> None:
        """The handler of whole batches, in the driver."""
        self.note("batch", batch=batch_id)
        values = []
        for row in rows.collect():
            self._seen(row, batch_id)
            values.append(bytes(row.value))
        for value in values:
            self._act(value)
        time.sleep(self._config["slow_s"])
        self.note("handled", batch=batch_id, rows=len(values))

    def one(self, message: Any) -> Any:
        """The handler of single messages, in the executors' Python workers."""
        outcome = self._outcome_of(message)
        if outcome is None or isinstance(outcome, cursorq.Reject):
            self.note("passed", partition=message.partition, offset=message.offset)
        return outcome

    def _outcome_of(self, message: Any) -> Any:
        if self._config["wait_first"]:
            self._wait()
        self._seen(message, self.batch_id())
        value = bytes(message.value)
        self._act(value)
        if value.startswith(b"reject"):
            return cursorq.Reject("the message says so")
        if message.delivery_count == 1:
            return self._first_time(value)
        return None

    def _first_time(self, value: bytes) -> Any:
        if value.startswith(b"flaky"):
            raise ValueError("the first time")
        if value.startswith(b"crash"):
            os._exit(1)
        if value.startswith(b"slow"):
            time.sleep(1.5 * parse_duration(self._config["options"]["leaseTimeout"]) / 1000)
        if value.startswith(b"release"):
            return cursorq.Release(delay="1s")
        return cursorq.Leave() if value.startswith(b"leave") else None

    def batch_id(self) -> int | None:
        """The batch that is at work in this Python worker."""
        context = TaskContext.get()
        batch_id = context and context.getLocalProperty("streaming.sql.batchId")
        return int(batch_id) if batch_id else None

    def _seen(self, row: Any, batch_id: int | None) -> None:
        self.note(
            "seen",
            topic=row.topic,
            partition=row.partition,
            offset=row.offset,
            delivery_count=row.delivery_count,
            batch=batch_id,
        )

    def _act(self, value: bytes) -> None:
        if value.startswith(b"exit"):
            os._exit(1)
        if value.startswith(b"kill"):
            die(self._config.get("tag"))
        if value.startswith(b"wait"):
            self._wait()

    def _wait(self) -> None:
        gate = Path(self._config["gate"])
        while gate.exists():
            time.sleep(GATE_POLL_S)
