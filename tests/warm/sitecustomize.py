"""Makes the Python processes that Spark starts for the tests start in less time.

Python imports a module of this name at its start. The tests put this directory on the path of the processes
that Spark starts.
"""

import os
import sys


def _is_archive(place: str) -> bool:
    return "/pyspark/" in place and place.endswith((".zip", ".jar"))


# Spark lets them import pyspark and py4j from archives of sources, which each process compiles anew.
# The same modules are installed, and were compiled before. A large jar, which has none, is on the path too.
sys.path[:] = [place for place in sys.path if not _is_archive(place)]
for archive in [place for place in sys.path_importer_cache if _is_archive(place)]:
    del sys.path_importer_cache[archive]

if (
    "pyspark.sql.streaming.python_streaming_source_runner" in sys.orig_argv
    and "CURSORQ_TEST_PLANNERS" in os.environ
):
    from planners import PLACE, have_forked

    have_forked(os.environ.pop(PLACE))

if "pyspark.daemon" in sys.orig_argv:
    # Workers are forks of this process: what it has imported, they need not import.
    import spark_cursor_source.spark.source  # noqa: F401

    if "pyspark.worker" in sys.orig_argv:
        import pandas  # noqa: F401  # pyarrow does, with the first array that it makes
