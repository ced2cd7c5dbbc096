"""SIGKILL of the broker under load."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.e2e.harness import Field, Garage
from tests.kafka.control_plane import control_on

pytestmark = [pytest.mark.e2e, pytest.mark.broker, pytest.mark.timeout(900)]


@pytest.fixture
def queue(mortal: EmbeddedKafka, plain_garage: Garage, tmp_path: Path) -> Iterator[Field]:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": mortal.bootstrap_servers, "log_level": "0"})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(timeout=20)
    made = Field(
        directory=tmp_path,
        garage=plain_garage,  # with Spark in the ledger
        topic=topic,
        subscription="s",
        control=control_on(mortal, "mortal"),
    )
    yield made
    made.close()


def test_a_broker_that_dies_under_load_and_comes_back_costs_nothing(
    mortal: EmbeddedKafka, queue: Field
) -> None:
    # load ---- SIGKILL of the broker .... start ---- load ---- SIGKILL .... start ---- all is acked
    tracker = queue.tracker()
    consumer = queue.consumer(per_row=True, leaseTimeout="10s", maxOffsetsPerTrigger=30, restarts=20)

    def goes_on(acked: int) -> bool:
        if not tracker.process.alive:
            tracker.restart()
        return len(queue.verdict().acked) > acked

    for acked in (30, 130):
        for partition in (0, 1):
            queue.produce(["plain"] * 45 + ["flaky"] * 5, partition=partition)
        consumer.supervise_until(partial(goes_on, acked), "load")
        mortal.kill()
        mortal.start()

    def both_go_on() -> bool:
        if not tracker.process.alive:
            tracker.restart()
        return queue.all_settled()

    consumer.supervise_until(both_go_on, "all is acked")
    verdict = queue.verdict().check_settled()
    assert {one.count for one in verdict.seen} >= {1, 2}
