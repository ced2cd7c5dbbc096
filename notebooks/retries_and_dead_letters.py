# Databricks notebook source
# MAGIC %md
# MAGIC # Retries, dead letters and triage
# MAGIC
# MAGIC A handler fails for several reasons. This notebook retries its messages with a backoff, gives some
# MAGIC of them up, finds out why, and sends the cured ones back.
# MAGIC
# MAGIC On Databricks, install `spark_cursor_source` and matplotlib as cluster libraries, and enter the
# MAGIC Kafka bootstrap servers and a checkpoint directory in the widgets. Elsewhere, `python
# MAGIC notebooks/retries_and_dead_letters.py` starts its own broker.

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
# MAGIC ## A queue of payments, and a tracker
# MAGIC
# MAGIC The tracker decides when a failed message comes back, and when it is given up. Here a message is
# MAGIC delivered at most three times, with waits of 0.3 s and 0.6 s. This tracker runs in this process,
# MAGIC without Spark. For production, use `cursorq.start_tracker`, or the command `cursorq tracker`.

# COMMAND ----------

from spark_cursor_source.tracker import Tracker

name = f"payments-{uuid.uuid4().hex[:8]}"  # a unique prefix avoids conflicts with existing topics
topic = f"{name}-queue"
payments = [{"payment": n, "account": f"NO{9000 + 37 * n}", "amount": f"{n}.50"} for n in range(120)]
for payment in payments[4::10]:
    payment["amount"] = f"{payment['payment']},50"  # a sender with a decimal comma

ensure_topic(kafka, topic, partitions=3)
send_messages(kafka, topic, [(one["account"].encode(), json.dumps(one).encode()) for one in payments])

control = {
    **{f"kafka.{setting}": value for setting, value in kafka.items()},
    "markersTopic": f"{name}-markers",
    "redeliveriesTopic": f"{name}-redeliveries",
    "cursorsTopic": f"{name}-cursors",
}
tracker = Tracker({**control, "maxDeliveries": 3, "backoff": ["300ms", "600ms"], "trigger": "100ms"}).start()

# COMMAND ----------

# MAGIC %md
# MAGIC ## A handler that fails
# MAGIC
# MAGIC Some errors go away by themselves, some last, and one is refused at once. An exception becomes the
# MAGIC reason of the release, and the reason of the last delivery stays with the dead letter.

# COMMAND ----------

options = {**control, "subscribe": topic, "subscription": "bank", "leaseTimeout": "5m"}


def pay(message):
    payment = json.loads(message.value)
    number, account = payment["payment"], payment["account"]
    if number % 25 == 9:
        return cursorq.Reject(f"account {account} is closed")  # a dead letter without a retry
    if number % 6 == 1 and message.delivery_count == 1:
        raise TimeoutError(f"the bank did not answer in {200 + number} ms")  # succeeds when retried
    float(payment["amount"])  # fails for a decimal comma
    if number % 7 == 3:
        raise ConnectionError(f"branch 10.0.7.{number} is down")  # lasts for now
    return None


def start(handler):
    return (
        spark.readStream.format("cursorq")
        .options(**options, maxOffsetsPerTrigger=40)
        .load()
        .writeStream.foreachBatch(cursorq.AckSink.per_row(handler))
        .option("checkpointLocation", f"{checkpoints}/{name}")
        .start()
    )


def view(which):
    return spark.read.format("cursorq").options(**options).option("view", which).load()


def until_all_are_settled():
    deadline = time.monotonic() + 300
    while view("cursors").groupBy().sum("backlog").first()[0] != 0:
        tracker.check()
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, "the query takes too long"
        time.sleep(0.5)
    return view("cursors").groupBy().sum("acked", "dead_lettered").first()


cursorq.register(spark)
query = start(pay)
while not query.lastProgress:  # progress shows that the tracker has answered the query
    time.sleep(0.2)
acked, dead_lettered = until_all_are_settled()
print(f"{acked} payments are acked, {dead_lettered} are dead letters")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Triage: which errors are there?
# MAGIC
# MAGIC The errors of the dead letters differ in numbers, accounts and hosts. A **template** replaces these
# MAGIC parts by `<*>`, so that errors of one cause have one text.

# COMMAND ----------

from pyspark.sql import functions as F

VARIABLE = r"'[^']*'|\b[A-Z]{2}\d+\b|\d[\d.,]*"

letters = view("deadletters").withColumn("template", F.regexp_replace("error", VARIABLE, "<*>"))
display(
    letters.groupBy("template", "reason")
    .agg(F.count("*").alias("messages"), F.min("first_delivery"), F.max("last_delivery"))
    .orderBy(F.desc("messages"))
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Triage: when did they happen?
# MAGIC
# MAGIC Each line is one dead letter, from its first delivery to its last. A rejected message has one
# MAGIC delivery, so its line is a dot.

# COMMAND ----------

import matplotlib.pyplot as plt

rows = letters.select("template", "first_delivery", "last_delivery").orderBy("last_delivery").collect()
begin = min(row.first_delivery for row in rows)
templates = sorted({row.template for row in rows}, key=lambda one: -sum(row.template == one for row in rows))
figure, (bars, lines) = plt.subplots(
    1, 2, figsize=(13, 4.2), width_ratios=[2, 3], layout="constrained", sharey=False
)
figure.suptitle("Dead letters by cause")
for place, template in enumerate(templates):
    own = [(height, row) for height, row in enumerate(rows) if row.template == template]
    bars.barh(place, len(own), color=f"C{place}")
    bars.text(0.3, place, f"{template}  ({len(own)})", va="center", fontsize=8)
    for height, row in own:
        seconds = [(at - begin).total_seconds() for at in (row.first_delivery, row.last_delivery)]
        lines.plot(seconds, [height] * 2, color=f"C{place}", marker="o", markersize=3)
bars.set(yticks=[], xlabel="messages")
bars.invert_yaxis()
lines.set(xlabel="seconds since the first failure", ylabel="dead letters, oldest below")
for axes in (bars, lines):
    axes.spines[["top", "right"]].set_visible(False)
display(figure)
plt.close(figure)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Redrive what was cured
# MAGIC
# MAGIC The branches are up again, so only their messages go back to the queue. A dead letter is redriven
# MAGIC once, with any filter: the rest can follow later.

# COMMAND ----------

from spark_cursor_source.admin import DeadLetterFilter, redrive


def pay_again(message):
    payment = json.loads(message.value)
    float(payment["amount"])


query.stop()
query = start(pay_again)
dead_letter_topic = f"{topic}-bank-DLQ"
redriven = redrive(
    kafka, dead_letter_topic, DeadLetterFilter(error="is down"), cursors_topic=control["cursorsTopic"]
)
print(redriven)
assert until_all_are_settled() == (acked + redriven.sent, dead_lettered)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Correct the others
# MAGIC
# MAGIC Dead letters are a DataFrame, so Spark can correct them. A write appends them to the queue as new
# MAGIC messages.

# COMMAND ----------

corrected = letters.where("template LIKE '%float%'").select(
    "key", F.regexp_replace(F.col("value").cast("string"), r"(\d+),(\d+)", "$1.$2").alias("value")
)
corrected.write.format("cursorq").options(**control).option("topic", topic).mode("append").save()
print(until_all_are_settled()[0] - acked, "of them are acked now")

# COMMAND ----------

query.stop()
tracker.close()
if broker is not None:
    broker.close()
