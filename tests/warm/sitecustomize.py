"""Makes the Python processes that Spark starts for the tests start in less time.

Python imports a module of this name at its start. The tests put this directory on the path of the processes
that Spark starts.
"""

import sys

# Spark lets them import pyspark from an archive of sources, which each process compiles anew.
# The same modules are installed, and were compiled before.
sys.path[:] = [place for place in sys.path if not place.endswith("/pyspark.zip")]

if "pyspark.daemon" in sys.orig_argv:
    # Workers are forks of this process: what it has imported, they need not import.
    import spark_cursor_source.spark.source  # noqa: F401
