"""Prints figures about the shape of the code: ``python -m tools.figures``."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "spark_cursor_source"
SMALL = 60  #: lines; a module below this that one other imports may be a part of it
COMPLEX = 12  #: branches of a function
OPENERS = re.compile(r"(What|Whether|That|Of|Where|Who|Whose|Whoever|How|Which|Those|When|If|It|As)\b")


def modules() -> list[Path]:
    """All modules of the product that are not generated."""
    return sorted(path for path in (ROOT / PACKAGE).rglob("*.py") if not path.name.endswith("_pb2.py"))


def line_count(path: Path) -> int:
    """The lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def dotted(path: Path) -> str:
    """``spark_cursor_source/core/offsets.py`` as ``spark_cursor_source.core.offsets``."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def importers() -> dict[str, set[str]]:
    """The modules that import each module."""
    names = {dotted(path) for path in modules()}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    if name in names and name != dotted(path):
                        found[name].add(dotted(path))
    return found


def small_with_one_importer() -> list[str]:
    """Modules below SMALL lines that exactly one module of the product imports.

    A verb of the command is a module of its own, which only the list of verbs imports.
    """
    of = importers()
    return [
        dotted(path)
        for path in modules()
        if path.name != "__init__.py"
        and path.parent.name != "cli"
        and line_count(path) < SMALL
        and len(of[dotted(path)]) == 1
    ]


def riddles() -> Iterator[str]:
    """Docstrings whose first word leaves the subject to the reader, as file:line."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, documented) and OPENERS.match(ast.get_docstring(node) or ""):
                yield f"{path.relative_to(ROOT)}:{node.body[0].lineno}"


def docstring_count() -> int:
    """All docstrings of the product."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in modules())
    return sum(
        bool(isinstance(node, documented) and ast.get_docstring(node))
        for tree in trees
        for node in ast.walk(tree)
    )


def complex_functions() -> list[str]:
    """Functions above COMPLEX branches, as ruff counts them."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--select",
        "C901",
        "--output-format",
        "json",
        "--exit-zero",
    ]
    limit = ["--config", f"lint.mccabe.max-complexity={COMPLEX}", PACKAGE]
    done = subprocess.run([*command, *limit], cwd=ROOT, capture_output=True, text=True, check=True)
    return [f"{Path(one['filename']).name}: {one['message']}" for one in json.loads(done.stdout)]


def walk() -> list[str]:
    """The modules that ARCHITECTURE.md names to explain one message, in the order of the text."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("\n## One message\n")[2].partition("\n## ")[0]
    return list(dict.fromkeys(re.findall(r"`([\w/]+\.py)`", section)))


def main() -> None:
    """Print all figures."""
    paths, questionable = modules(), list(riddles())
    print(f"lines of product code            {sum(map(line_count, paths))} in {len(paths)} modules")
    print(f"modules named for one message    {len(walk())}")
    print(f"functions above complexity {COMPLEX}    {len(complex_functions())}")
    for one in complex_functions():
        print(f"    {one}")
    lonely = small_with_one_importer()
    print(f"small modules with one importer  {len(lonely)}")
    for name in lonely:
        print(f"    {name}")
    print(f"docstrings that open as a riddle {len(questionable)} of {docstring_count()}")


if __name__ == "__main__":
    main()
