"""The starter files that ``cursorq init`` writes, from a checkout and from a wheel."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from spark_cursor_source.cli import main
from spark_cursor_source.cli.init import STARTER, write_starter
from spark_cursor_source.errors import StarterFileExists

ROOT = Path(__file__).resolve().parents[1]


def in_checkout() -> dict[str, bytes]:
    """The tracked files of the directories, by their path."""
    listed = subprocess.run(
        ["git", "ls-files", *STARTER], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name: (ROOT / name).read_bytes() for name in listed.stdout.split()}


def files_below(directory: Path) -> dict[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_cursorq_init_writes_jobs_conf_and_notebooks_and_names_each_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "a" / "queue")]) == 0
    assert files_below(tmp_path / "a" / "queue") == in_checkout()
    written = [
        str(Path(line).relative_to(tmp_path / "a" / "queue")) for line in capsys.readouterr().out.split()
    ]
    assert sorted(written) == sorted(in_checkout())


def test_cursorq_init_overwrites_nothing_and_then_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "tracker.py").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StarterFileExists, match=r"jobs/tracker\.py exists\. Name another directory"):
        write_starter(tmp_path)
    assert files_below(tmp_path) == {"jobs/tracker.py": b"mine", "notes.txt": b"mine"}


def build_wheel(scratch: Path) -> Path:
    """Build the wheel of a copy of the checkout: a build leaves files behind."""
    leftovers = ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
    for name in ("spark_cursor_source", *STARTER):
        copytree(ROOT / name, scratch / name, ignore=leftovers)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "pyspark_cursorq.py"):
        (scratch / name).write_bytes((ROOT / name).read_bytes())
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=scratch, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return scratch / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


def test_the_wheel_has_the_starter_files_of_the_checkout(wheel: zipfile.ZipFile) -> None:
    prefix = "spark_cursor_source/starter/"
    shipped = {
        name.removeprefix(prefix): wheel.read(name) for name in wheel.namelist() if name.startswith(prefix)
    }
    assert shipped == in_checkout()


def test_the_wheel_requires_neither_pyspark_nor_pandas_nor_rich(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    required = [line for line in metadata.get_all("Requires-Dist", ()) if "extra ==" not in line]
    names = {re.split("[<>]", line)[0] for line in required}
    assert names == {"confluent-kafka", "pyarrow", "numpy", "protobuf", "pyroaring"}
    assert {"spark", "cli"} <= set(metadata.get_all("Provides-Extra", ()))
