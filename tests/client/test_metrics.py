"""Metrics of a queue in use: of its client, its tracker and its topics, scraped over HTTP."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from spark_cursor_source.admin import TopicMetrics
from spark_cursor_source.cli import main
from spark_cursor_source.errors import TopicNotFound
from spark_cursor_source.kafka import deadline
from spark_cursor_source.metrics import openmetrics, serve_metrics
from spark_cursor_source.tracker import Tracker
from tests.client.conftest import Rig, receive
from tests.late_signal import late_signal
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

Found = dict[tuple[str, ...], float]


def scraped(port: int) -> Found:
    """The values of an endpoint by name and sorted values of the labels."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/metrics",
        headers={"Accept": "application/openmetrics-text; version=1.0.0"},
    )
    with urllib.request.urlopen(asked) as got:
        text = got.read().decode()
    return {
        (one.name.removeprefix("cursorq_"), *(value for _, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_client_tracker_and_topics_show_what_became_of_the_messages(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(2)  # without a tracker: the one below is alone, and so counts every marker
    control = rig.control
    names = {**control.topics, **control.groups}
    service = rig.service()
    topics = rig.stack.enter_context(
        TopicMetrics(control.config, redeliveries_topic=control.redeliveries, **names)
    )
    tracker = rig.stack.enter_context(Tracker(control.options(trigger="20ms"), metrics_port=0))
    client = rig.stack.enter_context(serve_metrics(service, port=0))
    exporter = rig.stack.enter_context(serve_metrics(topics, port=0))
    rig.send(*(b"%d" % number for number in range(5)))
    consumer = rig.stack.enter_context(service.queue(subscription="s").consumer())
    first, second, third, *_ = receive(consumer, 5)
    first.ack()
    second.ack()
    third.reject("no")

    labels, place = ("", "s", rig.topic), ("s", rig.topic)  # the values of queue, subscription and topic
    found = scraped(client.port)
    assert found["client_deliveries_total", *labels] == 5
    assert found["client_settlements_total", "ack", *labels] == 2
    assert found["client_settlements_total", "reject", *labels] == 1
    assert (found["client_in_flight_messages", *labels], found["client_buffered_messages", *labels]) == (2, 0)
    assert found["processing_seconds_count", *labels] == 3

    def tracked() -> bool:
        found = scraped(exporter.port)
        return found.get(("acks_total", "ack", *place)) == 2 and (
            found.get(("dead_letters_total", *place)) == 1
        )

    wait_until(tracked)
    found = scraped(exporter.port)
    assert (found["exporter_up",], found["tracker_up",], found["tracker_silent_seconds",]) == (1, 1, 0)
    assert found["backlog_messages", *place] == found["in_flight_messages", *place] == 2
    assert found["subscription_consumers", *place] == 1
    assert found["cursor_bytes", *place] > 10
    assert found["oldest_unacked_age_seconds", *place] < 600
    assert found["control_topic_fit", control.markers] == 1

    port = tracker.metrics_port
    assert port is not None
    wait_until(lambda: scraped(port).get(("tracker_dead_letters_total", "rejected", *place)) == 1)
    found = scraped(port)
    assert found["tracker_up",] == 1
    assert found["markers_total", "End"] >= 1
    assert found["markers_total", "Reject"] == 1
    assert found["cursor_updates_total",] >= 1
    assert found["tracker_trigger_seconds_count",] >= 1
    assert found["tracker_lag_seconds",] < 30
    check_with_promtool(exporter.port, client.port, port)


def check_with_promtool(*ports: int) -> None:
    if shutil.which("promtool") is None:
        return
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as got:
            command = ["promtool", "check", "metrics"]
            done = subprocess.run(command, input=got.read(), capture_output=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_an_exporter_without_topics_says_so_and_tries_again_at_the_next_scrape(rig: Rig) -> None:
    missing = f"not-there-{rig.control.name}"
    names = {"markers_topic": rig.control.markers, "cursors_topic": missing}
    with TopicMetrics(rig.control.config, **names) as topics:
        assert "cursorq_exporter_up 0.0\n" in openmetrics(topics.metrics())
        with pytest.raises(TopicNotFound):
            topics.read()
        rig.topics.create({missing: (1, {"cleanup.policy": "compact"})})
        wait_until(lambda: "cursorq_exporter_up 1.0\n" in openmetrics(topics.metrics()))
        rig.topics.delete(missing)


def test_the_command_prints_one_scrape_or_serves_until_it_is_told_to_end(
    rig: Rig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {
        "bootstrap-servers": rig.control.config["bootstrap.servers"],
        "markers-topic": rig.control.markers,
    }
    names["cursors-topic"] = rig.control.cursors
    names["redeliveries-topic"] = rig.control.redeliveries
    arguments = ["metrics", *(word for name, value in names.items() for word in (f"--{name}", value))]
    assert main([*arguments, "--once"]) == 0
    assert capsys.readouterr().out.endswith("# EOF\n")
    command = [
        sys.executable,
        "-m",
        "spark_cursor_source.cli",
        *arguments,
        "--port",
        "0",
        "--log-format",
        "json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stdout.readline().removesuffix("/metrics\n").rpartition(":")[2])
        assert scraped(port)["exporter_up",] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        served = next(line for line in map(json.loads, process.stderr) if line["event"] == "metrics_served")
        assert served["fields"]["port"] == port
    waits = threading.Event()
    wait_in_steps = deadline.wait_in_steps

    def told(wait: Callable[[float], bool]) -> bool:
        waits.set()
        return wait_in_steps(wait)

    monkeypatch.setattr(deadline, "wait_in_steps", told)
    with late_signal(signal.SIGTERM, after=waits):
        assert main([*arguments, "--port", "0"]) == 0
