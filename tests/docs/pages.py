"""The code blocks of README and docs, and how each page wants to be run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<language>[\w{}-]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (run with|not run): (.+?) -->\s*\Z")
_RUN_WITH = re.compile(r"<!-- run with: (\w+) -->")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    number: int
    language: str
    code: str
    not_run: str | None  #: the reason that stands above the block

    @property
    def name(self) -> str:
        return f"{self.page} block {self.number}"


def pages() -> list[Path]:
    """README, the project files beside it, and every page of the documentation."""
    beside = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    below = (path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
    return [*beside, *sorted(path for path in below if not path.name.endswith(".template.md"))]


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = path.read_text(encoding="utf-8")
    for number, found in enumerate(_FENCE.finditer(text), 1):
        mark = _MARK.search(text[: found.start()])
        yield Block(
            page=page_name(path),
            number=number,
            language=found["language"],
            code=found["code"],
            not_run=mark[2] if mark and mark[1] == "not run" else None,
        )


def environment(path: Path) -> str | None:
    """The environment that a page names for its Python blocks: spark, client or nothing."""
    named = set(_RUN_WITH.findall(path.read_text(encoding="utf-8")))
    assert len(named) <= 1, f"{page_name(path)} names several environments"
    return named.pop() if named else None


def runnable(path: Path) -> list[Block]:
    """The Python blocks of a page that a test runs."""
    return [block for block in blocks(path) if block.language == "python" and block.not_run is None]
