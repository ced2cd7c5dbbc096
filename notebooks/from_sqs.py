# Databricks notebook source
# MAGIC %md
# MAGIC # From SQS and Lambda
# MAGIC
# MAGIC A Kafka topic can do what an SQS queue does. This notebook sends, receives and deletes messages as a
# MAGIC service with SQS does, then runs an unchanged Lambda function on the executors of Spark, and draws
# MAGIC the visibility of each message.
# MAGIC
# MAGIC | SQS and Lambda | here |
# MAGIC | --- | --- |
# MAGIC | queue | topic and `subscription`; several subscriptions can read one topic |
# MAGIC | visibility timeout | lease: `leaseTimeout`, `redelivery_timeout_ms`. A living consumer extends it. |
# MAGIC | `SendMessage`, `DelaySeconds` | `producer.send`; in Spark `df.write` with a column `deliverAt` |
# MAGIC | `ReceiveMessage` | `consumer.receive` |
# MAGIC | `DeleteMessage` | `message.ack` |
# MAGIC | `ChangeMessageVisibility(0)`, or to `n` seconds | `message.nack(0)`, `message.nack(n * 1000)`; `message.extend` |
# MAGIC | `ApproximateReceiveCount` | `delivery_count`, which is exact |
# MAGIC | `maxReceiveCount` and a dead-letter queue | `maxDeliveries` of the tracker, topic `{topic}-{subscription}-DLQ` |
# MAGIC | redrive to source | `admin.redrive` |
# MAGIC | FIFO queue with message groups | `ordering=key`: the messages of a key are handled in their order |
# MAGIC | Lambda, `ReportBatchItemFailures` | `AckSink.per_row`, see below |
# MAGIC | messages are gone when deleted | messages stay until Kafka's retention, and can be read again |
# MAGIC
# MAGIC On Databricks, install `spark_cursor_source` and matplotlib as cluster libraries, and enter the
# MAGIC Kafka bootstrap servers and a checkpoint directory in the widgets. Elsewhere, `python
# MAGIC notebooks/from_sqs.py` starts its own broker.

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
# MAGIC ## Send, receive, delete
# MAGIC
# MAGIC The plain client needs no Spark. A tracker must run somewhere: it counts visibility timeouts.

# COMMAND ----------

from spark_cursor_source.client import Service, ServiceConfig
from spark_cursor_source.tracker import Tracker

name = f"mails-{uuid.uuid4().hex[:8]}"  # a unique prefix avoids conflicts with existing topics
topic = f"{name}-queue"
ensure_topic(kafka, topic, partitions=1)
control = {
    **{f"kafka.{setting}": value for setting, value in kafka.items()},
    "markersTopic": f"{name}-markers",
    "redeliveriesTopic": f"{name}-redeliveries",
    "cursorsTopic": f"{name}-cursors",
}
tracker = Tracker({**control, "trigger": "100ms", "backoff": ["500ms", "1s"], "maxDeliveries": 4}).start()
service = Service(
    ServiceConfig(
        bootstrap_servers=servers,
        kafka=kafka,
        message_topic=topic,
        marker_topic=control["markersTopic"],
        redeliveries_topic=control["redeliveriesTopic"],
        cursors_topic=control["cursorsTopic"],
    )
)
queue = service.queue(subscription="mailer")

with queue.producer() as producer:
    for number in range(24):
        producer.send(json.dumps({"mail": number}).encode())

with queue.consumer() as consumer:
    message = consumer.receive(60_000)  # ReceiveMessage
    message.ack()  # DeleteMessage
    message = consumer.receive(60_000)
    message.nack(1_500)  # ChangeMessageVisibility: visible again in 1.5 s

# COMMAND ----------

# MAGIC %md
# MAGIC ## A Lambda function
# MAGIC
# MAGIC This function is as it was: it takes an event with `Records` and names the records that failed. The
# MAGIC adapter calls it with one record, so that a failure never repeats another record.

# COMMAND ----------


def lambda_handler(event, context):
    failures = []
    for record in event["Records"]:
        number = json.loads(record["body"])["mail"]
        receives = int(record["attributes"]["ApproximateReceiveCount"])
        if (number % 5 == 3 and receives < 3) or number == 12:
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}


def as_lambda(message):
    record = {
        "messageId": f"{message.topic}-{message.partition}-{message.offset}",
        "body": message.value.decode(),
        "attributes": {"ApproximateReceiveCount": str(message.delivery_count)},
    }
    if lambda_handler({"Records": [record]}, None)["batchItemFailures"]:
        raise RuntimeError("the function reports a batch item failure")  # comes back after the backoff


# COMMAND ----------

# MAGIC %md
# MAGIC ## Run it on Spark
# MAGIC
# MAGIC The query takes over the subscription of the service. `concurrency` is what Lambda calls reserved
# MAGIC concurrency, for each task.

# COMMAND ----------

options = {**control, "subscribe": topic, "subscription": "mailer"}
cursorq.register(spark)
query = (
    spark.readStream.format("cursorq")
    .options(**options)
    .load()
    .writeStream.foreachBatch(cursorq.AckSink.per_row(as_lambda, concurrency=8))
    .option("checkpointLocation", f"{checkpoints}/{name}")
    .start()
)


def view(which):
    return spark.read.format("cursorq").options(**options).option("view", which).load()


deadline = time.monotonic() + 300
while view("cursors").groupBy().sum("backlog").first()[0] != 0:
    assert query.exception() is None, query.exception()
    assert time.monotonic() < deadline, "the query takes too long"
    time.sleep(0.5)
query.stop()
display(view("deadletters").selectExpr("STRING(value) AS mail", "delivery_count", "reason", "error"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Draw the visibility of each message
# MAGIC
# MAGIC A bar is the time in which a message is invisible to others, from its Start marker to the marker
# MAGIC that ends or releases it.

# COMMAND ----------

import matplotlib.pyplot as plt

KINDS = {"END": ("o", "#2a9d8f", "deleted"), "RELEASE": ("|", "#e76f51", "visible again later"),
         "REJECT": ("X", "#222222", "given up")}  # fmt: skip

markers = view("markers").where("messages > 0").orderBy("timestamp", "marker_offset").collect()
begin, started, last = min(marker.timestamp for marker in markers), {}, {}
figure, axes = plt.subplots(figsize=(13, 5), layout="constrained")
figure.suptitle("Visibility of each message")
for marker in markers:
    seconds = (marker.timestamp - begin).total_seconds()
    for start, stop in marker.offsets:
        for offset in range(start, stop):
            if marker.type == "START":
                started[offset] = seconds, marker.delivery_count
            elif marker.type in KINDS and offset in started:
                since, count = started.pop(offset)
                symbol, colour, _ = KINDS[marker.type]
                axes.barh(offset, seconds - since, left=since, height=0.5, color=f"C{count - 1}", alpha=0.6)
                axes.plot(seconds, offset, marker=symbol, color=colour, markersize=6)
                last[offset] = seconds
dead = [row.origin_offset for row in view("deadletters").select("origin_offset").collect()]
for offset in dead:
    axes.annotate(" dead letter", (last[offset], offset), fontsize=9, va="center")
for symbol, colour, label in list(KINDS.values())[:2]:
    axes.plot([], [], linestyle="", marker=symbol, color=colour, label=label)
for count in range(1, 5):
    axes.barh(0, 0, color=f"C{count - 1}", alpha=0.6, label=f"receive {count}")
axes.set(xlabel="seconds", ylabel="message")
axes.invert_yaxis()
axes.legend(loc="upper center", ncols=6, frameon=False, bbox_to_anchor=(0.5, 1.1))
axes.spines[["top", "right"]].set_visible(False)
display(figure)
plt.close(figure)

# COMMAND ----------

tracker.close()
if broker is not None:
    broker.close()
