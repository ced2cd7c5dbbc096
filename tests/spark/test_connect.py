"""Sinks in Spark Connect, with a client and a server of their own: the same as in classic Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from spark_cursor_source.devkit.spark_session import SHORT_LIVED
from tests.connect_port import connect_port
from tests.e2e.processes import TAG, kill_tree, write_stacks
from tests.spark.harness import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

NAMES = ("kept", "given", "misspelled", "rows", "again")
APP = Path(__file__).with_name("connect_app.py")
_ENDS_IN_S = 480
_CONF = ("spark.ui.enabled=false", "spark.driver.memory=1g", f"spark.driver.extraJavaOptions={SHORT_LIVED}")


def said_by_client(bench: Bench, topics: dict[str, str], directory: Path) -> dict[str, str]:
    """How each query ended, by the name of its sink: an empty text, or its error."""
    options = {name: value for name, value in bench.options("t").items() if name != "subscribe"}
    tag = uuid.uuid4().hex
    environment = {
        **os.environ,
        TAG: tag,
        "PYTHONFAULTHANDLER": "1",
        "PYSPARK_SUBMIT_ARGS": " ".join(f"--conf '{one}'" for one in _CONF) + " pyspark-shell",
    }
    command = [sys.executable, str(APP), json.dumps(topics), json.dumps(options), str(directory)]
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
    found: dict[str, str] = json.loads(said.strip().splitlines()[-1])
    return found


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
