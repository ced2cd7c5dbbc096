# Databricks notebook source
# MAGIC %md
# MAGIC # Individual-ack queues on Kafka
# MAGIC
# MAGIC A Kafka topic becomes a queue: every message is delivered under a **lease**, **acked** on its own, in
# MAGIC any order, and **comes back** if it is not.
# MAGIC
# MAGIC On Databricks, install `spark_cursor_source` as a library of the cluster, and say in the widgets where
# MAGIC Kafka is and where checkpoints can be kept. Anywhere else, `python notebooks/quickstart.py` starts a
# MAGIC broker of its own.

# COMMAND ----------

import json
import tempfile
import time
import uuid

from pyspark.sql import SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.devkit import ensure_topic, send_messages

if "dbutils" in globals():
    dbutils.widgets.text("bootstrap_servers", "")
    dbutils.widgets.text("checkpoints", "")
    broker, servers = None, dbutils.widgets.get("bootstrap_servers")
    checkpoints = dbutils.widgets.get("checkpoints")
else:
    from spark_cursor_source.devkit import EmbeddedKafka

    broker = EmbeddedKafka().start()
    servers, checkpoints = broker.bootstrap_servers, tempfile.mkdtemp()

    def display(frame):
        frame.show(truncate=False)


spark = SparkSession.builder.getOrCreate()

# COMMAND ----------

# MAGIC %md
# MAGIC ## A queue
# MAGIC
# MAGIC Twelve orders. Any producer will do: the queue topic is an ordinary one.

# COMMAND ----------

name = f"quickstart-{uuid.uuid4().hex[:8]}"  # so that this notebook meddles with nobody's topics
topic = f"{name}-orders"
orders = [{"order": number, "amount": 10 * number, "city": "Oslo"} for number in range(12)]
orders[4]["amount"] = "ten"
orders[8]["city"] = "Bergen"

ensure_topic({"bootstrap.servers": servers}, topic, partitions=2)
send_messages({"bootstrap.servers": servers}, topic, [(None, json.dumps(order).encode()) for order in orders])

# COMMAND ----------

# MAGIC %md
# MAGIC ## The tracker
# MAGIC
# MAGIC One streaming query, for all subscriptions that share its topics: it brings back what was not acked.

# COMMAND ----------

control = {
    "kafka.bootstrap.servers": servers,
    "markersTopic": f"{name}-markers",
    "redeliveriesTopic": f"{name}-redeliveries",
    "cursorsTopic": f"{name}-cursors",
}
tracker = cursorq.start_tracker(
    spark, {**control, "checkpointLocation": f"{checkpoints}/{name}-tracker", "backoff": ["1s"]}
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A consumer
# MAGIC
# MAGIC `handle` is called for each message, on the executors. What it returns decides; what it raises gives
# MAGIC the message back. The others go on.

# COMMAND ----------

options = {**control, "subscribe": topic, "subscription": "billing", "leaseTimeout": "5m"}


def handle(message):
    order = json.loads(message.value)
    if not isinstance(order["amount"], int):
        return cursorq.Reject("the amount is not a number")  # a dead letter, now
    if order["order"] == 6 and message.delivery_count == 1:
        raise ConnectionError("the bank cannot be reached")  # again after the tracker's backoff
    if order["order"] == 7 and message.delivery_count == 1:
        return cursorq.Release(delay="2s")  # again in two seconds
    if order["city"] == "Bergen":
        return cursorq.Leave()  # somebody else will ack it, or its lease runs out
    return None  # acked


cursorq.register(spark)
query = (
    spark.readStream.format("cursorq")
    .options(**options)
    .load()
    .writeStream.foreachBatch(cursorq.AckSink.per_row(handle, options))
    .option("checkpointLocation", f"{checkpoints}/{name}-billing")
    .start()
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Where it stands
# MAGIC
# MAGIC The **cursor** of a subscription: everything up to `mark_delete` is done, `ack_holes` are the acked
# MAGIC ranges above it. Soon only one message is outstanding: the order from Bergen, left to its lease.

# COMMAND ----------


def view(which):
    return spark.read.format("cursorq").options(**options).option("view", which).load()


def until(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert query.exception() is None, query.exception()
        assert tracker.exception() is None, tracker.exception()
        assert time.monotonic() < deadline, "the queries take too long"
        time.sleep(1)


def totals():
    row = view("cursors").groupBy().sum("acked", "dead_lettered", "outstanding").first()
    return tuple(row)


until(lambda: query.lastProgress)  # by then the tracker has answered it
until(lambda: totals() == (10, 1, 1))
display(view("cursors"))

# COMMAND ----------

display(
    view("deadletters").selectExpr(
        "string(value) AS value", "reason", "error", "origin_partition", "origin_offset"
    )
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Acks from anywhere
# MAGIC
# MAGIC Any job may ack, at any time: all it takes is topic, partition and offset.

# COMMAND ----------

left = view("outstanding")
display(left)
cursorq.ack(left, options)
until(lambda: totals() == (11, 1, 0))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Another subscription
# MAGIC
# MAGIC It has a cursor of its own: it sees each message once, and nothing of what came back to the first one.
# MAGIC Here a whole batch is acked when the function returns.

# COMMAND ----------

audit_options = {**options, "subscription": "audit"}
seen = []


def audit(batch, batch_id):
    seen.extend(json.loads(row.value)["order"] for row in batch.select("value").collect())


auditing = (
    spark.readStream.format("cursorq")
    .options(**audit_options)
    .load()
    .writeStream.foreachBatch(cursorq.AckSink(audit, audit_options))
    .option("checkpointLocation", f"{checkpoints}/{name}-audit")
    .trigger(availableNow=True)
    .start()
)
auditing.awaitTermination()
assert sorted(seen) == list(range(12))
print(f"audit has seen {len(seen)} orders")

# COMMAND ----------

query.stop()
tracker.stop()
if broker is not None:
    broker.close()
