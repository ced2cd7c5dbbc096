"""A declarative pipeline: a table of what a queue delivers, whose rows are acked once they are in it."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import spark_cursor_source as cursorq

spark = SparkSession.active()
cursorq.register(spark)
kafka = {"kafka.bootstrap.servers": spark.conf.get("spark.orders.servers")}
# A lease lasts until the flow that acks is done, which comes after the one that reads.
queue = kafka | {"subscribe": "orders", "subscription": "billing", "leaseTimeout": "30m"}

dp.create_streaming_table("orders")
dp.create_sink("settled", "cursorq", queue)  # a column action says what becomes of each message
dp.create_sink("reviews", "cursorq", kafka | {"topic": "reviews"})  # messages of another queue


@dp.append_flow(target="orders")
def deliveries():
    amount = "CAST(get_json_object(CAST(value AS STRING), '$.amount') AS INT) AS amount"
    return spark.readStream.format("cursorq").options(**queue).load().selectExpr("*", amount)


@dp.append_flow(target="settled")
def settle():
    """What is in the table is acked; negative amounts go to the dead letters."""
    action = "IF(amount < 0, 'reject', 'ack') AS action"
    message = ("topic", "partition", "offset", "delivery_count")
    return spark.readStream.table("orders").selectExpr(*message, action, "'negative amount' AS reason")


@dp.append_flow(target="reviews")
def review():
    """Large orders are looked at a minute later."""
    later = "current_timestamp() + INTERVAL 1 MINUTE AS deliverAt"
    return spark.readStream.table("orders").where("amount > 900").selectExpr("key", "value", later)
