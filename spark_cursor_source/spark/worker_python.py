"""Check of the Python that Spark starts for planners and tasks: it must have this package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import lru_cache

from pyspark.sql import SparkSession

from spark_cursor_source.errors import PythonWithoutPackage
from spark_cursor_source.spark.classic import worker_python

_LOOK = "import importlib.util as u, sys; sys.exit(u.find_spec('spark_cursor_source') is None)"
_LOOK_S = 60.0


def check_worker_python(spark: SparkSession) -> None:
    """Refuses a session whose Python processes cannot import this package. The check runs before any query.

    A Spark Connect session is not checked, because the client cannot see the server's Python.

    Raises:
        PythonWithoutPackage
    """
    python = worker_python(spark)
    if python is not None and not has_package(python):
        raise PythonWithoutPackage(python, sys.executable)


@lru_cache(maxsize=8)
def has_package(python: str) -> bool:
    """True if the program, started as Spark starts it, is a Python that finds this package."""
    found = shutil.which(python)
    if found is None:
        return False
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return True
    try:
        looked = subprocess.run([found, "-c", _LOOK], timeout=_LOOK_S, capture_output=True, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return looked.returncode == 0
