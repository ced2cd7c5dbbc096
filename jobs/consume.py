"""Example consumer: ``spark-submit jobs/consume.py conf/consumer.toml``. Replace ``handle``."""

import json
import sys
import tomllib

from pyspark.sql import SparkSession

import spark_cursor_source as cursorq


def handle(order):
    """Handles one message. If it raises, the message is redelivered after the tracker's backoff."""
    amount = json.loads(order.value)["amount"]
    if amount < 0:
        return cursorq.Reject(f"amount {amount} is negative")
    return cursorq.Release(delay="2s") if amount > 900 and order.delivery_count == 1 else None  # None acks


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        job = tomllib.load(file)
    spark = SparkSession.builder.appName("cursorq consumer").getOrCreate()
    cursorq.register(spark)
    orders = spark.readStream.format("cursorq").options(**job["source"]).load()
    acked = orders.writeStream.foreachBatch(cursorq.AckSink.per_row(handle))
    acked.options(checkpointLocation=job["checkpointLocation"]).start().awaitTermination()
