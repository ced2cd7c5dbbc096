"""From a Spark query to trackers without Spark and back, while messages are delivered and trackers die."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_cursor_source.client import QueueConsumer
from tests.client.conftest import Id, Rig
from tests.e2e import plain_app
from tests.forked import start_forked
from tests.kafka.tracker_thread import options_of
from tests.tracker.test_standalone import process
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

MESSAGES = 120


class Worker:
    """A consumer that releases each message at its first delivery and acks it at the second one."""

    def __init__(self, consumer: QueueConsumer) -> None:
        self._consumer = consumer
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acked: set[Id] = set()
        self.failure: BaseException | None = None

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                message = self._consumer.receive(200)
                if message is not None and message.delivery_count == 1:
                    message.nack(0)
                elif message is not None:
                    message.ack()
                    self.acked.add((message.partition, message.offset))
        except BaseException as failure:  # noqa: BLE001 - raised at the end
            self.failure = failure


def test_changing_the_kind_of_tracker_under_load_loses_nothing(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    # replicas ---X killed | Spark takes over ---X killed | a replica takes over, another one joins
    rig = make_rig(2)
    sent: list[Id] = []
    with process(rig.control, tmp_path) as first:
        consumer = rig.consumer(redelivery_timeout_ms=1_000, consumer_receive_buffer_capacity=50)
        with Worker(consumer) as worker:
            send_half(rig, sent)
            wait_until(lambda: len(worker.acked) > 0)
            os.kill(first.pid, signal.SIGKILL)
            with spark_process(rig, tmp_path) as spark:
                wait_until(lambda: worker.acked >= set(sent))
                send_half(rig, sent)
                os.kill(spark, signal.SIGKILL)
            rig.tracker()
            rig.tracker()
            wait_until(lambda: worker.acked >= set(sent))
    rig.all_acked(MESSAGES)
    assert len(sent) == MESSAGES


def send_half(rig: Rig, sent: list[Id]) -> None:
    for _ in range(4):
        sent += rig.send(*(b"x" for _ in range(MESSAGES // 8)))


@contextmanager
def spark_process(rig: Rig, tmp_path: Path) -> Iterator[int]:
    """The tracker of a Spark query, in a process without a JVM, that takes over."""
    told: dict[str, Any] = {
        "options": options_of(rig.control, tmp_path / "spark", takeOver=True),
        "events": str(tmp_path / "events"),
        "run": "spark",
        "bug": False,
        "die_at": None,
    }
    child = start_forked(plain_app.track, told, tmp_path)
    assert child.pid is not None
    try:
        yield child.pid
    finally:
        child.kill()
        child.join()
