"""The public faces of the package: what users import, and the old names that still work."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from spark_cursor_source._aliases import PACKAGE, RENAMED

ROOT = Path(__file__).resolve().parent.parent
FACES = frozenset(
    {
        PACKAGE,
        *(f"{PACKAGE}.{face}" for face in ("admin", "client", "devkit", "errors", "metrics", "tracker")),
    }
)
_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def user_code() -> Iterator[tuple[str, str]]:
    """Name and text of all Python that users read: jobs, notebooks, and the blocks of each document."""
    for directory in ("jobs", "notebooks"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        blocks = _PYTHON_BLOCK.findall(path.read_text(encoding="utf-8"))
        for number, block in enumerate(blocks, 1):
            yield f"{path.relative_to(ROOT)} block {number}", block


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in user_code()])
def test_users_import_public_faces_only(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or ""]
        else:
            continue
        for name in imported:
            assert name in FACES or not name.startswith(PACKAGE), f"{name} is not public"


@pytest.mark.parametrize("face", sorted(FACES))
def test_a_face_exports_what_it_names(face: str) -> None:
    module = import_module(face)
    assert sorted(module.__all__) == sorted(set(module.__all__))
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_an_old_module_name_works_and_tells_the_new_one(old: str) -> None:
    renamed = RENAMED[old]
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{re.escape(old)} is now {re.escape(renamed.module)}"):
        module = import_module(old)
    home = import_module(renamed.module)
    for name in getattr(home, "__all__", ()):
        assert getattr(module, name) is getattr(home, name)
    for before, now in renamed.names.items():
        assert getattr(module, before) is getattr(home, now)


def test_the_package_and_its_plain_faces_need_no_pyspark() -> None:
    faces = ", ".join(sorted(FACES))
    check = f"import sys, {faces}; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
