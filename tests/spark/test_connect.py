"""Sinks in Spark Connect, with a client and a server of their own: the same as in classic Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.spark_session import SHORT_LIVED
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire import cursor as cursor_wire
from tests.connect_port import connect_port
from tests.e2e.processes import TAG, kill_tree, write_stacks
from tests.kafka.control_plane import PARTITIONS, cell_of, new_control, offsets, produce, read_all
from tests.spark.harness import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

NAMES = ("kept", "given", "misspelled", "rows", "again")
APP = Path(__file__).with_name("connect_app.py")
TRACKER_APP = Path(__file__).with_name("connect_tracker_app.py")
_ENDS_IN_S = 480
_CONF = ("spark.ui.enabled=false", "spark.driver.memory=1g", f"spark.driver.extraJavaOptions={SHORT_LIVED}")


def said_by_client(bench: Bench, topics: dict[str, str], directory: Path) -> dict[str, str]:
    """How each query ended, by the name of its sink: an empty text, or its error."""
    options = {name: value for name, value in bench.options("t").items() if name != "subscribe"}
    said = run_client(APP, (json.dumps(topics), json.dumps(options), str(directory)), directory)
    found: dict[str, str] = json.loads(said)
    return found


def run_client(app: Path, arguments: tuple[str, ...], directory: Path) -> str:
    """The last line that a client with a server of its own prints."""
    tag = uuid.uuid4().hex
    environment = {
        **os.environ,
        TAG: tag,
        "PYTHONFAULTHANDLER": "1",
        "PYSPARK_SUBMIT_ARGS": " ".join(f"--conf '{one}'" for one in _CONF) + " pyspark-shell",
    }
    command = [sys.executable, str(app), *arguments]
    log = directory / "client.log"
    with connect_port(), log.open("wb") as errors:
        client = subprocess.Popen(
            command, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            said, _ = client.communicate(timeout=_ENDS_IN_S)
        except subprocess.TimeoutExpired:
            write_stacks(tag)
            raise AssertionError(
                f"no end: {client.communicate()[0]}\n{log.read_text(errors='replace')}"
            ) from None
        finally:
            kill_tree(tag)
    assert client.returncode == 0, log.read_text(errors="replace")[-4_000:]
    return said.strip().splitlines()[-1]


def test_sinks_ack_once_refuse_what_is_not_theirs_and_tell_an_attempt(bench: Bench, tmp_path: Path) -> None:
    topics = {name: bench.create_topic(name=f"connect-{name}-{uuid.uuid4().hex[:8]}") for name in NAMES}
    for topic in topics.values():
        bench.produce(topic, [b"x"] * 4)
    said = said_by_client(bench, topics, tmp_path)

    refusal = said.pop("misspelled")
    assert "SinkOfAnotherSource" in refusal
    assert "subscription=s, and this sink has subscription=bilingg" in refusal
    assert not (tmp_path / "called").exists()
    assert said == dict.fromkeys(("kept", "given", "rows", "again"), "")
    for name in said:
        bench.until_acked(topics[name], 4)
    assert json.loads((tmp_path / "kept-0").read_text()) == [4, 4]
    results = json.loads((tmp_path / "outcomes-0").read_text())
    assert results == [[n, "ack", f"{n} of {topics['rows']}"] for n in range(4)]
    assert bench.cursor(topics["again"]).totals.redelivered == 0


def test_a_tracker_stops_during_a_batch_and_one_that_is_bounded_ends_by_itself(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    # a tracker for ever: stop() | another one, with trigger=availableNow: an old lease ends, and the query
    config = {"bootstrap.servers": broker.bootstrap_servers}
    endless, bounded = new_control(config), new_control(config)
    cell = cell_of(bounded.queue)
    place = cell.control_partition(PARTITIONS)
    leased = CursorSnapshot(
        cell=cell,
        read_position=1,
        next_marker=0,
        owner="run",
        markers_partition=place,
        leases=((Lease(1, 1, "run"), offsets((0, 1))),),
    )
    ClusterAdmin(config).create({bounded.queue: (1, {})})
    produce(config, bounded.cursors, [{"key": cell.key, "value": cursor_wire.encode(leased)}])
    told = [
        control.options(checkpointLocation=str(tmp_path / control.name), backoff="0s")
        for control in (endless, bounded)
    ]
    said = json.loads(run_client(TRACKER_APP, (json.dumps(told),), tmp_path))
    assert said["stopped_in_s"] < 30
    assert said["failed"] == ""
    assert len(read_all(config, bounded.redeliveries)) == 1
