"""The page of guarantees: each one names its tests, and each of these tests exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "explanation" / "guarantees.md"
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def guarantees() -> dict[str, list[tuple[str, str]]]:
    """(file, test) of each guarantee of the page, by the guarantee's sentence."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## When a first replay")[0]
    items = re.findall(r"^- (.*?)\n\n  Tests: (.*?)\n$", text, re.MULTILINE | re.DOTALL)
    bullets = re.findall(r"^- ", text, re.MULTILINE)
    assert len(items) == len(bullets), "a bullet of the page lacks a line `Tests: ...` below it"
    return {promise: NAMED.findall(tests) for promise, tests in items}


GUARANTEES = guarantees()
TESTS = sorted({test for tests in GUARANTEES.values() for test in tests})


@pytest.mark.parametrize("promise", GUARANTEES, ids=lambda promise: promise[:60])
def test_a_guarantee_has_a_test(promise: str) -> None:
    assert GUARANTEES[promise], "name a test as `spark/test_leases.py::test_name`"


@pytest.mark.parametrize(("path", "name"), TESTS)
def test_a_test_of_a_guarantee_exists(path: str, name: str) -> None:
    tree = ast.parse((HERE / path).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name in found, f"the page of guarantees names a test that tests/{path} does not have"
