"""Tracker job: ``spark-submit jobs/tracker.py conf/tracker.toml``. One tracker serves all consumers."""

import sys
import tomllib

from pyspark.sql import SparkSession

import spark_cursor_source as cursorq

if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        options = tomllib.load(file)
    spark = SparkSession.builder.appName("cursorq tracker").getOrCreate()
    cursorq.start_tracker(spark, options).awaitTermination()
