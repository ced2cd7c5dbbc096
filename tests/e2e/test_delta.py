"""DeltaSink on a real Delta table: each message is in it once, whatever dies and whatever comes again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from spark_cursor_source.devkit.runtime import resolved_jars
from spark_cursor_source.devkit.spark_session import python_environment
from spark_cursor_source.errors import JarsNotResolved
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from tests.e2e.harness import wait_until
from tests.e2e.processes import TAG, kill_tree
from tests.kafka.control_plane import Control, new_control, produce
from tests.kafka.tracker_thread import running_tracker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_200)]

DELTA = "4.4.0"
PARTITIONS, MESSAGES = 2, 240
SPARK = ".".join(pyspark.__version__.split(".")[:2])
#: Spark versions for which Delta has jars
WITH_DELTA = ("4.2",)


@pytest.fixture(scope="module")
def submit_args() -> str:
    """Arguments of spark-submit for a session with Delta that is quick on small tables."""
    if SPARK not in WITH_DELTA:
        pytest.skip(f"Delta {DELTA} has no jars for Spark {SPARK}")
    coordinate = f"io.delta:delta-spark_{SPARK}_2.13:{DELTA}"
    try:
        jars = resolved_jars(coordinate, f"Delta {DELTA}", f"delta-{DELTA}-{SPARK}", print)
    except JarsNotResolved as why:
        pytest.skip(f"the jars of Delta cannot be had here: {why}")
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.stats.collect": "false",
    }
    given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return f"--jars {','.join(map(str, jars))} {given} pyspark-shell"


@pytest.fixture
def control(config: dict[str, str], tmp_path: Path) -> Iterator[Control]:
    """A queue of messages in two partitions, and its tracker."""
    made = new_control(config)
    ClusterAdmin(config).create({made.queue: (PARTITIONS, {})})
    for partition in range(PARTITIONS):
        values = [{"value": b"%d-%d" % (partition, n), "partition": partition} for n in range(MESSAGES // 2)]
        produce(config, made.queue, values)
    with running_tracker(made, tmp_path / "tracker"):
        yield made


class Apps:
    """Processes one after the other that write a queue to a table."""

    def __init__(self, control: Control, directory: Path, submit_args: str, **options: str) -> None:
        self._control, self._directory, self._submit_args = control, directory, submit_args
        self.table = directory / "table"
        self._options = {
            "kafka.bootstrap.servers": control.config["bootstrap.servers"],
            "subscribe": control.queue,
            "subscription": "s",
            "markersTopic": control.markers,
            "redeliveriesTopic": control.redeliveries,
            "cursorsTopic": control.cursors,
            "leaseTimeout": "4s",
            "maxOffsetsPerTrigger": "60",
            "sessionTimeout": "6s",
            **options,
        }

    @contextmanager
    def running(self, die: str | None = None, *, rival: bool = False) -> Iterator[subprocess.Popen[bytes]]:
        """A process with checkpoints of its own, so that what comes again comes with other batch ids."""
        tag = uuid.uuid4().hex
        config: dict[str, Any] = {
            "options": self._options,
            "table": f"delta.`{self.table}`",
            "checkpoint": str(self._directory / f"checkpoint-{tag}"),
            "die": die,
            "rival": rival,
            "tag": tag,
        }
        self._work = work = self._directory / tag
        work.mkdir()
        environment = os.environ | python_environment() | {TAG: tag, "PYSPARK_SUBMIT_ARGS": self._submit_args}
        command = [sys.executable, "-m", "tests.e2e.delta_app", json.dumps(config)]
        with (
            (work / "log").open("wb") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, cwd=work
            ) as process,
        ):
            try:
                yield process
            finally:
                kill_tree(tag)
                process.wait()
                print(self.log()[-4_000:])

    def log(self) -> str:
        """What the latest process has written."""
        return (self._work / "log").read_text(errors="replace")

    def die(self, how: str) -> None:
        with self.running(how) as process:
            wait_until(lambda: process.poll() is not None, f"it dies: {how}")
            assert process.returncode == -9

    def until_acked(self, process: subprocess.Popen[bytes]) -> int:
        """Wait until all messages are acked. Returns how many were redelivered."""
        with closing(CursorTable(self._control.config, self._control.cursors)) as cursors:

            def done() -> bool:
                assert process.poll() is None
                cursors.refresh()
                found = cursors.of(subscription="s").values()
                acked = sum(one.totals.acked for one in found)
                return acked >= MESSAGES and not any(one.outstanding for one in found)

            wait_until(done, "all are acked")
            return sum(one.totals.redelivered for one in cursors.of(subscription="s").values())


def rows_of(table: Path) -> Counter[str]:
    """How often each message is in the table, by its log: the files that were added and not removed."""
    import pyarrow.parquet as pq

    files: set[str] = set()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            files |= {action["add"]["path"]} if "add" in action else set()
            files -= {action["remove"]["path"]} if "remove" in action else set()
    rows: Counter[str] = Counter()
    for name in files:
        rows.update(pq.read_table(table / name).column("text").to_pylist())
    return rows


EACH_ONCE = Counter(f"{partition}-{n}" for partition in range(PARTITIONS) for n in range(MESSAGES // 2))


def test_each_message_is_in_the_table_once_whatever_step_its_process_dies_at(
    control: Control, tmp_path: Path, submit_args: str
) -> None:
    apps = Apps(control, tmp_path, submit_args)
    apps.die("committed")
    restore_version_before(apps.table)
    apps.die("amid")
    apps.die("acked")
    with apps.running() as process:
        came_again = apps.until_acked(process)
    assert rows_of(apps.table) == EACH_ONCE
    assert came_again > 0


def test_two_sinks_that_write_the_same_messages_at_once_write_them_once(
    control: Control, tmp_path: Path, submit_args: str
) -> None:
    # query: looks at the table                writes, and is refused; looks again
    # rival:                     writes, acks
    apps = Apps(control, tmp_path, submit_args)
    with apps.running(rival=True) as process:
        apps.until_acked(process)
        assert rows_of(apps.table) == EACH_ONCE
        damage_latest_commit(apps.table)
        produce(control.config, control.queue, [{"value": b"more"}])
        wait_until(lambda: "TableHistoryDamaged: The userMetadata of version" in apps.log(), "it is refused")
    assert rows_of(apps.table) == EACH_ONCE


def restore_version_before(table: Path) -> None:
    """Commit what ``RESTORE TABLE`` does: the files of the latest commit are removed."""
    about, added = latest_commit(table)
    removed = [
        {"remove": {"path": one["path"], "deletionTimestamp": about["timestamp"], "dataChange": True}}
        for one in added
    ]
    restored = {name: value for name, value in about.items() if name != "userMetadata"}
    commit(table, [{"commitInfo": restored | {"operation": "RESTORE"}}, *removed])


def damage_latest_commit(table: Path) -> None:
    """Add a commit whose note has lost its list."""
    about, _ = latest_commit(table)
    note = json.loads(about["userMetadata"])
    note["cursorq"]["written"] = None
    commit(table, [{"commitInfo": about | {"userMetadata": json.dumps(note)}}])


def latest_commit(table: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What it says about itself, and the files that it adds."""
    latest = max((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in latest.read_text().splitlines()]
    about = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    return about, [action["add"] for action in actions if "add" in action]


def commit(table: Path, actions: list[dict[str, Any]]) -> None:
    latest = max((table / "_delta_log").glob("*.json"))
    text = "".join(json.dumps(action) + "\n" for action in actions)
    latest.with_name(f"{int(latest.stem) + 1:020}.json").write_text(text)
