"""One tracker for all tests of running queries, and a bench for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source.embedded import EmbeddedKafka
from spark_cursor_source.kafka.topics import Topics
from tests.spark.control import Control
from tests.spark.harness import CONTROL, POLICIES, Bench, start_patiently, wait_until


@pytest.fixture(scope="session")
def tracker(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamingQuery]:
    """The tracker of the suite; what it does with a subscription is in ``harness.POLICIES``."""
    Topics({"bootstrap.servers": broker.bootstrap_servers}).ensure_control(
        markers=CONTROL["markersTopic"],
        redeliveries=CONTROL["redeliveriesTopic"],
        cursors=CONTROL["cursorsTopic"],
    )
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "checkpointLocation": str(tmp_path_factory.mktemp("tracker") / "checkpoint"),
        "trigger": "500ms",
        "subscriptions": POLICIES,
        **CONTROL,
    }
    query = start_patiently(lambda: cursorq.start_tracker(spark, options))
    wait_until(lambda: query.recentProgress, "the tracker is at work", queries=[query])
    yield query
    failure = query.exception()
    query.stop()
    if failure is not None:
        raise failure


@pytest.fixture
def bench(
    tracker: StreamingQuery,
    spark: SparkSession,
    broker: EmbeddedKafka,
    tmp_path: Path,
    create_topic: Callable[..., str],
) -> Iterator[Bench]:
    """Topics, queries and a look at the control topics, with the suite's tracker at work."""
    made = Bench(spark, broker.bootstrap_servers, tmp_path, create_topic)
    yield made
    made.close()
    assert tracker.isActive, tracker.exception()


@pytest.fixture
def control(
    spark: SparkSession, broker: EmbeddedKafka, create_topic: Callable[..., str]
) -> Iterator[Control]:
    """Control topics of a test's own, written by hand: no tracker."""
    made = Control(spark, broker.bootstrap_servers, create_topic)
    yield made
    made.close()
