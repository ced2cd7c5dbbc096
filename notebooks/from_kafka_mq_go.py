# Databricks notebook source
# MAGIC %md
# MAGIC # From kafka-mq-go
# MAGIC
# MAGIC Moving a queue of kafka-mq-go takes three steps, and each can be undone:
# MAGIC
# MAGIC 1. This tracker replaces its tracker. The consumers in Go stay as they are.
# MAGIC 2. Consumers in Python or Spark take part, with `markerFormat=v1`.
# MAGIC 3. When no consumer in Go is left, a new subscription continues with this package's own markers. It
# MAGIC    redelivers in place, counts deliveries, and has dead letters, delays and cursors.
# MAGIC
# MAGIC On Databricks, install `spark_cursor_source` and matplotlib as cluster libraries, and enter the
# MAGIC Kafka bootstrap servers and a checkpoint directory in the widgets. Elsewhere, `python
# MAGIC notebooks/from_kafka_mq_go.py` starts its own broker.

# COMMAND ----------

import json
import tempfile
import time
import uuid

from pyspark.sql import SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source.devkit import ensure_topic

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
# MAGIC ## Step 1: this tracker for their consumers
# MAGIC
# MAGIC The markers topic of kafka-mq-go needs `message.timestamp.type=LogAppendTime`. A message that is not
# MAGIC acked in time is appended to its topic again, as their tracker does.

# COMMAND ----------

from spark_cursor_source.client import Service, ServiceConfig
from spark_cursor_source.tracker import Tracker

name = f"jobs-{uuid.uuid4().hex[:8]}"  # a unique prefix avoids conflicts with existing topics
topic, markers_topic = f"{name}-messages", f"{name}-markers"
ensure_topic(kafka, topic, partitions=1)
old_control = {
    **{f"kafka.{setting}": value for setting, value in kafka.items()},
    "markersTopic": markers_topic,
    "cursorsTopic": f"{name}-cursors",
}
old_tracker = Tracker(
    {
        **old_control,
        "redelivery": "reappend",
        "queueTopic": topic,
        "markerFormat": "protobuf",
        "trigger": "100ms",
    }
).start()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Step 2: a consumer with their markers
# MAGIC
# MAGIC The client in Python has the API of kafka-mq-go and writes the same markers. Here it stands for a
# MAGIC consumer in Go: it gets 16 messages and leaves every fourth one without an ack, with a lease of one
# MAGIC second.

# COMMAND ----------

old_service = Service(
    ServiceConfig(
        bootstrap_servers=servers,
        kafka=kafka,
        message_topic=topic,
        marker_topic=markers_topic,
        marker_format="v1",
        redelivery_timeout_ms=1_000,
    )
)
queue = old_service.queue("reports")
seen = []
with queue.producer() as producer, queue.consumer() as consumer:
    for number in range(16):
        producer.send(json.dumps({"report": number}).encode())
    while len(seen) < 20:  # 16 messages, and four that come again
        message = consumer.receive(60_000)
        report = json.loads(message.payload)["report"]
        seen.append(report)
        if report % 4 == 1 and seen.count(report) == 1:
            message.nack(1_000)  # their Interrupt, after a second
        else:
            message.ack()
assert sorted(set(seen)) == list(range(16))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What their markers say
# MAGIC
# MAGIC The view `markers` decodes them. A copy of a message has a new offset: `version` 1 knows no
# MAGIC redelivery in place.

# COMMAND ----------

cursorq.register(spark)
old_markers = (
    spark.read.format("cursorq")
    .options(**old_control, view="markers")
    .load()
    .orderBy("timestamp", "marker_offset")
)
display(old_markers.select("timestamp", "type", "subscription", "offsets", "lease_ms").limit(6))

# COMMAND ----------

import matplotlib.pyplot as plt

SYMBOLS = {"START": (">", "#457b9d"), "KEEPALIVE": ("|", "#f4a261"), "END": ("s", "#2a9d8f")}

rows = [row for row in old_markers.collect() if row.type in SYMBOLS]
begin = rows[0].timestamp
figure, axes = plt.subplots(figsize=(13, 4.6), layout="constrained")
figure.suptitle("Markers of kafka-mq-go")
for kind, (symbol, colour) in SYMBOLS.items():
    own = [row for row in rows if row.type == kind]
    seconds = [(row.timestamp - begin).total_seconds() for row in own]
    axes.scatter(
        seconds, [row.offsets[0].start for row in own], marker=symbol, color=colour, s=40, label=kind
    )
for offset in sorted({row.offsets[0].start for row in rows}):
    times = [(row.timestamp - begin).total_seconds() for row in rows if row.offsets[0].start == offset]
    axes.plot([min(times), max(times)], [offset, offset], color="#bbbbbb", linewidth=1, zorder=0)
axes.axhline(15.5, color="black", linewidth=0.8, linestyle=":")
axes.annotate("copies, appended by the tracker", (0, 15.8), fontsize=9, va="top")
axes.set(xlabel="seconds since the first marker", ylabel="offset in the queue topic", yticks=range(0, 20, 2))
axes.invert_yaxis()
axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
axes.spines[["top", "right"]].set_visible(False)
display(figure)
plt.close(figure)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Step 3: continue with a subscription
# MAGIC
# MAGIC All consumers with version 1 are stopped, and the tracker has no open lease. A new subscription
# MAGIC begins at the end of the topic, with control topics and a tracker of its own. Producers go on as
# MAGIC before: a message of a queue has the id of the queue as its key, and `queueId` selects it.

# COMMAND ----------

from spark_cursor_source.admin import LATEST, Subscriptions
from spark_cursor_source.errors import TopicNotFound

old_tracker.close()
control = {
    **{f"kafka.{setting}": value for setting, value in kafka.items()},
    "markersTopic": f"{name}-new-markers",
    "redeliveriesTopic": f"{name}-new-redeliveries",
    "cursorsTopic": f"{name}-new-cursors",
}
tracker = Tracker({**control, "trigger": "100ms"}).start()
deadline = time.monotonic() + 60
while True:
    try:
        with Subscriptions(
            kafka, markers_topic=control["markersTopic"], cursors_topic=control["cursorsTopic"]
        ) as subscriptions:
            print(subscriptions.create("reports", topic, LATEST))
        break
    except TopicNotFound:  # the tracker has not created its topics yet
        assert time.monotonic() < deadline
        time.sleep(0.2)

with queue.producer() as producer:
    for number in range(16, 24):
        producer.send(json.dumps({"report": number}).encode())

reports = spark.readStream.format("cursorq").options(
    **control, subscribe=topic, subscription="reports", queueId="reports"
)
query = (
    reports.load()
    .writeStream.foreachBatch(cursorq.AckSink.per_row(lambda message: None))
    .option("checkpointLocation", f"{checkpoints}/{name}")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
view = spark.read.format("cursorq").options(**control, subscribe=topic, subscription="reports").load
deadline = time.monotonic() + 60
while view(view="cursors").first().acked != 8:
    assert time.monotonic() < deadline
    time.sleep(0.2)
display(view(view="cursors").select("subscription", "partition", "mark_delete", "acked", "backlog"))

# COMMAND ----------

tracker.close()
if broker is not None:
    broker.close()
