"""Compiles the package and the tests once, as Python and as pytest do; otherwise each worker does.

``python -m tests.compiled`` takes about as long as one worker would take for a third of it. What it uses of
pytest is private: if that changes, the workers do the work again, and nothing else is different.
"""

from __future__ import annotations

import compileall
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, TESTS = ROOT / "spark_cursor_source", ROOT / "tests"
#: ``pytest_plugins`` of ``conftest.py``, whose assertions are rewritten too
PLUGINS = (
    TESTS / "stuck.py",
    *(TESTS / "kafka" / name for name in ("fixtures.py", "short_queue.py", "ways.py")),
)


def rewrite(path: Path) -> bool:
    """Keep a test file with rewritten assertions where pytest looks for it; False if it was there."""
    from _pytest.assertion import rewrite as of_pytest

    kept = of_pytest.get_cache_dir(path) / (path.name[:-3] + of_pytest.PYC_TAIL)
    if of_pytest._read_pyc(path, kept) is not None:
        return False
    source_hash, code = of_pytest._rewrite_test(path, None)  # type: ignore[arg-type]
    kept.parent.mkdir(exist_ok=True)
    state: Any = SimpleNamespace(trace=lambda text: None)
    return of_pytest._write_pyc(state, code, source_hash, kept)


def main() -> None:
    test_files = [*TESTS.rglob("test_*.py"), *TESTS.rglob("conftest.py"), *PLUGINS]
    with ProcessPoolExecutor() as pool:
        try:
            list(pool.map(rewrite, sorted(test_files), chunksize=8))
        except Exception as changed:  # noqa: BLE001 - pytest is another one, and does it itself
            print(f"the assertions are rewritten by each worker: {changed!r}", file=sys.stderr)
    for directory in (PACKAGE, TESTS):
        compileall.compile_dir(directory, quiet=1)


if __name__ == "__main__":
    main()
