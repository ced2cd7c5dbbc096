"""Metrics as Prometheus reads them: valid in both text formats, with the declared names."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease, Totals
from spark_cursor_source.core.durability import WeakTopic
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.stats import PartitionStats, Stats, SubscriptionStats
from spark_cursor_source.errors import MetricsPortTaken
from spark_cursor_source.metrics import METRICS, Metric, MetricType, Sample, openmetrics, serve_metrics
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.metrics.snapshot import samples_of
from spark_cursor_source.metrics.table import Origin

ODD = 'a "quoted" \\ name\nof two lines'


def stats_of_two_partitions() -> Stats:
    leases = ((Lease(60_000, 1, "run"), OffsetSet.of((3, 5), (7, 8))),)
    blocked = Blocked(offsets=OffsetSet.of((5, 7)), behind=(3, 3), delivery_counts=(0, 0))
    cursors = [
        CursorSnapshot(
            cell=Cell(subscription="billing", topic="orders", partition=number),
            read_position=8,
            next_marker=7,
            leases=leases,
            blocked=blocked,
            totals=Totals(delivered=8, acked=5),
            breaker=Breaker(opened_ms=5_000 if number else None),
        )
        for number in (0, 1)
    ]
    parts = [PartitionStats.of(one, log_end=10, oldest_ms=1_000, cursor_bytes=40) for one in cursors]
    one = SubscriptionStats(
        topic="orders", subscription="billing", partitions=tuple(parts), consumers=(), newest_ms=61_000
    )
    weak = WeakTopic(topic="__markers", replication=1, min_insync=1, brokers=3, cure="add one")
    return Stats(subscriptions=(one,), weak_topics=(weak,), markers_unread=4)


def told(samples: list[Sample]) -> dict[tuple[str, ...], float]:
    return {
        (one.metric.name, *one.labels): one.value for one in samples if isinstance(one.value, (int, float))
    }


def one_of_each() -> Iterator[Sample]:
    counts = Counts()
    for metric in METRICS.values():
        labels = [ODD] * len(metric.labels)
        if metric.type is MetricType.HISTOGRAM:
            counts.observe(metric, *labels, seconds=0.2)
            counts.observe(metric, *labels, seconds=1_000, times=2)
        elif metric.type is MetricType.COUNTER:
            counts.add(metric, *labels, by=3)
        elif metric.name != "cursorq_build_info":
            counts.set(metric, *labels, to=1.5)
    return counts.samples()


def test_a_snapshot_becomes_gauges_and_counters_of_topic_and_subscription() -> None:
    stats, place = stats_of_two_partitions(), ("orders", "billing")
    found = told(
        list(samples_of(stats, control_topics=["__markers", "__cursors"], retention_ms={"orders": 90_000}))
    )
    assert found["cursorq_backlog_messages", *place] == 2 * (3 + 2 + 2)
    assert found["cursorq_in_flight_messages", *place] == 6
    assert found["cursorq_blocked_messages", *place] == 4
    assert found["cursorq_blocking_messages", *place] == 2
    assert found["cursorq_acks_total", *place, "ack"] == 10
    assert found["cursorq_oldest_unacked_age_seconds", *place] == 60
    assert found["cursorq_retention_headroom_seconds", *place] == 30
    assert found["cursorq_cursor_bytes", *place] == 80
    assert (found["cursorq_breaker_open", *place], found["cursorq_blocked", *place, "breaker"]) == (1, 1)
    assert found["cursorq_mark_delete_offset", *place, "1"] == 2
    assert found["cursorq_log_end_offset", "orders", "0"] == 10
    assert (
        found["cursorq_control_topic_fit", "__markers"],
        found["cursorq_control_topic_fit", "__cursors"],
    ) == (
        0,
        1,
    )
    assert found["cursorq_marker_lag_messages",] == 4


def test_each_metric_is_valid_openmetrics_also_with_odd_names_of_topics() -> None:
    families = {one.name: one for one in text_string_to_metric_families(openmetrics(one_of_each()))}
    assert families.keys() == {name.removesuffix("_total") for name in METRICS}
    backlog = families["cursorq_backlog_messages"].samples[0]
    assert (backlog.value, backlog.labels) == (1.5, {"topic": ODD, "subscription": ODD})
    trigger = {
        (one.name, one.labels.get("le")): one.value
        for one in families["cursorq_tracker_trigger_seconds"].samples
    }
    assert trigger["cursorq_tracker_trigger_seconds_bucket", "0.1"] == 0
    assert trigger["cursorq_tracker_trigger_seconds_bucket", "0.25"] == 1
    assert trigger["cursorq_tracker_trigger_seconds_bucket", "+Inf"] == 3
    assert trigger["cursorq_tracker_trigger_seconds_sum", None] == pytest.approx(2_000.2)


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_metric_is_named_by_the_practice_of_prometheus(metric: Metric) -> None:
    assert (metric.type is MetricType.COUNTER) == metric.name.endswith("_total")
    assert {"ms", "millis", "minutes", "kb"}.isdisjoint(metric.name.split("_")), "base units"
    assert not metric.help.endswith(".")
    assert metric.origins
    assert "partition" not in metric.labels or metric.name.endswith("_offset"), "positions only"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say_about_the_names() -> None:
    class Each:
        def metrics(self) -> Iterator[Sample]:
            return one_of_each()

    with serve_metrics(Each(), port=0) as server, urllib.request.urlopen(server_url(server.port)) as got:
        text = got.read()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def server_url(port: int) -> str:
    return f"http://127.0.0.1:{port}/metrics"


def test_an_endpoint_answers_in_the_format_that_is_asked_for_until_it_is_closed() -> None:
    class Source:
        def metrics(self) -> Iterator[Sample]:
            return samples_of(stats_of_two_partitions())

    asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with serve_metrics(Source(), port=0) as server:
        with urllib.request.urlopen(urllib.request.Request(server_url(server.port), headers=asked)) as got:
            assert got.headers["Content-Type"].startswith("application/openmetrics-text")
            assert got.read().endswith(b"# EOF\n")
        with urllib.request.urlopen(server_url(server.port)) as got:
            assert b'cursorq_backlog_messages{subscription="billing",topic="orders"} 14.0\n' in got.read()
        with pytest.raises(MetricsPortTaken, match="in use"):
            serve_metrics(Source(), port=server.port)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(server_url(server.port))


def test_every_process_has_metrics() -> None:
    assert {origin for metric in METRICS.values() for origin in metric.origins} == set(Origin)
