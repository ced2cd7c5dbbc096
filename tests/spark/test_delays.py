"""Delayed first delivery: headers say when, and nothing of a message is seen before."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from spark_cursor_source import AckSink
from spark_cursor_source.core.marker import Start
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_a_delayed_message_is_delivered_once_when_it_is_due_and_holds_up_nobody(bench: Bench) -> None:
    # run A: 0; then 1, 3, 4 at once, and it fails     run B: 1, 3, 4 again; 2 when it is due
    topic = bench.create_topic()
    bench.produce(topic, [b"x"])
    options = bench.options(topic, leaseTimeout="10m")
    before_the_crash, seen = Seen(), Seen()

    def fail(batch: DataFrame, batch_id: int) -> None:
        before_the_crash(batch, batch_id)
        if batch.where("offset > 0").count():  # a second action reads the batch again
            raise RuntimeError("the process is gone")

    failing = bench.start(options, AckSink(fail, options, persist=False))
    bench.until_acked(topic, 1)  # the query is at work
    sent_ms = round(time.time() * 1000)
    headers = [{}, {"deliverAfter": "8s"}, {"deliverAt": str(sent_ms - 1)}, {"deliverAt": "tomorrow"}]
    bench.produce(topic, [{"value": b"x", "headers": one, "timestamp": sent_ms} for one in headers])
    assert "the process is gone" in bench.failure(failing)
    assert before_the_crash.ids(1) == [(0, 0), (0, 1), (0, 3), (0, 4)]
    bench.start(options, AckSink(seen, options))
    bench.until_acked(topic, 5)
    assert seen.ids(2) == [(0, 1), (0, 3), (0, 4)]
    assert seen.ids(1) == [(0, 2)]
    assert len(seen.rows) == 4
    started = [one for one in bench.markers(topic, kind=Start) if 2 in one.marker.offsets]
    assert started[-1].at_ms >= sent_ms + 8_000, "not before its time, by the broker's clock"
    cursor = bench.cursor(topic)
    assert cursor is not None
    assert (cursor.totals.delivered, cursor.totals.acked) == (8, 5), "what was taken back is not counted"


def test_a_batch_that_the_source_acks_leaves_what_was_not_due(bench: Bench) -> None:
    # batch: End of a batch      cumulative: EndUpTo       both: 1 is delivered all the same, later than 2
    topic = bench.create_topic()
    bench.produce(topic, [b"x"])
    seen = {mode: Seen() for mode in ("batch", "cumulative")}
    for mode, sink in seen.items():
        bench.start(bench.options(topic, mode, ackMode=mode), sink, checkpoint=mode)
    for mode in seen:
        bench.until_acked(topic, 1, mode)  # both queries are at work
    bench.produce(topic, [{"value": b"x", "headers": {"deliverAfter": "8s"}}, {"value": b"x"}])
    for mode, sink in seen.items():
        bench.until_acked(topic, 3, mode)
        assert sink.ids() == sink.ids(1) == [(0, 0), (0, 1), (0, 2)]
        assert sink.rows[-1].offset == 1


def test_a_delayed_message_that_the_sink_does_not_read_is_delivered_when_it_is_due(bench: Bench) -> None:
    # batch: its sink does not look at the rows      cumulative: at whether there are any
    # both: 2 is acked unread, 1 is delivered when it is due
    topic = bench.create_topic()
    bench.produce(topic, [b"x"])
    seen = {mode: Seen() for mode in ("batch", "cumulative")}

    def start(mode: str, look: Callable[[DataFrame], object]) -> None:
        def sink(batch: DataFrame, batch_id: int) -> None:
            if batch_id > 1:  # after 0, and after 1 and 2
                seen[mode](batch, batch_id)
            else:
                look(batch)

        bench.start(bench.options(topic, mode, ackMode=mode), sink, checkpoint=mode)

    start("batch", lambda batch: None)
    start("cumulative", DataFrame.isEmpty)
    for mode in seen:
        bench.until_acked(topic, 1, mode)  # both queries are at work
    bench.produce(topic, [{"value": b"x", "headers": {"deliverAfter": "8s"}}, {"value": b"x"}])

    def waits(mode: str) -> bool:
        cursor = bench.cursor(topic, mode)
        return cursor is not None and cursor.read_position == 3 and not cursor.leased

    for mode in seen:
        bench.until(lambda mode=mode: waits(mode), "the batch is acked")
    for mode, sink in seen.items():
        bench.until_acked(topic, 3, mode)
        assert sink.ids() == sink.ids(1) == [(0, 1)]
