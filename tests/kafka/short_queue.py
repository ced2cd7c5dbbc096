"""Queue topics that keep their messages for seconds, with a rescue topic."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.client.conftest import Rig
from tests.conftest import READY_S, RESTING, ROOT, end_clients
from tests.kafka.control_plane import control_on, read_all
from tests.waiting import wait_until

#: retention is looked at often, and what it takes is gone at once
PROPERTIES = {
    "auto.create.topics.enable": False,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 100,
    "log.cleaner.backoff.ms": 300,
}
#: a message is due after 2 s; a busy machine may take 4 s for the first copies
SHORT = {"retention.ms": 8_000, "segment.ms": 500, "retention.bytes": -1}
RESCUE = {"rescueBefore": "6s"}
SETTLE_S = 90.0

MakeShort = Callable[..., "ShortRig"]


class ShortRig(Rig):
    """A queue topic of short retention, its control topics, and what a test opens on them."""

    @property
    def rescue_topic(self) -> str:
        return f"rescue-{self.control.name}"

    @property
    def tracker_options(self) -> dict[str, Any]:
        return self.control.options(
            trigger="50ms", sessionTimeout="2s", rescueTopic=self.rescue_topic, **RESCUE
        )

    @property
    def source_options(self) -> dict[str, Any]:
        return super().source_options | {"rescueTopic": self.rescue_topic}

    def recreate(self, **settings: object) -> None:
        super().recreate(**(SHORT | settings))

    def tracker(self, **options: object) -> None:
        super().tracker(**(RESCUE | {"rescueTopic": self.rescue_topic} | options))

    @contextmanager
    def tracker_process(self, conf: Path, **options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A tracker in a process of its own, which dies with the block."""
        lines = [f'"{name}" = "{value}"' for name, value in (self.tracker_options | options).items()]
        conf.write_text("\n".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "spark_cursor_source.tracker", str(conf)]
        with subprocess.Popen(command, cwd=ROOT) as child:
            try:
                yield child
            finally:
                child.kill()

    def service(self, **more: Any) -> Any:
        return super().service(**({"rescue_topic": self.rescue_topic} | more))

    def subscribe(self, subscription: str = "s") -> None:
        """Create a subscription and leave it."""
        with self.service().queue(None, subscription=subscription).consumer():
            wait_until(lambda: len(self.cursors(subscription)) == self.partitions)

    def produce(self, count: int, **record: Any) -> None:
        """Append messages ``0``, ``1`` and so on, with the time of now."""
        producer = Producer(self.control.config)
        for number in range(count):
            producer.produce(self.topic, value=b"%d" % number, key=b"k%d" % number, **record)
        assert producer.flush(30) == 0

    def begins(self) -> list[int]:
        """The first offset of each partition that retention has left."""
        places = [(self.topic, number) for number in range(self.partitions)]
        return list(self.topics.beginning_offsets(places).values())

    def until_removed(self, count: int) -> None:
        """Wait until retention has taken so many offsets."""
        wait_until(lambda: sum(self.begins()) >= count, "retention takes the messages", timeout_s=SETTLE_S)

    def copies(self) -> dict[bytes, bytes]:
        """The records of the rescue topic that are not deleted."""
        found: dict[bytes, bytes] = {}
        for record in read_all(self.control.config, self.rescue_topic):
            if record.value() is None:
                found.pop(record.key(), None)
            else:
                found[record.key()] = record.value()
        return found

    def until_freed(self) -> None:
        wait_until(lambda: not self.copies(), "the copies are freed", timeout_s=SETTLE_S)

    def load(self, count: int, seconds: float) -> threading.Thread:
        """A thread that appends messages ``0``, ``1`` and so on, spread over this time."""

        def append() -> None:
            producer = Producer(self.control.config)
            for number in range(count):
                producer.produce(self.topic, value=b"%d" % number)
                producer.poll(0)
                time.sleep(seconds / count)
            assert producer.flush(30) == 0

        thread = threading.Thread(target=append)
        thread.start()
        return thread


@pytest.fixture(scope="session")
def short_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=PROPERTIES, ready_timeout_s=READY_S) as running:
        request.config.stash[RESTING]["short_broker"] = running
        yield running
        end_clients()


@pytest.fixture
def make_short(short_broker: EmbeddedKafka) -> Iterator[MakeShort]:
    """``make_short(partitions=1, **settings)``: a queue of short retention without a tracker."""
    with ExitStack() as stack:

        def make(partitions: int = 1, **settings: object) -> ShortRig:
            control = control_on(short_broker).create()
            rig = ShortRig(control, partitions)
            stack.enter_context(rig.stack)
            rig.recreate(**{name.replace("_", "."): value for name, value in settings.items()})
            return rig

        yield make
