# Databricks notebook source
# MAGIC %md
# MAGIC # Operating a queue
# MAGIC
# MAGIC A queue is stuck: its backlog does not shrink. This notebook finds out why, with the views that work
# MAGIC from any Spark session, frees the queue, and draws what happened.
# MAGIC
# MAGIC On Databricks, install `spark_cursor_source` and matplotlib as cluster libraries, and enter the
# MAGIC Kafka bootstrap servers and a checkpoint directory in the widgets. Elsewhere, `python
# MAGIC notebooks/operating.py` starts its own broker.

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
# MAGIC ## A queue with a consumer that hangs
# MAGIC
# MAGIC The consumer below receives 40 jobs and settles none of them. It stands for a service that waits for
# MAGIC a database that does not answer. As long as it lives, it extends its leases.

# COMMAND ----------

from spark_cursor_source.client import Service, ServiceConfig
from spark_cursor_source.tracker import Tracker

name = f"jobs-{uuid.uuid4().hex[:8]}"  # a unique prefix avoids conflicts with existing topics
topic = f"{name}-queue"
ensure_topic(kafka, topic, partitions=2)
send_messages(kafka, topic, [(b"%d" % n, json.dumps({"job": n}).encode()) for n in range(120)])

control = {
    **{f"kafka.{setting}": value for setting, value in kafka.items()},
    "markersTopic": f"{name}-markers",
    "redeliveriesTopic": f"{name}-redeliveries",
    "cursorsTopic": f"{name}-cursors",
}
tracker = Tracker({**control, "trigger": "100ms"}).start()
service = Service(
    ServiceConfig(
        bootstrap_servers=servers,
        kafka=kafka,
        message_topic=topic,
        marker_topic=control["markersTopic"],
        redeliveries_topic=control["redeliveriesTopic"],
        cursors_topic=control["cursorsTopic"],
        consumer_receive_buffer_capacity=40,
        consumer_max_messages_per_commit=10,
    )
)
hanging = service.queue(subscription="workers").consumer()
held = [hanging.receive(60_000) for _ in range(40)]
assert None not in held

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is the state?
# MAGIC
# MAGIC The view `stats` has one row for each subscription: its backlog, the age of the oldest message, and
# MAGIC who reads. Here 120 messages wait, and 40 or more of them are under a lease.

# COMMAND ----------

options = {**control, "subscribe": topic, "subscription": "workers", "leaseTimeout": "5m"}
cursorq.register(spark)


def view(which):
    return spark.read.format("cursorq").options(**options).option("view", which).load()


def until(condition):
    deadline = time.monotonic() + 300
    while not condition():
        tracker.check()
        assert time.monotonic() < deadline, view("stats").first()
        time.sleep(0.3)


until(lambda: view("stats").first().leased >= 40)
display(view("stats").select("subscription", "backlog", "leased", "available", "oldest_unacked_age_ms"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who holds what?
# MAGIC
# MAGIC Each outstanding message names the run that holds it, and how often it was delivered.

# COMMAND ----------

stuck = cursorq.outstanding(spark, options)
display(stuck.groupBy("state", "run_id", "delivery_count").count())
display(stuck.selectExpr("partition", "offset", "state", "deadline", "STRING(value) AS job").limit(3))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Free the queue
# MAGIC
# MAGIC First the consumer that hangs is ended. Its messages would come back when their leases expire. A
# MAGIC release brings them back at once.

# COMMAND ----------

hanging.close()
released = cursorq.release(stuck.where("state = 'leased'"), reason="the service hangs")
print(f"{released} messages are released")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Work the queue off
# MAGIC
# MAGIC Another consumer takes over, here a Spark query with 30 messages a batch.

# COMMAND ----------


def work(message):
    return None


jobs = (
    spark.readStream.format("cursorq")
    .options(**options, maxOffsetsPerTrigger=30, subscriptionType="shared")
    .load()
)
query = (
    jobs.writeStream.foreachBatch(cursorq.AckSink.per_row(work))
    .option("checkpointLocation", f"{checkpoints}/{name}")
    .start()
)
until(lambda: query.exception() or view("stats").first().backlog == 0)
assert query.exception() is None, query.exception()
query.stop()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Draw what happened
# MAGIC
# MAGIC Everything that happens to a message is a marker. The view `markers` shows them, so the past can be
# MAGIC drawn after the fact: how many messages were under a lease, and how many were acked.

# COMMAND ----------

import matplotlib.pyplot as plt

markers = (
    view("markers")
    .where("type IN ('START', 'END', 'RELEASE') AND messages > 0")
    .orderBy("timestamp", "marker_partition", "marker_offset")
    .collect()
)
begin, seconds, leases, acks = markers[0].timestamp, [], [], []
leased, acked = set(), set()
for marker in markers:
    named = {(marker.partition, offset) for start, stop in marker.offsets for offset in range(start, stop)}
    leased = leased | named if marker.type == "START" else leased - named
    acked = acked | named if marker.type == "END" else acked
    seconds.append((marker.timestamp - begin).total_seconds())
    leases.append(len(leased))
    acks.append(len(acked))
releases = [
    (marker.timestamp - begin).total_seconds() for marker in markers if marker.reason == "the service hangs"
]

figure, axes = plt.subplots(figsize=(13, 4), layout="constrained")
figure.suptitle("A queue that was stuck")
axes.fill_between(seconds, acks, step="post", color="#2a9d8f", alpha=0.85, label="acked")
axes.step(seconds, leases, where="post", color="#e76f51", linewidth=2, label="under a lease")
axes.axhline(120, color="grey", linewidth=0.8, linestyle=":")
if releases:
    axes.axvline(releases[0], color="black", linewidth=1)
    axes.annotate(" released by an operator", (releases[0], 100), fontsize=9)
axes.set(xlabel="seconds since the first delivery", ylabel="messages", ylim=(0, 126), xlim=(0, seconds[-1]))
axes.legend(loc="center", frameon=False)
axes.spines[["top", "right"]].set_visible(False)
display(figure)
plt.close(figure)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The history of one message
# MAGIC
# MAGIC All events of a single message. The command `cursorq message` shows the same.

# COMMAND ----------

from datetime import datetime

from spark_cursor_source.admin import read_message_history

first = held[0]
history = read_message_history(
    kafka,
    topic,
    first.partition,
    first.offset,
    markers_topic=control["markersTopic"],
    cursors_topic=control["cursorsTopic"],
)
for event in history.events:
    print(datetime.fromtimestamp(event.at_ms / 1_000), event.kind, event.delivery_count, event.reason or "")

# COMMAND ----------

tracker.close()
if broker is not None:
    broker.close()
