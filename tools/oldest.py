"""Prints the oldest versions that pyproject.toml allows, as constraints: ``python -m tools.oldest``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
NOT_OF_USERS = ("dev", "docs", "native")  #: groups of dependencies that no user's program needs


def oldest_of(project: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (name, oldest version) of the dependencies of users.

    Where a name occurs more than once, the first bound counts, which is that of the package itself.

    Raises:
        ValueError: a dependency has no lower bound.
    """
    groups = project["optional-dependencies"].items()
    optional = [text for group, texts in groups if group not in NOT_OF_USERS for text in texts]
    seen: set[str] = set()
    for needed in map(Requirement, (*project["dependencies"], *optional)):
        if needed.name in seen or needed.name == project["name"]:
            continue
        bound = next((one.version for one in needed.specifier if one.operator == ">="), None)
        if bound is None:
            raise ValueError(f"the dependency {needed} has no lower bound")
        seen.add(needed.name)
        yield needed.name, bound


def read_project() -> dict[str, Any]:
    """Returns the table ``project`` of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"])


def main() -> None:
    """Prints a line for each dependency."""
    for name, version in oldest_of(read_project()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
