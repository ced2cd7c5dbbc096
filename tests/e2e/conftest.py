"""Spark processes for the crash tests, a tracker that outlives each of them, and a queue for every test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.e2e.harness import App, Field, Garage, SparkGarage, Verdict
from tests.kafka.control_plane import control_on, of_worker

AWAY_S = 120.0
#: those of this session, by the name of their fixture
GARAGES = pytest.StashKey[dict[str, SparkGarage]]()


@pytest.fixture(scope="session")
def garage(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[SparkGarage]:
    """Where Spark processes come from."""
    made = request.config.stash[GARAGES]["garage"] = SparkGarage(tmp_path_factory.mktemp("garage"))
    yield made
    made.close()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """At the end of a file, end the processes that wait in a garage that the next test does not use."""
    if nextitem is not None and nextitem.path == item.path:
        return
    needed = getattr(nextitem, "fixturenames", ())
    for name, garage in item.config.stash[GARAGES].items():
        if name not in needed:
            garage.park()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[GARAGES] = {}


@pytest.fixture(scope="session")
def shared_tracker(
    plain_garage: Garage, broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[App]:
    """The tracker of all tests that do not kill theirs, without Spark."""
    directory = tmp_path_factory.mktemp("shared")
    field = Field(
        directory=directory,
        garage=plain_garage,
        topic="",
        subscription="",
        control=control_on(broker, of_worker("shared")),
    )
    tracker = field.tracker()
    yield tracker
    failures = tracker.events("failed")
    field.close()
    assert not failures


@pytest.fixture(scope="session")
def plain_garage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garage]:
    """Where processes come from that need no Spark: see :mod:`tests.e2e.plain_app`."""
    made = Garage(tmp_path_factory.mktemp("plain"))
    yield made
    made.close()


@dataclass
class Outage:
    """A consumer and a tracker whose broker is away, while other tests run."""

    queue: Field
    tracker: App
    consumer: App
    end: threading.Timer
    processes: ExitStack

    def over(self) -> Verdict:
        """What it came to, once it has lasted two minutes and all is acked; all its processes end."""
        with self.processes:
            self.end.join()
            self.consumer.until(self._is_over, "all is acked", beside=[self.tracker])
            assert not self._failed()
            return self.queue.verdict().check_settled()

    def _is_over(self) -> bool:
        return bool(self._failed()) or self.queue.all_settled()

    def _failed(self) -> list[dict[str, Any]]:
        return self.tracker.events("failed") + self.consumer.events("failed")


@pytest.fixture(scope="session")
def outage(plain_garage: Garage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage]:
    """It begins with the first test that names this, so that the last one has little left to wait for."""
    with ExitStack() as processes:
        began = time.monotonic()
        broker = processes.enter_context(
            EmbeddedKafka(properties={"auto.create.topics.enable": False}, ready_timeout_s=2 * AWAY_S)
        )
        start_s = time.monotonic() - began
        queue = Field(
            directory=tmp_path_factory.mktemp("outage"),
            garage=plain_garage,
            topic="orders",
            subscription="s",
            control=control_on(broker, "outage"),
        )
        processes.callback(queue.close)
        queue.topics.create({queue.topic: (2, {})})
        tracker, consumer = queue.tracker(), queue.consumer(leaseTimeout="10s", maxOffsetsPerTrigger=10)
        for partition in (0, 1):
            queue.produce(["plain", "flaky", "leave", "plain"] * 10, partition=partition)
        consumer.until_seen(15)
        broker.kill()
        # A busy machine takes a minute for a start, and clients are patient for three.
        end = threading.Timer(max(0.0, AWAY_S - start_s), broker.start)
        end.start()
        processes.callback(end.join)
        processes.callback(end.cancel)
        yield Outage(queue, tracker, consumer, end, processes)


@pytest.fixture
def make_plain_queue(
    plain_garage: Garage, broker: EmbeddedKafka, create_topic: Callable[..., str], tmp_path: Path
) -> Iterator[Callable[..., Field]]:
    """``make_plain_queue(partitions=1, subscription="s")``: apps without Spark, control topics of its own.

    With ``beside`` another queue, it is another subscription of the same topic, under the same tracker.
    """
    made: list[Field] = []

    def make(partitions: int = 1, subscription: str = "s", *, beside: Field | None = None) -> Field:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        queue = Field(
            directory=directory,
            garage=plain_garage,
            topic=beside.topic if beside else create_topic(partitions),
            subscription=subscription,
            control=beside.control if beside else control_on(broker),
        )
        made.append(queue)
        return queue

    yield make
    for queue in made:
        queue.close()


@pytest.fixture
def make_queue(
    garage: Garage,
    plain_garage: Garage,
    broker: EmbeddedKafka,
    create_topic: Callable[..., str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Field]]:
    """``make_queue(partitions=1, subscription="s", own_tracker=False)``: a queue topic, its control topics.

    Its consumers are Spark's, and the tracker of all such queues is not. With ``own_tracker`` the control
    topics are the test's own, it starts a tracker itself, on Spark, and its consumers are without.
    """
    made: list[Field] = []

    def make(partitions: int = 1, subscription: str = "s", *, own_tracker: bool = False) -> Field:
        if not own_tracker:
            request.getfixturevalue("shared_tracker")
        queue = Field(
            directory=tmp_path,
            garage=plain_garage if own_tracker else garage,
            topic=create_topic(partitions),
            subscription=subscription,
            control=control_on(broker) if own_tracker else control_on(broker, of_worker("shared")),
            trackers=garage if own_tracker else None,
        )
        made.append(queue)
        return queue

    yield make
    for queue in made:
        queue.close()
