"""The floors of the package: imports point down, and each foreign library has one home."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import figures

PACKAGE = "spark_cursor_source"
ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for path in (ROOT / PACKAGE).rglob("*.py") if not path.name.endswith("_pb2.py"))

# Bottom first; rooms of one floor are neighbours and do not import each other.
FLOORS = [
    ["errors", "_aliases"],
    ["core", "_features"],
    ["options", "wire"],
    ["metrics"],
    ["kafka"],
    ["topics"],
    ["consumer", "client.streams"],
    ["interop"],
    ["tracker"],
    ["client.queues"],
    ["client", "admin"],
    ["spark"],
    ["devkit", "__init__"],
    ["ui"],
    ["cli"],
]
HEIGHT = {room: height for height, floor in enumerate(FLOORS) for room in floor}

HOMES = {
    "pyspark": {"spark", "devkit", "__init__"},
    "confluent_kafka": {"kafka", "topics", "interop", "tracker", "admin", "client.streams", "devkit"},
    "google": {"wire", "interop"},
    "py4j": {"spark"},
    "rich": {"devkit", "cli"},
    "starlette": {"ui"},
    "jinja2": {"ui"},
    "uvicorn": {"ui"},
    "prometheus_client": {"metrics"},
    "opentelemetry": {"metrics"},
    "fastavro": {"wire"},
    "pandas": set(),
}
# Attributes of classic Spark. A session, DataFrame or reader of Spark Connect has none of them.
CLASSIC_ONLY = {
    "_gateway",
    "_jdf",
    "_jreader",
    "_jsc",
    "_jsparkSession",
    "_jvm",
    "_sc",
    "rdd",
    "sparkContext",
}
CLASSIC = ROOT / PACKAGE / "spark" / "classic.py"
SPARK_PROGRAMS = [*MODULES, *(path for room in ("jobs", "notebooks") for path in (ROOT / room).rglob("*.py"))]
PIPELINE = {"consumer", "tracker", "interop"}  #: rooms whose code runs in queries and trackers
UNTOLD = {"time", "random", "logging", "datetime", "socket", "threading", "secrets", "uuid"}


def room_of(module: str) -> str:
    """``spark_cursor_source.core.offsets`` -> ``core``; the client has two rooms, and a door."""
    first, *rest = module.removeprefix(PACKAGE).removeprefix(".").split(".")
    if first == "client" and rest and rest[0] in ("queues", "streams"):
        return f"client.{rest[0]}"
    return first or "__init__"


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
    room = room_of(dotted(path))
    assert room in HEIGHT, f"{room} has no floor"
    for imported in imports_of(path):
        top = imported.partition(".")[0]
        if top == PACKAGE:
            other = room_of(imported)
            assert other == room or HEIGHT[other] < HEIGHT[room], (
                f"{room} imports {imported}, which is not below it"
            )
        assert room in HOMES.get(top, {room}), f"{top} belongs to {sorted(HOMES[top])}"
        if room in ("core", "errors"):
            assert top not in UNTOLD, f"{room} is told the time and does no I/O; it imports {imported}"
        if room == "errors":
            assert top in ("__future__", "dataclasses", "typing", PACKAGE), f"errors imports {imported}"


@pytest.mark.parametrize("path", [path for path in SPARK_PROGRAMS if path != CLASSIC], ids=str)
def test_only_one_module_uses_what_spark_connect_does_not_have(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                assert name not in CLASSIC_ONLY, f"line {node.lineno}: {name} belongs to {CLASSIC.name}"


@pytest.mark.parametrize("path", [path for path in MODULES if room_of(dotted(path)) in PIPELINE], ids=dotted)
def test_a_pipeline_names_how_long_it_waits_for_brokers(path: Path) -> None:
    # The default is for commands and their users. A query and a tracker survive two minutes without brokers.
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="ClusterAdmin" | "CursorTable" as name), keywords=given):
                told = {keyword.arg for keyword in given}
                assert "timeout_ms" in told, f"line {node.lineno}: {name} without timeout_ms"


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=dotted)
def test_each_room_says_at_its_door_what_lives_there(path: Path) -> None:
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert told, "a docstring that says what lives here, what it imports, and where its neighbours are"
    assert len(told.splitlines()) <= 10


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    assert list(figures.riddles()) == []


def test_one_message_is_explained_by_few_modules_that_exist() -> None:
    named = figures.walk()
    assert 10 < len(named) <= 40
    assert [name for name in named if not (ROOT / PACKAGE / name).exists()] == []


def test_few_small_modules_serve_one_other_alone() -> None:
    assert len(figures.small_with_one_importer()) <= 15
