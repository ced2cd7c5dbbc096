"""The notebook, cell by cell as a notebook runs it, on a broker that it starts itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.e2e.harness import ROOT

NOTEBOOK = ROOT / "notebooks" / "quickstart.py"
HEADER, SEPARATOR, MAGIC = "# Databricks notebook source\n", "\n# COMMAND ----------\n", "# MAGIC"


def cells() -> list[str]:
    return [
        cell.strip("\n")
        for cell in NOTEBOOK.read_text(encoding="utf-8").removeprefix(HEADER).split(SEPARATOR)
    ]


def is_code(cell: str) -> bool:
    return not cell.startswith(MAGIC)


@pytest.fixture
def namespace(spark: SparkSession) -> Iterator[dict[str, Any]]:
    """Where the cells run; what they have started is ended, wherever they stop."""
    held: dict[str, Any] = {"__name__": "quickstart"}
    yield held
    for query in ("query", "tracker", "auditing"):
        if query in held:
            held[query].stop()
    if held.get("broker") is not None:
        held["broker"].close()


def test_the_notebook_is_in_databricks_source_format() -> None:
    assert NOTEBOOK.read_text(encoding="utf-8").startswith(HEADER)
    assert len(cells()) > 10
    for cell in cells():
        assert cell, "an empty cell"
        if not is_code(cell):
            assert cell.startswith(f"{MAGIC} %md\n")
            assert all(line.startswith(MAGIC) for line in cell.splitlines()), cell


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_every_cell_of_the_notebook_runs(
    namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for number, cell in enumerate(cells()):
        if is_code(cell):
            exec(compile(cell, f"{NOTEBOOK.name}, cell {number}", "exec"), namespace)
    shown = capsys.readouterr().out
    assert "the amount is not a number" in shown
    assert "audit has seen 12 orders" in shown
