"""The number of shuffle partitions of a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def limit_shuffle_partitions(session: SparkSession, most: int) -> str:
    """Sets the number of shuffle partitions to ``most``, or leaves a smaller one. Returns the text before."""
    before = str(session.conf.get(SHUFFLE_PARTITIONS))
    # Databricks also has "auto".
    present = int(before) if before.isdecimal() else most
    session.conf.set(SHUFFLE_PARTITIONS, str(min(present, most)))
    return before
