"""One tracker for all tests of running queries, and a bench for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.tracker import Tracker
from tests.spark.control import Control
from tests.spark.desk import Desk, MakeDesk
from tests.spark.harness import POLICIES, Bench, suite_control


@pytest.fixture(scope="session")
def tracker(broker: EmbeddedKafka) -> Iterator[Tracker]:
    """The tracker of the suite; what it does with a subscription is in ``harness.POLICIES``.

    It is one without Spark. Spark's own is under test where it is killed, refused or superseded.
    """
    control = suite_control(broker.bootstrap_servers).create()
    with Tracker(control.options(trigger="100ms", subscriptions=POLICIES)) as running:
        yield running


@pytest.fixture
def bench(
    tracker: Tracker,
    spark: SparkSession,
    broker: EmbeddedKafka,
    tmp_path: Path,
    create_topic: Callable[..., str],
) -> Iterator[Bench]:
    """Topics, queries and a look at the control topics, with the suite's tracker at work."""
    made = Bench(spark, broker.bootstrap_servers, tmp_path, create_topic)
    yield made
    made.close()
    tracker.check()


@pytest.fixture
def plain_bench(
    tracker: Tracker, broker: EmbeddedKafka, tmp_path: Path, create_topic: Callable[..., str]
) -> Iterator[Bench]:
    """A bench for queries without Spark, see ``Bench.plain``; it has no session."""
    made = Bench(None, broker.bootstrap_servers, tmp_path, create_topic)
    yield made
    made.close()
    tracker.check()


@pytest.fixture
def control(
    spark: SparkSession, broker: EmbeddedKafka, create_topic: Callable[..., str]
) -> Iterator[Control]:
    """Control topics of a test's own, written by hand: no tracker."""
    made = Control(spark, broker.bootstrap_servers, create_topic)
    yield made
    made.close()


@pytest.fixture
def make_desk(broker: EmbeddedKafka) -> Iterator[MakeDesk]:
    """Desks, as ``make_desk(partitions=1, **tracker_options)``."""
    with ExitStack() as stack:

        def make(partitions: int = 1, **tracker: object) -> Desk:
            return Desk(broker.bootstrap_servers, stack, partitions, tracker)

        yield make
