"""Imports what Spark's Python workers need before they are forked, so that not each of them does it anew.

Python imports a module of this name at its start. The tests put this directory on the path of the processes
that Spark starts.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import spark_cursor_source.spark.source  # noqa: F401
