"""The documentation as text: marked blocks, valid commands, generated pages, and a build without warnings."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.core import TyperGroup

from spark_cursor_source.cli.app import command_of
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.tracker import TrackerOptions
from tests.docs.pages import ROOT, Block, blocks, environment, page_name, pages, runnable
from tools import reference

BLOCKS = [block for path in pages() for block in blocks(path)]
SHELL = [block for block in BLOCKS if block.language in ("bash", "sh", "console") and block.not_run is None]
TOML = [block for block in BLOCKS if block.language == "toml" and block.not_run is None]
README_LINES = 200


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


@pytest.mark.parametrize("path", pages(), ids=page_name)
def test_a_page_with_python_names_its_environment(path: Path) -> None:
    if runnable(path):
        assert environment(path) in ("spark", "client", "nothing"), "add <!-- run with: ... -->"


def takes(arguments: list[str]) -> bool:
    """Parse the arguments of cursorq, whose errors are raised, and run nothing."""
    name, command, context = "cursorq", command_of(), None
    while isinstance(command, TyperGroup):
        context = command.make_context(name, arguments, parent=context)
        name, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
    return command.make_context(name, arguments, parent=context) is not None


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.name)
def test_a_command_is_one_that_exists_or_says_why_it_is_not_run(block: Block) -> None:
    lines = block.code.replace("\\\n", " ").splitlines()
    for line in lines:
        words = shlex.split(line, comments=True)
        match words:
            case []:
                continue
            case ["make", target, *_]:
                assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE), (
                    line
                )
            case ["cursorq", *arguments]:
                assert "--help" in arguments or takes(arguments)
            case ["python", script, *_] if script.endswith(".py"):
                assert (ROOT / script).exists(), line
            case ["python", "-m", module, *_] if module.startswith(("tests.", "tools.")):
                path = ROOT / module.replace(".", "/")
                assert path.with_suffix(".py").exists() or path.is_dir(), line
            case _:
                pytest.fail(
                    f"{block.name}: {line!r} is not run; say why above the block: <!-- not run: ... -->"
                )


@pytest.mark.parametrize("block", TOML, ids=lambda block: block.name)
def test_options_of_a_page_are_taken(block: Block) -> None:
    given = tomllib.loads(block.code)
    servers = {} if "kafka" in given else {"kafka.bootstrap.servers": "broker:9092"}
    if "subscribe" in given:
        SourceOptions.parse(servers | given)
    else:
        TrackerOptions.parse(servers | {"checkpointLocation": "checkpoint"} | given)


@pytest.mark.parametrize("name", sorted(reference.GENERATED))
def test_a_generated_page_says_what_the_code_says(name: str) -> None:
    written = (reference.PAGES / name).read_text(encoding="utf-8")
    assert written == reference.GENERATED[name]().rstrip() + "\n", "run python -m tools.reference"


def test_every_log_line_has_an_event() -> None:
    without = [f"{line.module}: {line.text}" for line in reference.log_lines() if line.event is None]
    assert without == []


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "docs",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]


@pytest.mark.parametrize("path", [path for path in pages() if path.parent == ROOT], ids=page_name)
def test_links_of_the_project_files_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("http") or (path.parent / target).exists(), target
