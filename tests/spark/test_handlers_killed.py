"""Handlers whose worker, executor and driver are killed, in a cluster: few calls come twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest

from spark_cursor_source.core.marker import Start
from tests import waiting
from tests.e2e.processes import TAG, kill_tree
from tests.spark.harness import Bench, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

APP = Path(__file__).with_name("handlers_app.py")
COUNT = 1_200
WORKER, EXECUTOR, DRIVER = AT = (300, 600, 900)
MOST = 60
"""Calls that a death may repeat, of 2 ms each; who dies has waited until the others before are acked."""


def begin(bench: Bench, topic: str, directory: Path, tag: str) -> subprocess.Popen[bytes]:
    # Its Spark looks for scripts in the directory of the app.
    environment = {**os.environ, TAG: tag, "SPARK_LOCAL_DIRS": str(directory / "local")}
    options = json.dumps(bench.options(topic, leaseTimeout="30s"))
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(APP), options, str(directory), json.dumps(AT)],
            env=environment,
            cwd=directory,
            stdout=log,
            stderr=log,
        )


def test_a_killed_worker_executor_and_driver_repeat_about_what_was_not_flushed(
    bench: Bench, tmp_path: Path
) -> None:
    # 0 .... 300 worker dies .... 600 executor dies .... 900 driver dies: the batch is replayed .... 1,200
    # Spark runs the task again   the stage, from attempt 0 on
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * COUNT)
    tag = uuid.uuid4().hex
    try:
        app = begin(bench, topic, tmp_path, tag)

        def ended() -> None:
            assert app.poll() is None, (tmp_path / "log").read_text(errors="replace")[-4_000:]

        for offset in AT:
            waits = tmp_path / f"waits-{offset}"
            waiting.wait_until(waits.exists, f"{offset} is to die", between=ended)
            bench.until(lambda at=offset: bench.cursor(topic).mark_delete == at - 1, "all before are acked")
            (tmp_path / f"go-{offset}").touch()
        wait_until((tmp_path / f"died-{DRIVER}").exists, "the driver is to die")
        kill_tree(tag)
        app.wait(30)
        app = begin(bench, topic, tmp_path, tag)
        assert app.wait(240) == 0, (tmp_path / "log").read_text(errors="replace")[-4_000:]
        # Spark's end tells the last worker to end, and does not wait for it.
        wait_until(lambda: any(tmp_path.glob("closed-*")), "a worker closes its resources")
    finally:
        kill_tree(tag)
    bench.until_acked(topic, COUNT)
    calls = Counter(int(line) for line in (tmp_path / "calls").read_bytes().split())
    assert set(calls) == set(range(COUNT))
    assert set(AT) <= {offset for offset, times in calls.items() if times > 1}
    assert calls.total() - COUNT <= 3 * MOST, calls.most_common(20)
    replayed = [one.marker.offsets for one in bench.markers(topic, kind=Start)]
    assert all(offset >= DRIVER - MOST for offsets in replayed[1:] for offset in offsets)
    opened, closed = ({one.name[7:] for one in tmp_path.glob(f"{word}-*")} for word in ("opened", "closed"))
    assert len(opened) == 4, "each worker opens its resources once"
    # A worker whose executor dies may notice it, and then ends in order before it is killed.
    assert 1 <= len(closed) <= 2, "and closes them when it ends in order; the others were killed"
    assert closed < opened
