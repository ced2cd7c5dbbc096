# Databricks notebook source
# MAGIC %md
# MAGIC # Subscriptions and cursors
# MAGIC
# MAGIC Three subscriptions read one topic, each with a **cursor** of its own. This notebook draws the
# MAGIC cursors, with a hole for each message that is still outstanding, and then moves them.
# MAGIC
# MAGIC On Databricks, install `spark_cursor_source` and matplotlib as cluster libraries, and enter the
# MAGIC Kafka bootstrap servers and a checkpoint directory in the widgets. Elsewhere, `python
# MAGIC notebooks/subscriptions_and_cursors.py` starts its own broker.

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
# MAGIC ## A topic and a tracker
# MAGIC
# MAGIC 600 events in three partitions. The tracker runs in this process, without Spark. For production, use
# MAGIC `cursorq.start_tracker`, or the command `cursorq tracker`.

# COMMAND ----------

from spark_cursor_source.tracker import Tracker

name = f"events-{uuid.uuid4().hex[:8]}"  # a unique prefix avoids conflicts with existing topics
topic = f"{name}-queue"
ensure_topic(kafka, topic, partitions=3)
send_messages(
    kafka, topic, [(f"user-{n % 40}".encode(), json.dumps({"event": n}).encode()) for n in range(600)]
)

control = {
    **{f"kafka.{setting}": value for setting, value in kafka.items()},
    "markersTopic": f"{name}-markers",
    "redeliveriesTopic": f"{name}-redeliveries",
    "cursorsTopic": f"{name}-cursors",
}
tracker = Tracker({**control, "trigger": "100ms"}).start()
options = {**control, "subscribe": topic, "leaseTimeout": "5m"}
cursorq.register(spark)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Three subscriptions
# MAGIC
# MAGIC - `billing` acks most messages and leaves some. They are **holes** in its cursor.
# MAGIC - `audit` has its messages acked by the source, batch by batch (`ackMode=batch`).
# MAGIC - `search` exists, begins at offset 100 of each partition, and nobody reads it yet.

# COMMAND ----------

from spark_cursor_source.admin import EARLIEST, Subscriptions, at_offsets


def bill(message):
    event = json.loads(message.value)["event"]
    waits_for_a_person = event * event % 23 == 3 or 300 <= event < 330
    return cursorq.Leave() if waits_for_a_person else None


def run(subscription, sink, **more):
    events = spark.readStream.format("cursorq").options(**options, subscription=subscription, **more).load()
    writer = sink(events).option("checkpointLocation", f"{checkpoints}/{name}-{subscription}")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


topics = {"markers_topic": control["markersTopic"], "cursors_topic": control["cursorsTopic"]}
with Subscriptions(kafka, **topics) as subscriptions:
    subscriptions.create("search", topic, at_offsets(topic, {0: 100, 1: 100, 2: 100}))
run("billing", lambda events: events.writeStream.foreachBatch(cursorq.AckSink.per_row(bill)))
run("audit", lambda events: events.writeStream.format("noop"), ackMode="batch")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Draw the cursors
# MAGIC
# MAGIC The view `cursors` has one row for each subscription and partition: the mark-delete position, the
# MAGIC acked ranges above it, and the position up to which messages were delivered.

# COMMAND ----------

import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

COLOURS = {"acked": "#2a9d8f", "outstanding": "#e76f51", "not delivered": "#e5e5e5"}


def cursors():
    return spark.read.format("cursorq").options(**control, view="cursors", subscribe=topic).load()


def states(cursor):
    """The state of each offset of a partition: 0 acked, 1 outstanding, 2 not delivered."""
    offsets = [2] * cursor.log_end
    offsets[: cursor.read_position] = [1] * cursor.read_position
    for start, stop in [(0, cursor.mark_delete + 1), *cursor.ack_holes]:
        offsets[start:stop] = [0] * (stop - start)
    return offsets


def draw(title):
    rows = cursors().orderBy("subscription", "partition").collect()
    width = max(row.log_end for row in rows)
    figure, axes = plt.subplots(len(rows), figsize=(13, 0.42 * len(rows) + 1), layout="constrained")
    figure.suptitle(title)
    for one, row in zip(axes, rows, strict=True):
        one.imshow([states(row)], aspect="auto", cmap=ListedColormap(COLOURS.values()), vmin=0, vmax=2)
        one.set(xlim=(-0.5, width - 0.5), yticks=[], xticks=[])
        one.set_ylabel(
            f"{row.subscription}  {row.partition}", rotation=0, ha="right", va="center", fontsize=9
        )
        one.axvline(row.mark_delete + 0.5, color="black", linewidth=1.5)
        one.spines[:].set_visible(False)
    axes[-1].set(xticks=range(0, width, 50), xlabel="offset; the black line is the mark-delete position")
    figure.legend(handles=[Patch(color=colour, label=state) for state, colour in COLOURS.items()],
                  loc="outside upper right", ncols=3, frameon=False)  # fmt: skip
    display(figure)
    plt.close(figure)


def until(subscription, **expected):
    deadline = time.monotonic() + 300
    while True:
        own = cursors().where(f"subscription = '{subscription}'").groupBy().sum(*expected).first()
        if own == tuple(expected.values()):
            return
        tracker.check()
        assert time.monotonic() < deadline, f"{subscription} has {own}"
        time.sleep(0.3)


left = sum(e * e % 23 == 3 or 300 <= e < 330 for e in range(600))
until("billing", acked=600 - left, outstanding=left)
until("audit", acked=600, outstanding=0)
draw("Three subscriptions of one topic")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The holes, with their payload
# MAGIC
# MAGIC `cursorq.outstanding` returns every message that was delivered and is not acked, with its content.

# COMMAND ----------

waiting = cursorq.outstanding(spark, {**options, "subscription": "billing"})
waiting = waiting.selectExpr("*", "INT(get_json_object(STRING(value), '$.event')) AS event")
display(
    waiting.select("partition", "offset", "state", "delivery_count", "deadline", "event")
    .orderBy("event")
    .limit(5)
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Settle and move
# MAGIC
# MAGIC - The events from 300 on are acked by this cell. Any job may do that.
# MAGIC - `search` is moved to the end of what it should not read: everything before offset 150 counts as
# MAGIC   acked.
# MAGIC - `audit` is moved back to the beginning. It will receive all messages again.

# COMMAND ----------

settled = cursorq.ack(waiting.where("event BETWEEN 300 AND 329"))
with Subscriptions(kafka, **topics) as subscriptions:
    subscriptions.skip("search", topic, 50)
    subscriptions.seek("audit", topic, EARLIEST)
until("billing", acked=600 - left + settled, outstanding=left - settled)
draw("After an ack, a skip and a seek")

# COMMAND ----------

tracker.close()
if broker is not None:
    broker.close()
