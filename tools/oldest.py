"""Prints the oldest versions that pyproject.toml allows, as constraints: ``python -m tools.oldest``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOT_OF_USERS = ("dev", "docs", "native")  #: groups of dependencies that no user's program needs
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?(?P<bounds>.*)")
_AT_LEAST = re.compile(r">=\s*([\w.]+)")


def oldest_of(project: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (name, oldest version) of the dependencies of users.

    Where a name occurs more than once, its lowest bound counts, which is that of the package itself.

    Raises:
        ValueError: a dependency has no lower bound.
    """
    groups = project["optional-dependencies"].items()
    optional = [text for group, texts in groups if group not in NOT_OF_USERS for text in texts]
    seen: set[str] = set()
    for text in (*project["dependencies"], *optional):
        found = _REQUIREMENT.match(text)
        assert found is not None
        bound = _AT_LEAST.search(found["bounds"])
        if found["name"] in seen or found["name"] == project["name"]:
            continue
        if bound is None:
            raise ValueError(f"the dependency {text} has no lower bound")
        seen.add(found["name"])
        yield found["name"], bound[1]


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
