"""Declarative pipeline: writes delivered messages to a table, then acks the messages in the table."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import spark_cursor_source as cursorq

spark = SparkSession.active()
cursorq.register(spark)
kafka = {"kafka.bootstrap.servers": spark.conf.get("spark.orders.servers")}
# The flow that acks runs after the flow that reads. The lease must last until the acks are written.
queue = kafka | {"subscribe": "orders", "subscription": "billing", "leaseTimeout": "30m"}

dp.create_streaming_table("orders")
dp.create_sink("settled", "cursorq", queue)  # the column action sets the settlement of each message
dp.create_sink("reviews", "cursorq", kafka | {"topic": "reviews"})  # appends messages to another queue


@dp.append_flow(target="orders")
def deliveries():
    amount = "CAST(get_json_object(CAST(value AS STRING), '$.amount') AS INT) AS amount"
    return spark.readStream.format("cursorq").options(**queue).load().selectExpr("*", amount)


@dp.append_flow(target="settled")
def settle():
    """Acks the messages in the table, and rejects negative amounts to the dead letters."""
    action = "IF(amount < 0, 'reject', 'ack') AS action"
    message = ("topic", "partition", "offset", "delivery_count")
    return spark.readStream.table("orders").selectExpr(*message, action, "'negative amount' AS reason")


@dp.append_flow(target="reviews")
def review():
    """Sends large orders to the review queue, with delivery one minute later."""
    later = "current_timestamp() + INTERVAL 1 MINUTE AS deliverAt"
    return spark.readStream.table("orders").where("amount > 900").selectExpr("key", "value", later)
