"""An operator limits a subscription while a query reads it."""

from __future__ import annotations

import json
import time

import pytest

import spark_cursor_source as cursorq
from spark_cursor_source.admin import limit_subscription
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RATE = 10


def limit(bench: Bench, subscription: str, **limits: float | None) -> None:
    limit_subscription(
        bench.control.config,
        subscription,
        **bench.control.topics,
        **limits,  # type: ignore[arg-type]
    )


def test_a_running_query_obeys_a_rate_and_its_removal(bench: Bench) -> None:
    # 0-4 at once -- 10 per second -- all the rest at once
    topic = bench.create_topic(2)
    bench.produce(topic, [b"x"] * 5)
    options = bench.options(topic, "rated")
    seen = Seen()
    query = bench.start(options, cursorq.AckSink(seen, options))
    bench.until(lambda: len(seen.rows) == 5, "the query runs")
    limit(bench, "rated", rate=RATE)
    bench.until(lambda: "rateLimit" in (shown(query) or {}), "the idle query reports it")
    began, before = time.monotonic(), len(seen.rows)
    for partition in (0, 1):
        bench.produce(topic, [b"x"] * 500, partition=partition)
    bench.until(lambda: len(seen.rows) - before >= 3 * RATE, "messages come at the rate")
    came = len(seen.rows) - before
    passed_s = time.monotonic() - began
    assert came <= RATE * (passed_s + 2), "in this time, and in the batch before"
    assert passed_s > 1.5
    limit(bench, "rated", rate=None)
    bench.until(lambda: len(seen.rows) == 1_005, "the rest comes at once", timeout_s=60)
    assert len(seen.ids(1)) == len(set(seen.ids(1))) == 1_005


def shown(query: object) -> dict[str, float] | None:
    progress = query.lastProgress  # type: ignore[attr-defined]
    return None if progress is None else json.loads(progress["sources"][0]["latestOffset"] or "null")


def test_the_smaller_of_the_option_and_the_operators_limit_holds(bench: Bench) -> None:
    # limit 5, option 8: 5 leased -- limit 20: 8 leased -- no limit: 8 leased
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 5)
    options = bench.options(topic, "bounded", maxOutstanding=8, leaseTimeout="10m")
    seen = Seen()
    query = bench.start(options, seen)
    bench.until(lambda: len(seen.rows) == 5, "the query runs")
    limit(bench, "bounded", max_outstanding=5)
    bench.until(lambda: (shown(query) or {}).get("maxOutstanding") == 5, "the idle query reports it")
    bench.produce(topic, [b"x"] * 30)
    time.sleep(0.8)  # several triggers
    assert len(seen.rows) == 5
    for most in (20, None):
        limit(bench, "bounded", max_outstanding=most)
        bench.until(lambda: len(seen.rows) == 8, "the option holds")
    bench.until(lambda: (shown(query) or {}).get("maxOutstanding") == 8, "the query reports the option")


def test_a_single_run_takes_all_at_the_rate_before_it_ends(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"])
    options = bench.options(topic, "single")
    seen = Seen()
    bench.drain(options, cursorq.AckSink(seen, options))
    rate, began = 5, time.monotonic()
    limit(bench, "single", rate=rate)
    bench.produce(topic, [b"x"] * 25)
    bench.drain(options, cursorq.AckSink(seen, options))
    assert len(seen.ids(1)) == 26
    # No batch has a largest size: the rate that a slow batch leaves unused is kept for the next one.
    came = 0
    for batch, at in zip(seen.batches[1:], seen.times[1:], strict=True):
        came += len(batch)
        assert came <= rate * (at - began), "not all at once"
