"""A process whose options hold secrets: it works, fails in several ways, and prints all that it can.

``python -m tests.spark.secret_life <bootstrap servers> <topic> <directory> <right> <wrong> <unused>
<of a key>``: the broker's password, one that it does not take, and two secrets that nothing needs.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink, Reject
from spark_cursor_source.devkit.spark_session import SHORT_LIVED
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.tracker import TrackerOptions
from tests.spark.harness import start_patiently, wait_until


def main(servers: str, topic: str, directory: Path, right: str, wrong: str, unused: str, of_key: str) -> None:
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    # What pyspark sends to its JVM, which is all that it is told, it logs itself.
    logging.getLogger("py4j").setLevel(logging.INFO)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.port", "0")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", str(directory))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("INFO")
    kafka = {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.ssl.key.password": unused,
        "kafka.ssl.key.pem": f"-----BEGIN PRIVATE KEY-----\n{of_key}\n-----END PRIVATE KEY-----",
        "kafka.sasl.oauthbearer.client.secret": unused,
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase": of_key,
    }
    login = {"kafka.sasl.username": "us", "kafka.sasl.password": right}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    java_login = {"kafka.sasl.jaas.config": f'{module} required username="us" password="{right}";'}
    options = {**kafka, **java_login, "subscribe": topic, "subscription": "s", "leaseTimeout": "5s"}
    tracking = {**kafka, **login, "checkpointLocation": str(directory / "tracker"), "trigger": "500ms"}

    for parsed in (SourceOptions.parse(options), AckOptions.parse(options), TrackerOptions.parse(tracking)):
        print(repr(parsed), str(parsed))

    cursorq.register(spark)
    tracker = start_patiently(lambda: cursorq.start_tracker(spark, tracking))

    def handle(message: object) -> object:
        if message.offset == 1:  # type: ignore[attr-defined]
            return Reject("not good")
        if message.offset == 2 and message.delivery_count == 1:  # type: ignore[attr-defined]
            raise RuntimeError("once")
        return None

    done: list[int] = []

    def attempt(what: Callable[[], object]) -> None:
        """Print the error, as a log would; once more where a busy machine was too slow for Spark."""
        try:
            what()
        except Exception as failed:  # noqa: BLE001 - all of them are looked at
            traceback.print_exc()
            if "failed to connect back" in str(failed):
                attempt(what)
        else:
            raise AssertionError("that should have failed")

    def run(checkpoint: str, changed: dict[str, str], sink: Callable | None = None) -> StreamingQuery:
        frame = spark.readStream.format("cursorq").options(**{**options, **changed}).load()
        if "kafka.sasl.pasword" not in changed:  # Spark hides what has the name of a secret, and this has not
            frame.explain(True)
            attempt(lambda: frame.select("no such column"))
        writer = frame.writeStream.foreachBatch(sink or AckSink.per_row(handle, options, then=remember))
        return writer.option("checkpointLocation", str(directory / checkpoint)).start()

    def remember(outcomes: object, batch_id: int) -> None:
        done.extend(row.offset for row in outcomes.collect())  # type: ignore[attr-defined]

    query = start_patiently(lambda: run("query", {}))
    wait_until(lambda: done.count(2) >= 2, "2 comes back", queries=[query, tracker])
    for one in (query, tracker):
        print(one.status, one.lastProgress, one.recentProgress, one.name, one.explain(True))

    def ends(checkpoint: str, changed: dict[str, str], sink: Callable | None = None) -> Callable[[], object]:
        return lambda: run(checkpoint, changed, sink).awaitTermination()

    def fail(batch: object, batch_id: int) -> None:
        raise RuntimeError("the sink fails")

    wrong_login = {"kafka.sasl.jaas.config": java_login["kafka.sasl.jaas.config"].replace(right, wrong)}
    attempts = [
        ends("failing", {"subscription": "failing"}, fail),
        ends("misspelled", {"kafka.sasl.pasword": right}),
        ends("both", {"kafka.sasl.password": unused}),
        ends("no-file", {"kafka.ssl.keystore.location": "/no/such/file"}),
        ends("malformed", {"kafka.sasl.jaas.config": f"PlainLoginModule password={right}"}),
        ends("unknown", {"subscription": "other", "saslPassword": right}),
        ends("wrong", wrong_login | {"subscription": "wrong"}),
        lambda: cursorq.start_tracker(spark, {**tracking, "kafka.sasl.pasword": right}),
        lambda: cursorq.ack(spark.range(1), {**options, **wrong_login}),
    ]
    # Three at a time: a login that is refused is tried again for a while.
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(attempt, attempts))
    view = spark.read.format("cursorq").options(**options, view="cursors").load()
    view.explain(True)
    view.show()
    acked = spark.range(1).selectExpr("'queue' AS topic", "0 AS `partition`", "0L AS `offset`")
    acks = acked.write.format("cursorq").options(**options).option("action", "ack").mode("append")
    acks.save()
    ids = ["'queue' AS topic", "0 AS `partition`", "value AS `offset`"]
    rows = spark.readStream.format("rate").load().selectExpr(*ids)
    written = rows.writeStream.format("cursorq").options(**options).option("action", "ack")
    writing = written.option("checkpointLocation", str(directory / "written")).start()
    wait_until(lambda: writing.lastProgress, "acks are written", queries=[writing])
    print(writing.explain(True), writing.lastProgress)
    writing.stop()
    look_at_the_ui(spark, directory)
    query.stop()
    tracker.stop()
    spark.stop()
    print("all done")


def look_at_the_ui(spark: SparkSession, directory: Path) -> None:
    """Keep what Spark's UI and its REST interface show of all that ran."""
    url = spark.sparkContext.uiWebUrl
    application = f"{url}/api/v1/applications/{spark.sparkContext.applicationId}"
    with urlopen(f"{application}/sql?length=1000&details=true&planDescription=true") as found:
        executions = found.read()
    pages = {
        f"{url}/environment/": b"",
        f"{url}/StreamingQuery/": b"",
        f"{url}/jobs/": b"",
        "sql": executions,
    }
    for number in (one["id"] for one in json.loads(executions)):
        pages[f"{url}/SQL/execution/?id={number}"] = b""
    for at, (page, content) in enumerate(pages.items()):
        if not content:
            with urlopen(page) as found:
                content = found.read()
        (directory / f"ui-{at}").write_bytes(content)
    print("pages of the UI:", len(pages))


if __name__ == "__main__":
    _servers, _topic, _directory, *_passwords = sys.argv[1:]
    main(_servers, _topic, Path(_directory), *_passwords)
