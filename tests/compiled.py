"""Compiles the package, the tests and PySpark once; otherwise each process does.

``python -m tests.compiled`` takes about as long as one worker would take for a third of the tests. What it
uses of pytest is private: if that changes, the workers do the work again, and nothing else is different.

Spark's Python processes import PySpark from ``pyspark.zip``, which holds sources alone. So each query of a
Python source, and each of four daemons of a Spark application, compiles them again: 0.7 s of CPU.
"""

from __future__ import annotations

import compileall
import py_compile
import re
import shutil
import sys
import tempfile
import zipfile
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


#: parts of PySpark that no process of the tests imports from the archive
_NOT_IMPORTED = re.compile(r"/pyspark/(pandas|ml|mllib|tests|testing)/")


def spark_archives() -> list[Path]:
    """The archives that Spark puts first on the path of its Python processes."""
    import pyspark

    return sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))


def compile_archive(archive: Path) -> bool:
    """Put bytecode beside the sources of an archive; False if it is there."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        files = f"{directory}/files"
        with zipfile.ZipFile(archive) as sources:
            if any(name.endswith(".pyc") for name in sources.namelist()):
                return False
            sources.extractall(files)
        compileall.compile_dir(
            files,
            quiet=1,
            rx=_NOT_IMPORTED,
            legacy=True,  # beside the source, where the import of an archive looks for it
            stripdir=files,
            prependdir=str(archive),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        Path(shutil.make_archive(f"{directory}/whole", "zip", files)).replace(archive)
    return True


def main() -> None:
    test_files = [*TESTS.rglob("test_*.py"), *TESTS.rglob("conftest.py"), *PLUGINS]
    with ProcessPoolExecutor() as pool:
        try:
            list(pool.map(rewrite, sorted(test_files), chunksize=8))
        except Exception as changed:  # noqa: BLE001 - pytest is another one, and does it itself
            print(f"the assertions are rewritten by each worker: {changed!r}", file=sys.stderr)
        try:
            list(pool.map(compile_archive, spark_archives()))
        except Exception as refused:  # noqa: BLE001 - each process of Spark compiles what it imports
            print(f"going on without bytecode for Spark's Python processes: {refused!r}", file=sys.stderr)
    for directory in (PACKAGE, TESTS):
        compileall.compile_dir(directory, quiet=1)


if __name__ == "__main__":
    main()
