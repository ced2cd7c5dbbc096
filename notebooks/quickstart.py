# Databricks notebook source
# MAGIC %md
# MAGIC # Individual-ack queues on Kafka
# MAGIC
# MAGIC This notebook uses a Kafka topic as a queue. Every message is delivered under a **lease**. Messages
# MAGIC are **acked** individually, in any order. A message that is not acked is **redelivered**.
# MAGIC
# MAGIC On Databricks, install `spark_cursor_source` as a cluster library. Enter the Kafka bootstrap servers
# MAGIC and a checkpoint directory in the widgets. Elsewhere, `python notebooks/quickstart.py` starts its
# MAGIC own broker.

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

    def display(shown):
        if hasattr(shown, "savefig"):
            shown.savefig(f"{checkpoints}/{shown.get_suptitle()}.png")
            print(f"{checkpoints}/{shown.get_suptitle()}.png")
        else:
            shown.show(truncate=False)


spark = SparkSession.builder.getOrCreate()
kafka = {"bootstrap.servers": servers}  # add other settings of the Kafka clients here, such as config.file

# COMMAND ----------

# MAGIC %md
# MAGIC ## A queue
# MAGIC
# MAGIC This cell sends twelve orders. Any Kafka producer works: the queue topic is an ordinary topic.

# COMMAND ----------

name = f"quickstart-{uuid.uuid4().hex[:8]}"  # a unique prefix avoids conflicts with existing topics
topic = f"{name}-orders"
orders = [{"order": number, "amount": 10 * number, "city": "Oslo"} for number in range(12)]
orders[4]["amount"] = "ten"
orders[8]["city"] = "Bergen"

ensure_topic(kafka, topic, partitions=2)
send_messages(kafka, topic, [(None, json.dumps(order).encode()) for order in orders])

# COMMAND ----------

# MAGIC %md
# MAGIC ## The tracker
# MAGIC
# MAGIC The tracker is one streaming query for all subscriptions that share its topics. It redelivers
# MAGIC messages that are not acked.

# COMMAND ----------

control = {
    **{f"kafka.{setting}": value for setting, value in kafka.items()},
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
# MAGIC The executors call `handle` for each message. Its return value decides how the message is settled.
# MAGIC An exception releases the message for redelivery. Other messages are not affected.

# COMMAND ----------

# The tracker above is still starting. On a busy machine its first batch takes a minute or two.
options = {
    **control,
    "subscribe": topic,
    "subscription": "billing",
    "leaseTimeout": "5m",
    "trackerTimeout": "3m",
}


def handle(message):
    order = json.loads(message.value)
    if not isinstance(order["amount"], int):
        return cursorq.Reject("the amount is not a number")  # becomes a dead letter immediately
    if order["order"] == 6 and message.delivery_count == 1:
        raise ConnectionError("the bank cannot be reached")  # redelivered after the tracker's backoff
    if order["order"] == 7 and message.delivery_count == 1:
        return cursorq.Release(delay="2s")  # redelivered after two seconds
    if order["city"] == "Bergen":
        return cursorq.Leave()  # another job acks the message, or its lease expires
    return None  # acks the message


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
# MAGIC ## Cursors
# MAGIC
# MAGIC The view shows the **cursor** of a subscription. All messages up to `mark_delete` are settled, and
# MAGIC `ack_holes` are the settled ranges above. Soon only one message is outstanding: the order from
# MAGIC Bergen, which is left until its lease expires.

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


until(lambda: query.lastProgress)  # progress shows that the tracker has answered the query
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
# MAGIC Any job may ack a message at any time. An ack needs only topic, partition and offset.
# MAGIC `cursorq.outstanding` finds them, with the content of each message.

# COMMAND ----------

left = cursorq.outstanding(spark, options)
display(left.selectExpr("partition", "offset", "state", "delivery_count", "STRING(value) AS value"))
cursorq.ack(left)
until(lambda: totals() == (11, 1, 0))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What happened to each order
# MAGIC
# MAGIC Everything that happens to a message is a record in the markers topic. This cell draws them. It
# MAGIC needs matplotlib.

# COMMAND ----------

import matplotlib.pyplot as plt

KINDS = {
    "START": (">", "#457b9d", "delivered"),
    "RELEASE": ("|", "#f4a261", "released"),
    "REJECT": ("X", "#e63946", "rejected"),
    "END": ("o", "#2a9d8f", "acked"),
}

number_of = {
    (row.partition, row.offset): json.loads(row.value)["order"] for row in view("messages").collect()
}
markers = view("markers").where("messages > 0").orderBy("timestamp").collect()
begin = markers[0].timestamp
figure, axes = plt.subplots(figsize=(11, 4.5), layout="constrained")
figure.suptitle("What happened to each order")
for kind, (symbol, colour, label) in KINDS.items():
    dots = [
        ((marker.timestamp - begin).total_seconds(), number_of[marker.partition, offset])
        for marker in markers
        if marker.type == kind
        for start, stop in marker.offsets
        for offset in range(start, stop)
    ]
    axes.scatter(*zip(*dots, strict=True), marker=symbol, color=colour, s=60, label=label, alpha=0.9)
axes.set(xlabel="seconds since the first delivery", ylabel="order", yticks=range(12))
axes.grid(axis="y", color="#eeeeee", zorder=0)
axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
axes.spines[["top", "right"]].set_visible(False)
display(figure)
plt.close(figure)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Another subscription
# MAGIC
# MAGIC Another subscription has its own cursor. The subscription receives each message once, and no
# MAGIC redeliveries of the first subscription. This sink acks a whole batch when the function returns.

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
