"""The floors of the package: imports point down, and each foreign library has one home."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "spark_cursor_source"
ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for path in (ROOT / PACKAGE).rglob("*.py") if not path.name.endswith("_pb2.py"))

# Bottom first; modules of one floor in different homes are neighbours and do not import each other.
FLOORS = [
    ["errors"],
    ["core"],
    ["wire"],
    ["kafka", "embedded"],
    ["spark", "client"],
    ["demo"],
    ["cli", "__init__"],
]
HEIGHT = {home: height for height, floor in enumerate(FLOORS) for home in floor}

HOMES = {
    "pyspark": {"spark", "__init__"},
    "confluent_kafka": {"kafka", "embedded"},
    "google": {"wire"},
}
UNTOLD = {"time", "random", "logging", "datetime", "socket", "threading", "secrets", "uuid"}


def home_of(module: str) -> str:
    """``spark_cursor_source.core.offsets`` -> ``core``; the broker's helpers belong to ``embedded``."""
    first = module.removeprefix(PACKAGE).removeprefix(".").partition(".")[0] or "__init__"
    return "embedded" if first.startswith("_broker_") else first


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            if node.module == PACKAGE:
                yield from (f"{PACKAGE}.{alias.name}" for alias in node.names)
            elif node.module is not None:
                yield node.module


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_point_down_and_foreign_libraries_stay_at_home(path: Path) -> None:
    home = home_of(dotted(path))
    assert home in HEIGHT, f"{home} has no floor in HOUSE_STYLE's layout"
    for imported in imports_of(path):
        top = imported.partition(".")[0]
        if top == PACKAGE:
            other = home_of(imported)
            assert other == home or HEIGHT[other] < HEIGHT[home], (
                f"{home} imports {imported}, which is not below it"
            )
        assert home in HOMES.get(top, {home}), f"{top} belongs to {sorted(HOMES[top])}"
        if home in ("core", "errors"):
            assert top not in UNTOLD, f"{home} is told the time and does no I/O; it imports {imported}"
        if home == "errors":
            assert top in ("__future__", PACKAGE), "errors imports nothing but errors"
