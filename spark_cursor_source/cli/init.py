"""``cursorq init``: writes the starter files of a project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from spark_cursor_source.cli.frame import Json, path_not_empty
from spark_cursor_source.cli.output import print_json
from spark_cursor_source.errors import StarterFileExists

STARTER = ("conf", "jobs", "notebooks")  #: as in setup.py


def init(
    directory: Annotated[
        Path, typer.Argument(parser=path_not_empty, metavar="DIR", help="created if it is missing")
    ],
    json: Json = False,
) -> None:
    """Writes jobs, conf and notebooks to start from.

    Writes example jobs, the notebooks, and configuration files with every option and its default. Nothing is
    overwritten.
    """
    paths = [str(directory / path) for path in write_starter(directory)]
    if json:
        print_json({"files": paths})
    else:
        print("\n".join(paths))


def write_starter(directory: Path) -> list[Path]:
    """Copies the starter files into a directory and returns their paths, relative to the directory.

    The directory is created if it is missing.

    Raises:
        StarterFileExists: one of the files exists. Nothing is written then.
    """
    files = list(starter_files())
    for _, relative in files:
        if (directory / relative).exists():
            raise StarterFileExists(str(directory / relative))
    for path, relative in files:
        (directory / relative).parent.mkdir(parents=True, exist_ok=True)
        (directory / relative).write_bytes(path.read_bytes())
    return [relative for _, relative in files]


def starter_files() -> Iterator[tuple[Path, Path]]:
    """Yields the path of each starter file, and its path in a project."""
    # setup.py puts them into the wheel. A checkout has them at its top.
    package = Path(__file__).resolve().parents[1]
    shipped = package / "starter"
    root = shipped if shipped.is_dir() else package.parent
    for name in STARTER:
        for path in sorted((root / name).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, path.relative_to(root)
