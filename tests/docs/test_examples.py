"""The Python blocks of README and docs, and the examples of docstrings, run as a reader would run them."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_cursor_source import AckSink, DeltaSink, KafkaSink, admin, client, metrics
from spark_cursor_source.consumer.tracker_watch import unread_markers
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
)
from spark_cursor_source.devkit import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.tracker import Tracker
from tests.docs.pages import environment, page_name, pages, runnable
from tests.spark.harness import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

PAGES = [path for path in pages() if runnable(path)]
SPARK = [path for path in PAGES if environment(path) == "spark"]
OTHER = [path for path in PAGES if environment(path) != "spark"]
CLASSES = [
    AckSink.per_row,
    DeltaSink,
    KafkaSink,
    admin.Subscriptions,
    admin.TopicMetrics,
    client.Client,
    client.Service,
    client.QueueConsumer,
    client.QueueMessage,
    client.QueueProducer,
    metrics.JsonFormatter,
    metrics.message_span,
    metrics.serve_metrics,
    metrics.trace_headers,
    Tracker,
]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with the default names of control topics, whose tracker runs."""
    with EmbeddedKafka(properties={"auto.create.topics.enable": False}) as broker:
        topics = ClusterAdmin({"bootstrap.servers": broker.bootstrap_servers})
        topics.ensure_control(
            markers=DEFAULT_MARKERS_TOPIC,
            redeliveries=DEFAULT_REDELIVERIES_TOPIC,
            cursors=DEFAULT_CURSORS_TOPIC,
        )
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "trigger": "100ms",
            "backoff": "200ms",
        }
        with Tracker(options):
            yield broker.bootstrap_servers


class Reader:
    """Somebody who tries the blocks of one page, on topics of the page's own."""

    def __init__(self, servers: str, directory: Path) -> None:
        self._servers, self._directory, self._tag = servers, directory, uuid.uuid4().hex[:8]
        topics = ClusterAdmin({"bootstrap.servers": servers})
        topics.create({self.own("orders"): (2, {}), self.own("jobs"): (2, {})})
        producer = Producer({"bootstrap.servers": servers})
        for number in range(10):
            order = json.dumps({"order": number, "amount": 150 * number - 100})
            producer.produce(self.own("orders"), order, key=f"customer-{number}")
        assert producer.flush(30) == 0
        self._topics = topics

    def own(self, name: str) -> str:
        return f"{name}-{self._tag}"

    def adapted(self, code: str) -> str:
        """The code with this broker, this page's own names, and a directory for checkpoints."""
        code = code.replace("broker:9092", self._servers).replace("localhost:9092", self._servers)
        code = code.replace("/tmp/checkpoints/", "/checkpoints/").replace(
            "/checkpoints/", f"{self._directory}/"
        )
        return re.sub(r'"(orders|jobs|billing|mails)\b', lambda name: f'"{self.own(name[1])}', code)

    def subscribe(self) -> None:
        """Create the subscription billing, which pages about Spark look at before a query runs."""
        with admin.Subscriptions({"bootstrap.servers": self._servers}) as subscriptions:
            subscriptions.create(self.own("billing"), self.own("orders"), admin.EARLIEST)

    def await_tracker(self) -> None:
        """Wait until the tracker has read every marker."""
        wait_until(lambda: unread_markers(self._topics, DEFAULT_MARKERS_TOPIC)[0] == 0, "it has read all")

    def run(self, name: str, code: str, namespace: dict[str, Any]) -> None:
        exec(compile(self.adapted(code), name, "exec"), namespace)


@pytest.fixture
def reader(servers: str, tmp_path: Path) -> Reader:
    return Reader(servers, tmp_path)


@pytest.mark.parametrize("path", OTHER, ids=page_name)
def test_the_blocks_of_a_page_run(path: Path, reader: Reader) -> None:
    namespace: dict[str, Any] = {"__name__": "example"}
    for block in runnable(path):
        reader.run(block.name, block.code, namespace)


@pytest.mark.spark
@pytest.mark.parametrize("path", SPARK, ids=page_name)
def test_the_blocks_of_a_page_about_spark_run(path: Path, reader: Reader, spark: Any) -> None:
    reader.subscribe()
    namespace: dict[str, Any] = {"__name__": "example", "spark": spark}
    with ExitStack() as stack:
        stack.callback(lambda: [query.stop() for query in spark.streams.active])
        for block in runnable(path):
            reader.run(block.name, block.code, namespace)
            for query in spark.streams.active:
                wait_until(lambda query=query: query.recentProgress or query.exception(), "it has a batch")
                assert query.exception() is None
            reader.await_tracker()


@pytest.mark.parametrize("documented", CLASSES, ids=lambda documented: documented.__name__)
def test_the_example_of_a_docstring_runs(documented: Any, reader: Reader) -> None:
    example = re.search(
        r"^Example::\n\n((?:    .*\n|\n)+)", inspect.cleandoc(documented.__doc__ or "") + "\n", re.M
    )
    assert example is not None, "a public class has an example"
    reader.run(documented.__name__, textwrap.dedent(example[1]), {"__name__": "example"})
