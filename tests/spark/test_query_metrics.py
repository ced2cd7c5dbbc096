"""Metrics of queries: their progress, the listener that collects it, and the times of handlers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_cursor_source import AckSink, QueryMetrics, QueueProgress, Reject
from spark_cursor_source.consumer.outstanding_view import OutstandingView
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.delivery_times import UNKNOWN
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.metrics import openmetrics
from spark_cursor_source.metrics.table import Histogram
from spark_cursor_source.spark.handler_times import HandlerTimes
from tests.spark.harness import Bench

SHOWN = {
    "v": 1,
    "queue": {"orders": {"0": 12}},
    "subscription": "metered",  # of no other test: the counts of handlers are those of the process
    "offsetsBehindLatest": {"sum": 30, "min": 10, "max": 20, "avg": 15.0},
    "outstanding": 7,
    "maxOutstanding": 100,
    "oldestOutstandingMs": 2_500,
}


def event(*latest_offsets: str | None, rows: int = 4, run_id: str = "run") -> Any:
    """An event of a query's progress, with a source for each of these offsets."""
    sources = [SimpleNamespace(latestOffset=text, numInputRows=rows) for text in latest_offsets]
    given = {"id": "query", "runId": run_id, "name": "q", "batchId": 3, "batchDuration": 250}
    return SimpleNamespace(progress=SimpleNamespace(sources=sources, **given), runId=run_id)


def told(samples: Any) -> dict[str, float]:
    return {
        one.metric.name.removeprefix("cursorq_"): sum(one.value.buckets)
        if isinstance(one.value, Histogram)
        else one.value
        for one in samples
        if one.labels[0] == "metered"
    }


def test_the_listener_keeps_gauges_of_running_queries_and_counts_of_all() -> None:
    metrics = QueryMetrics()
    metrics.onQueryProgress(event(json.dumps(SHOWN)))
    metrics.onQueryProgress(event(json.dumps(SHOWN | {"outstanding": 9}), rows=0))
    gauges = {
        "source_behind_messages": 30,
        "source_outstanding_messages": 9,
        "max_outstanding_messages": 100,
        "source_oldest_outstanding_age_seconds": 2.5,
        "source_tracker_silent_seconds": 0,
    }
    counts = {"source_read_rows_total": 4, "source_batch_seconds": 1}
    assert told(metrics.metrics()) == gauges | counts
    assert [one.outstanding for one in metrics.latest] == [9]
    metrics.onQueryTerminated(event())
    assert told(metrics.metrics()) == counts
    assert metrics.latest == ()


def test_the_gauges_of_queries_that_share_a_subscription_are_those_of_all_of_them() -> None:
    metrics = QueryMetrics()
    other = {"outstanding": 5, "maxOutstanding": 50, "oldestOutstandingMs": 1_000, "trackerSilentMs": 90_000}
    metrics.onQueryProgress(event(json.dumps(SHOWN)))
    metrics.onQueryProgress(event(json.dumps(SHOWN | other), run_id="other"))
    gauges = {
        "source_behind_messages": 60,
        "source_outstanding_messages": 12,
        "max_outstanding_messages": 150,
        "source_oldest_outstanding_age_seconds": 2.5,
        "source_tracker_silent_seconds": 90,
    }
    assert told(metrics.metrics()).items() >= gauges.items()
    metrics.onQueryProgress(event(json.dumps(SHOWN | {"maxOutstanding": None}), run_id="other"))
    assert "max_outstanding_messages" not in told(metrics.metrics()), "one of them has no limit"
    metrics.onQueryTerminated(event(run_id="other"))
    assert told(metrics.metrics())["max_outstanding_messages"] == 100


@pytest.mark.parametrize("other", [None, "null", "[1]", "no json", '{"orders":{"0":5}}'])
def test_a_source_of_another_kind_is_no_business_of_the_listener(other: str | None) -> None:
    metrics = QueryMetrics()
    metrics.onQueryProgress(event(other))
    assert metrics.latest == ()


def test_a_callback_gets_each_progress_and_its_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(progress: QueueProgress) -> None:
        raise ValueError(f"{progress.rows} rows")

    QueryMetrics(fail).onQueryProgress(event(json.dumps(SHOWN)))
    assert "event=on_progress_failed subscription=metered why=ValueError: 4 rows" in caplog.text


def test_the_view_of_outstanding_messages_measures_ages_by_the_clock_of_the_broker() -> None:
    # broker: first delivery of 3 at 1 000, last marker of the owner at 5 000 | 2 s later by the local clock
    clock = iter([100.0, 102.0]).__next__
    view = OutstandingView(now_s=clock)
    assert (view.outstanding, view.oldest_ms()) == (None, None)
    cursor = CursorSnapshot(
        cell=Cell(subscription="s", topic="t", partition=0),
        read_position=8,
        next_marker=0,
        leases=((Lease(60_000, 1, "run"), OffsetSet.of((3, 5))),),
        owner_seen_ms=5_000,
        first_deliveries=UNKNOWN.then(3, 1_000),
    )
    view.look([cursor, None])
    assert (view.outstanding, view.oldest_ms()) == (2, 6_000)
    view.look([])
    assert (view.outstanding, view.oldest_ms()) == (0, None)


def test_handler_times_are_sorted_into_buckets_by_outcome() -> None:
    times = HandlerTimes()
    times.add(None, [0.001, 0.005, 0.006])
    times.add(["reject", "ack", "reject"], [400.0, 0.02, 0.2])
    found = json.loads(times.encoded())
    assert {kind: (sum(buckets), total) for kind, (buckets, total) in found.items()} == {
        "ack": (4, pytest.approx(0.032)),
        "reject": (2, pytest.approx(400.2)),
    }
    assert found["ack"][0][:3] == [2, 1, 1], "a bucket includes its upper bound"
    assert found["reject"][0][-1] == 1


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("concurrency", [1, 4])
def test_progress_of_a_query_with_its_lag_and_the_times_of_its_handler(
    bench: Bench, concurrency: int
) -> None:
    topic, subscription = bench.create_topic(), f"timed-{concurrency}"
    bench.produce(topic, [b"x"] * 10)
    options = bench.options(topic, subscription, maxOffsetsPerTrigger=6)

    def handle(message: Any) -> Any:
        return Reject("odd") if message.offset % 2 else None

    seen: list[QueueProgress] = []
    metrics = QueryMetrics(seen.append)
    bench.spark.streams.addListener(metrics)
    try:
        bench.drain(options, AckSink.per_row(handle, concurrency=concurrency))
        bench.until(
            lambda: sum(one.rows for one in seen if one.subscription == subscription) == 10, "all rows"
        )
    finally:
        bench.spark.streams.removeListener(metrics)
    first = next(one for one in seen if one.subscription == subscription and one.rows)
    assert (first.rows, first.behind, first.max_behind) == (6, 4, 4)
    assert seen[-1].handler_calls == 10
    handled = [one for one in metrics.metrics() if one.metric.name == "cursorq_handler_seconds"]
    calls = {one.labels: sum(one.value.buckets) for one in handled if isinstance(one.value, Histogram)}
    assert (calls[subscription, "ack"], calls[subscription, "reject"]) == (5, 5)
    assert "cursorq_source_batch_seconds_bucket" in openmetrics(metrics.metrics())


@pytest.mark.spark
@pytest.mark.broker
def test_handlers_have_spans_below_that_of_their_batch_linked_to_the_producer(
    bench: Bench, tmp_path: Path
) -> None:
    topic, spans = bench.create_topic(), str(tmp_path / "spans")
    parent = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    bench.produce(topic, [{"value": b"x", "headers": [parent]}, {"value": b"y"}])

    def make_tracer() -> Any:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

        provider = TracerProvider()
        # One write for each span: several processes append to the file.
        out = open(spans, "a", buffering=1)  # noqa: SIM115 - it lives as long as the tracer
        provider.add_span_processor(
            SimpleSpanProcessor(
                ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
            )
        )
        return provider.get_tracer("test")

    bench.drain(
        bench.options(topic, includeHeaders="true"), AckSink.per_row(lambda one: None, tracer=make_tracer)
    )
    found = [json.loads(line) for line in Path(spans).read_text().splitlines()]
    (batch,) = (one for one in found if one["name"] == "process s")
    calls = {
        one["attributes"]["messaging.kafka.offset"]: one for one in found if one["name"] == f"process {topic}"
    }
    assert [one["parent_id"] for one in calls.values()] == [batch["context"]["span_id"]] * 2
    assert {one["attributes"]["cursorq.action"] for one in calls.values()} == {"ack"}
    assert [link["context"]["span_id"] for link in calls[0]["links"]] == ["0xb7ad6b7169203331"]
    assert calls[1]["links"] == []
