"""The list of promises: each promise of the README has its tests, and each of these tests exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> dict[str, str]:
    """The tests of each promise in ``PROMISES.md``, as they stand there."""
    lines = (HERE / "PROMISES.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").rsplit(" | ", 1) for line in lines if line.startswith("| ")]
    return {row[0]: row[1] for row in cells[2:]}


def promised() -> list[str]:
    """The bullets of the README's section, each on one line."""
    text = README.read_text(encoding="utf-8")
    section = re.search(r"^## What is promised\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    bullets = re.findall(r"^- (.*?)(?=^- |\n\n|\Z)", section.group(1), re.MULTILINE | re.DOTALL)
    return [re.sub(r"\s+", " ", bullet).strip() for bullet in bullets]


ROWS = rows()
TESTS = sorted({named for tests in ROWS.values() for named in NAMED.findall(tests)})


@pytest.mark.parametrize("promise", promised(), ids=lambda promise: promise[:60])
def test_a_promise_of_the_readme_has_a_row(promise: str) -> None:
    assert promise in ROWS, "copy this bullet of the README to tests/PROMISES.md and name its tests"


@pytest.mark.parametrize("promise", ROWS, ids=lambda promise: promise[:60])
def test_a_promise_has_a_test(promise: str) -> None:
    assert NAMED.findall(ROWS[promise]), "name a test as `spark/test_leases.py::test_name`"


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_a_test_of_a_promise_exists(path: str, name: str) -> None:
    tree = ast.parse((HERE / path).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name in found, f"tests/PROMISES.md names a test that tests/{path} does not have"
