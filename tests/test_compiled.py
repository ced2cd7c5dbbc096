"""What is compiled ahead is what pytest looks for: otherwise nothing fails, and all takes longer."""

from __future__ import annotations

from pathlib import Path

from tests import conftest
from tests.compiled import PLUGINS, ROOT, rewrite


def test_a_file_with_rewritten_assertions_is_found_and_not_rewritten_again(tmp_path: Path) -> None:
    path = tmp_path / "test_one.py"
    path.write_text("def test_one() -> None:\n    assert 1 < 2\n")
    assert rewrite(path)
    assert not rewrite(path)


def test_the_plugins_of_the_suite_are_compiled_too() -> None:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PLUGINS}
    assert names == set(conftest.pytest_plugins)
