"""Spark's command ``spark-pipelines``, but for one thing; see below for how to start it.

``spark-submit --remote 'local[*]' --conf spark.api.mode=connect jobs/pipeline.py run --spec <file>``

Where a Python source takes part, that command of pyspark 4.2 and 4.3 ends with an error although the run has
completed (SPARK-59135): it takes a metric of the Python workers for an answer that nobody knows.
"""

from pyspark.errors import PySparkValueError
from pyspark.pipelines import cli

if __name__ == "__main__":
    try:
        cli.main()
    except PySparkValueError as raised:
        if raised.getCondition() != "UNKNOWN_RESPONSE" or "__python_accumulator__" not in str(raised):
            raise
