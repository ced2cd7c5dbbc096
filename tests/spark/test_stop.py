"""A query that is stopped amid a batch ends as Spark means it to, and not with an error of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

import spark_cursor_source as cursorq
from spark_cursor_source.spark.classic import recognizable_stop
from tests.spark.harness import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def sleep(rows: Any) -> Any:
    time.sleep(60)
    yield from rows


def sink_of_batches(at_work: threading.Event) -> Callable[[DataFrame, int], object]:
    def work(batch: DataFrame, _: int) -> None:
        at_work.set()
        batch.mapInArrow(sleep, batch.schema).collect()

    return cursorq.AckSink(work)


def sink_of_rows(at_work: threading.Event) -> Callable[[DataFrame, int], object]:
    sink = cursorq.AckSink.per_row(lambda _: time.sleep(60))

    def work(batch: DataFrame, batch_id: int) -> None:
        at_work.set()
        sink(batch, batch_id)

    return work


@pytest.mark.parametrize("sink_of", [sink_of_batches, sink_of_rows])
def test_a_query_that_is_stopped_amid_a_batch_is_stopped_and_has_not_failed(
    bench: Bench, sink_of: Callable[[threading.Event], Callable[[DataFrame, int], object]]
) -> None:
    topic, at_work = bench.create_topic(), threading.Event()
    bench.produce(topic, [b"x"])
    query = bench.start(bench.options(topic), sink_of(at_work))
    bench.until(at_work.is_set, "the batch is at work")
    bench.until(lambda: bench.spark.sparkContext.statusTracker().getActiveJobsIds(), "its job runs")
    query.stop()
    assert query.exception() is None
    assert query.status["message"] == "Stopped"


def test_an_error_in_a_batch_whose_session_is_gone_stays_as_it_is() -> None:
    class Gone:
        @property
        def sparkSession(self) -> Any:
            raise ConnectionError("the JVM has ended")

    with pytest.raises(ValueError, match="mine"), recognizable_stop(Gone()):  # type: ignore[arg-type]
        raise ValueError("mine")
