"""Spark's command ``spark-pipelines`` with a workaround for SPARK-59135. Start it with:

``spark-submit --remote 'local[*]' --conf spark.api.mode=connect jobs/pipeline.py run --spec <file>``

If a pipeline has a Python source, the command of pyspark 4.2 and 4.3 ends with an error although the run has
completed. The command takes a metric of the Python workers for an unknown response.
"""

from pyspark.errors import PySparkValueError
from pyspark.pipelines import cli

if __name__ == "__main__":
    try:
        cli.main()
    except PySparkValueError as raised:
        if raised.getCondition() != "UNKNOWN_RESPONSE" or "__python_accumulator__" not in str(raised):
            raise
