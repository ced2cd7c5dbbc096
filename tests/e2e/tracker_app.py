"""The tracker of the crash tests, which can be told to die at a certain step of a certain batch."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.kafka.transaction import TransactionalProducer
from spark_cursor_source.tracker.outbox import Outbox
from tests.e2e.processes import die
from tests.e2e.spark_app import record


def run(spark: SparkSession, config: dict[str, Any]) -> None:
    """Run the tracker until it fails."""
    _note_skipped(config)
    if config["die_at"] is not None:
        prepare_death(config["tag"], **config["die_at"])
    query = cursorq.start_tracker(spark, config["options"])
    _note(config, "started")
    try:
        query.awaitTermination()
    except Exception as problem:  # noqa: BLE001 - the test asks why it ended
        _note(config, "failed", error=str(problem))


def _note(config: dict[str, Any], event: str, **facts: object) -> None:
    record(config["events"], event=event, run=str(config["run"]), at=time.time(), **facts)


def _note_skipped(config: dict[str, Any]) -> None:
    """Write down each batch that an earlier run has executed."""
    carry_out = Outbox.carry_out

    def noting(self: Outbox, batch_id: int, **what: Any) -> bool:
        done = carry_out(self, batch_id, **what)
        if not done:
            _note(config, "skipped", batch=batch_id)
        return done

    Outbox.carry_out = noting  # type: ignore[method-assign]


def prepare_death(tag: str | None, step: str, batch: int) -> None:
    """Die after the ``transaction`` of a batch, ``batch`` at least, before Spark knows that it is done;
    or after its ``copies``, before its transaction begins."""
    carry_out, commit = Outbox.carry_out, TransactionalProducer.commit
    at_work: list[int] = []

    def carry_out_and_die(self: Outbox, batch_id: int, **what: Any) -> bool:
        at_work[:] = [batch_id]
        done = carry_out(self, batch_id, **what)
        if step == "transaction" and batch_id >= batch:
            die(tag)
        return done

    def die_before_commit(self: TransactionalProducer, *what: Any) -> None:
        if step == "copies" and at_work[0] >= batch:
            die(tag)
        commit(self, *what)

    Outbox.carry_out = carry_out_and_die  # type: ignore[method-assign]
    TransactionalProducer.commit = die_before_commit  # type: ignore[method-assign]
