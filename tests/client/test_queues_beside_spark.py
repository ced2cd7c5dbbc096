"""A consumer of the plain client and a Spark query on one subscription."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from tests.client.conftest import Id, Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.spark]


def test_a_client_and_a_spark_query_share_a_subscription(
    spark: SparkSession, make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = make_rig(2)
    rig.tracker()
    cursorq.register(spark)
    options = rig.source_options | {"subscriptionType": "shared", "sessionTimeout": "6s"}
    by_query: list[Id] = []
    by_client: list[Id] = []

    def note(batch: DataFrame, _: int) -> None:
        by_query.extend((row.partition, row.offset) for row in batch.select("partition", "offset").collect())

    consumer = rig.consumer()

    def work() -> None:
        for message in consumer:
            message.ack()
            by_client.append((message.partition, message.offset))

    thread = threading.Thread(target=work)
    thread.start()
    sent = rig.send(*(b"%d" % number for number in range(10)))
    query = (
        spark.readStream.format("cursorq")
        .options(**options)
        .load()
        .writeStream.foreachBatch(AckSink(note, options))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:

        def both_have_some() -> bool:
            sent.extend(rig.send(*(b"%d" % number for number in range(6))))
            time.sleep(0.5)
            assert query.exception() is None, query.exception()
            return bool(by_query and by_client) and by_client[-1][0] != by_query[-1][0]

        wait_until(both_have_some)
        # A message that is received just before the close could not be acked, and would come again.
        wait_until(lambda: {*by_query, *by_client} >= set(sent))
        consumer.close()
        thread.join(30)
        sent += rig.send(*(b"%d" % number for number in range(10)))
        wait_until(lambda: {*by_query, *by_client} >= set(sent))
        rig.all_acked(len(sent))
    finally:
        query.stop()
    assert sorted(by_query + by_client) == sorted(sent)  # each once: nobody died
