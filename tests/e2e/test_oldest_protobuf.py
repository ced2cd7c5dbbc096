"""The bytes of all records under the oldest protobuf that the package allows."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
WIRE = ROOT / "tests" / "wire"
#: golden files, and any record to bytes and back
TESTS = "for_ever or golden or survives"


def oldest_allowed() -> str:
    found = re.search(r'"protobuf>=(\d+\.\d+)', (ROOT / "pyproject.toml").read_text())
    assert found is not None
    return found[1]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Python of an environment with all that this process has, but for the oldest protobuf."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "old")], check=True)
    (site_packages,) = (tmp_path / "old").glob("lib/python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    wanted = f"protobuf=={oldest_allowed()}.*"
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *install, "--target", str(site_packages), wanted],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        pytest.skip(f"{wanted} cannot be installed: {done.stderr.strip()[-300:]}")
    return tmp_path / "old" / "bin" / "python"


def test_all_records_are_read_and_written_by_the_oldest_protobuf(python: Path, tmp_path: Path) -> None:
    look = "import google.protobuf, google._upb._message as m; print(google.protobuf.__version__, m.__file__)"
    found = subprocess.run([python, "-c", look], check=True, capture_output=True, text=True, cwd=ROOT)
    version, library = found.stdout.split()
    assert version.startswith(f"{oldest_allowed()}.")
    assert library.startswith(str(tmp_path)), "and its own library in C"
    plain = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", TESTS, str(WIRE)]
    done = subprocess.run(
        [python, "-m", "pytest", *plain],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
    assert re.search(r"\d{2,} passed", done.stdout)
