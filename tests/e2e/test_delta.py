"""DeltaSink on a real Delta table: each message is in it once, whatever dies and whatever comes again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from spark_cursor_source.devkit.runtime import resolved_jars
from spark_cursor_source.errors import JarsNotResolved
from tests.e2e.harness import wait_until
from tests.e2e.sink_apps import EACH_ONCE, Apps, queue_with_tracker
from tests.kafka.control_plane import Control, produce

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_200)]

DELTA = "4.4.0"
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
    with queue_with_tracker(config, tmp_path) as made:
        yield made


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def apps(control: Control, tmp_path: Path, submit_args: str, table: Path) -> Apps:
    return Apps("tests.e2e.delta_app", control, tmp_path, submit_args=submit_args, table=f"delta.`{table}`")


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


def test_each_message_is_in_the_table_once_whatever_step_its_process_dies_at(apps: Apps, table: Path) -> None:
    apps.die("committed")
    restore_version_before(table)
    apps.die("amid")
    apps.die("acked")
    with apps.running() as process:
        came_again = apps.until_acked(process)
    assert rows_of(table) == EACH_ONCE
    assert came_again > 0


def test_two_sinks_that_write_the_same_messages_at_once_write_them_once(
    apps: Apps, table: Path, control: Control
) -> None:
    # query: looks at the table                writes, and is refused; looks again
    # rival:                     writes, acks
    with apps.running(rival=True) as process:
        apps.until_acked(process)
        assert rows_of(table) == EACH_ONCE
        damage_latest_commit(table)
        produce(control.config, control.queue, [{"value": b"more"}])
        wait_until(lambda: "TableHistoryDamaged: The userMetadata of version" in apps.log(), "it is refused")
    assert rows_of(table) == EACH_ONCE


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
