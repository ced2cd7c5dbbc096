"""The notebooks, cell by cell as a notebook runs them.

The quickstart runs as outside of Databricks, on a broker that it starts itself. The others get the widgets of
Databricks, which name the broker of the session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_cursor_source.devkit import EmbeddedKafka
from tests.e2e.harness import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
HEADER, SEPARATOR, MAGIC = "# Databricks notebook source\n", "\n# COMMAND ----------\n", "# MAGIC"
QUICKSTART = ROOT / "notebooks" / "quickstart.py"
OTHERS = [path for path in NOTEBOOKS if path != QUICKSTART]
#: what a notebook shows, beside its pictures
SHOWN = {
    "from_kafka_mq_go": "END",
    "from_kafka_source": '"0": 40',
    "from_sqs": "the function reports a batch item failure",
    "operating": "messages are released",
    "retries_and_dead_letters": "branch <*> is down",
    "subscriptions_and_cursors": "leased",
}


def cells(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8").removeprefix(HEADER)
    return [cell.strip("\n") for cell in text.split(SEPARATOR)]


def is_code(cell: str) -> bool:
    return not cell.startswith(MAGIC)


def run(path: Path, namespace: dict[str, Any]) -> None:
    for number, cell in enumerate(cells(path)):
        if is_code(cell):
            exec(compile(cell, f"{path.name}, cell {number}", "exec"), namespace)


@pytest.fixture
def namespace(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Where the cells run; what they have started is ended, wherever they stop."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    held: dict[str, Any] = {"__name__": "notebook"}
    yield held
    for query in spark.streams.active:
        query.stop()
    for name in ("tracker", "old_tracker"):
        if name in held and name != "query":
            held[name].stop()
    if held.get("broker") is not None:
        held["broker"].close()


class Databricks:
    """What a notebook finds on Databricks: widgets with values, and ``display``."""

    def __init__(self, values: dict[str, str], pictures: Path) -> None:
        self.widgets = SimpleNamespace(text=lambda name, default: None, get=values.__getitem__)
        self._pictures = pictures
        self.shown = 0

    def display(self, shown: Any) -> None:
        if hasattr(shown, "savefig"):
            shown.savefig(self._pictures / f"{shown.get_suptitle()}.png")
            self.shown += 1
        else:
            shown.show(truncate=False)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_in_databricks_source_format(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith(HEADER)
    assert len(cells(path)) > 10
    for cell in cells(path):
        assert cell, "an empty cell"
        if not is_code(cell):
            assert cell.startswith(f"{MAGIC} %md\n")
            assert all(line.startswith(MAGIC) for line in cell.splitlines()), cell


def test_all_notebooks_begin_alike() -> None:
    first = [next(cell for cell in cells(path) if is_code(cell)) for path in NOTEBOOKS]
    connects = {cell[cell.index('if "dbutils" in globals()') :] for cell in first}
    assert len(connects) == 1, "the cell that connects is the same everywhere, but for its imports"


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_every_cell_of_the_quickstart_runs(
    namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run(QUICKSTART, namespace)
    shown = capsys.readouterr().out
    assert "the amount is not a number" in shown
    assert "audit has seen 12 orders" in shown
    assert Path(namespace["checkpoints"], "What happened to each order.png").stat().st_size > 10_000


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs_on_databricks(
    path: Path,
    namespace: dict[str, Any],
    broker: EmbeddedKafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    widgets = {"bootstrap_servers": broker.bootstrap_servers, "checkpoints": str(tmp_path)}
    databricks = Databricks(widgets, Path(os.environ.get("CURSORQ_PICTURES", tmp_path)))
    namespace |= {"dbutils": databricks, "display": databricks.display}
    run(path, namespace)
    assert SHOWN[path.stem] in capsys.readouterr().out
    assert databricks.shown >= 1
