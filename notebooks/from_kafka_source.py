# Databricks notebook source
# MAGIC %md
# MAGIC # From Spark's Kafka source
# MAGIC
# MAGIC A query with `format("kafka")` has one position for each partition. A message that fails stops the
# MAGIC query, or is lost. This notebook moves such a query to `format("cursorq")`, from the position of its
# MAGIC checkpoint on.
# MAGIC
# MAGIC | `format("kafka")` | `format("cursorq")` |
# MAGIC | --- | --- |
# MAGIC | `kafka.*`, `subscribe`, `subscribePattern`, `assign` | the same |
# MAGIC | `startingTimestamp`, `maxOffsetsPerTrigger`, `minPartitions` | the same |
# MAGIC | `startingOffsets`, by default `latest` | the same; without it, a new subscription begins at the earliest message |
# MAGIC | columns `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `timestampType`, `headers` | the same, and `delivery_count` |
# MAGIC | position in the checkpoint | position in the checkpoint; acks in Kafka, under the name `subscription` |
# MAGIC | `foreachBatch(function)` | `foreachBatch(AckSink(function))` or `AckSink.per_row(handler)` |
# MAGIC | a failure fails the batch | a failure releases the message, others go on |
# MAGIC
# MAGIC On Databricks, install `spark_cursor_source` and matplotlib as cluster libraries, and enter the
# MAGIC Kafka bootstrap servers and a checkpoint directory in the widgets. Elsewhere, `python
# MAGIC notebooks/from_kafka_source.py` starts its own broker.

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
# MAGIC ## The query as it was
# MAGIC
# MAGIC ```python
# MAGIC orders = (
# MAGIC     spark.readStream.format("kafka")
# MAGIC     .option("kafka.bootstrap.servers", servers)
# MAGIC     .option("subscribe", topic)
# MAGIC     .load()
# MAGIC )
# MAGIC orders.writeStream.foreachBatch(deliver).option("checkpointLocation", checkpoint).start()
# MAGIC ```
# MAGIC
# MAGIC Its checkpoint has a directory `offsets`. The newest file there names the end of the last batch. A
# MAGIC file of the same number in `commits` tells that this batch has ended; otherwise the batch before
# MAGIC counts.

# COMMAND ----------

from pathlib import Path

from spark_cursor_source.tracker import Tracker

name = f"orders-{uuid.uuid4().hex[:8]}"  # a unique prefix avoids conflicts with existing topics
topic = f"{name}-queue"
ensure_topic(kafka, topic, partitions=1)
send_messages(kafka, topic, [(None, json.dumps({"order": n}).encode()) for n in range(200)])

# What Spark has left behind when the query was stopped after 40 orders:
old_checkpoint = Path(checkpoints, f"{name}-kafka")
for log, last in (("offsets", json.dumps({topic: {"0": 40}})), ("commits", "")):
    (old_checkpoint / log).mkdir(parents=True)
    (old_checkpoint / log / "7").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{last}')

# COMMAND ----------

# MAGIC %md
# MAGIC ## The position of the old query


# COMMAND ----------


def end_of_last_batch(checkpoint):
    """The end of the last batch that is complete, in the form of the option ``startingOffsets``."""
    batch = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    return (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]


starting_offsets = end_of_last_batch(old_checkpoint)
print(starting_offsets)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The query as it is
# MAGIC
# MAGIC The query has a new checkpoint and a `subscription`. One order in sixteen fails twice. With
# MAGIC `format("kafka")`, each failure stops the query, and every order behind it waits.

# COMMAND ----------

control = {
    **{f"kafka.{setting}": value for setting, value in kafka.items()},
    "markersTopic": f"{name}-markers",
    "redeliveriesTopic": f"{name}-redeliveries",
    "cursorsTopic": f"{name}-cursors",
}
tracker = Tracker({**control, "trigger": "100ms", "backoff": ["500ms", "1s"]}).start()
options = {**control, "subscribe": topic, "subscription": "delivery", "startingOffsets": starting_offsets}


def deliver(order):
    if json.loads(order.value)["order"] % 16 == 9 and order.delivery_count < 3:
        raise ConnectionError("the carrier does not answer")


cursorq.register(spark)
query = (
    spark.readStream.format("cursorq")
    .options(**options, maxOffsetsPerTrigger=20)
    .load()
    .writeStream.foreachBatch(cursorq.AckSink.per_row(deliver))
    .option("checkpointLocation", f"{checkpoints}/{name}")
    .start()
)


def view(which):
    return spark.read.format("cursorq").options(**options).option("view", which).load()


deadline = time.monotonic() + 300
while not query.lastProgress or view("cursors").groupBy().sum("backlog").first()[0] != 0:
    assert query.exception() is None, query.exception()
    assert time.monotonic() < deadline, "the query takes too long"
    time.sleep(0.5)
query.stop()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Which orders had to wait?
# MAGIC
# MAGIC One dot is one delivery of an order. Only the orders that fail come again; those behind them go on.

# COMMAND ----------

import matplotlib.pyplot as plt

starts = view("markers").where("type = 'START'").orderBy("timestamp").collect()
begin = starts[0].timestamp
figure, axes = plt.subplots(figsize=(13, 4.2), layout="constrained")
figure.suptitle("Deliveries of each order")
for count, colour, label in [(1, "#9bc1bc", "first"), (2, "#f4a261", "second"), (3, "#e63946", "third")]:
    dots = [
        ((marker.timestamp - begin).total_seconds(), offset)
        for marker in starts
        if marker.delivery_count == count
        for start, stop in marker.offsets
        for offset in range(start, stop)
    ]
    axes.scatter(*zip(*dots, strict=True), s=14, color=colour, label=f"{label} delivery")
axes.axhspan(0, 39.5, color="#eeeeee")
axes.annotate("delivered by the old query", (0.05, 20), fontsize=9, va="center")
axes.set(xlabel="seconds since the first delivery", ylabel="offset of the order", ylim=(0, 205))
axes.legend(loc="upper left", frameon=False)
axes.spines[["top", "right"]].set_visible(False)
display(figure)
plt.close(figure)

# COMMAND ----------

tracker.close()
if broker is not None:
    broker.close()
