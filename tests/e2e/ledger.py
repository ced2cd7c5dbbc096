"""A ledger of unique messages through faults on a seeded schedule, and the verdict of the topics on it.

``python -m tests.e2e.ledger --minutes 30 --seed 7`` runs for as long as one likes; CI runs each fault once.
With ``--brokers 3`` it runs on a cluster, whose brokers have faults of their own, and without Spark.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.spark_session import python_environment
from tests.beside import beside
from tests.e2e import processes
from tests.e2e.harness import ROOT, App, Field, Garage, SparkGarage, Verdict
from tests.e2e.processes import Part
from tests.forgotten import forgotten
from tests.kafka.control_plane import control_on

LEASE_S = 2
MAX_DELIVERIES = 8
PARTITIONS = 2
PATIENCE_S = 240.0
BACKLOG = 150  #: so many messages may wait: a slow machine has fewer of them, and not more to drain
#: of the cursors topic: the verdict asks what the tracker knew then, and compaction would take the answer
KEPT = {"cleanup.policy": "compact", "min.compaction.lag.ms": 7 * 86_400_000}
#: what becomes of a message the first time; a slow one takes longer than its lease
KINDS = {"plain": 80, "flaky": 5, "release": 5, "leave": 4, "reject": 2, "slow": 0.4, "crash": 0.4}


@dataclass
class Ledger:
    """A queue, its consumer and its tracker, and all that befalls them."""

    broker: EmbeddedKafka
    queue: Field
    seed: int
    away_s: float = 3.0  #: how long a paused broker is away
    faults: Sequence[Fault] = ()  #: FAULTS, if none are given
    may_end: Callable[[Fault], bool] = lambda fault: True  #: whether this fault may end a query or a tracker
    ended: list[str] = field(default_factory=list)  #: what ended by a fault that may end nothing
    told: list[str] = field(default_factory=list)  #: the faults that were, in their order

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._produced = self._acked = 0
        self.tracker = self.queue.tracker(maxDeliveries=MAX_DELIVERIES)
        self.consumer = self.queue.consumer(
            per_row=True, restarts=10_000, leaseTimeout=f"{LEASE_S}s", maxOffsetsPerTrigger=60
        )

    def run(self, until: Callable[[], bool]) -> Verdict:
        """All faults in an order of the seed, once more as long as ``until`` says no; then drain."""
        faults = self.faults or FAULTS
        with self._producing():
            while True:
                for fault in self.random.sample(faults, len(faults)):
                    self._wait_for_acks()
                    time.sleep(self.random.uniform(0, 1.5))
                    self.told.append(fault.__name__)
                    before = self._failures()
                    fault(self)
                    if not self.may_end(fault):
                        self._wait_for_acks()
                        self.ended += [f"{fault.__name__}: {one}" for one in self._failures()[len(before) :]]
                if until():
                    break
        self.look_after(self.queue.all_settled, "all is acked, or a dead letter")
        return self.queue.verdict()

    def _failures(self) -> list[str]:
        """Why queries and trackers have ended so far."""
        return [f"{one['error']}" for app in (self.tracker, self.consumer) for one in app.events("failed")]

    def _wait_for_acks(self) -> None:
        """That the last fault is over."""
        before = self._acked
        self.look_after(lambda: self._count_acks() > before, f"acks after {self.told[-1:]}")

    def _count_acks(self) -> int:
        latest = {told.cursor.cell: told.cursor for told in self.queue.cursors()}
        self._acked = sum(cursor.totals.acked for cursor in latest.values())
        return self._acked

    def look_after(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, and start again whatever has ended."""
        until = time.monotonic() + PATIENCE_S
        while not condition():
            for app in (self.tracker, self.consumer):
                if not app.process.alive:
                    app.restart()
            assert time.monotonic() < until, f"{what}: {self.told} {self.consumer.events('failed')[-2:]}"
            assert not (open_for_ever := forgotten(self.broker)), f"{what}: {open_for_ever} (KAFKA-20734)"
            time.sleep(0.5)

    @contextmanager
    def _producing(self) -> Iterator[None]:
        """Messages of every kind, each once, all the time."""
        kinds = random.Random(self.seed)
        producer = Producer(self.queue.control.config | {"enable.idempotence": True, "log_level": 0})

        def produce(ended: threading.Event) -> None:
            while not ended.wait(0.1):
                for partition in range(PARTITIONS if self._produced - self._acked < BACKLOG else 0):
                    (kind,) = kinds.choices([*KINDS], [*KINDS.values()])
                    producer.produce(self.queue.topic, f"{kind}-{self._produced}", partition=partition)
                    self._produced += 1
                producer.poll(0)

        try:
            with beside(produce):
                yield
        finally:
            assert producer.flush(PATIENCE_S) == 0


Fault = Callable[[Ledger], None]


def driver_killed(ledger: Ledger) -> None:
    ledger.consumer.restart()


def jvm_killed(ledger: Ledger) -> None:
    _kill(ledger, Part.JVM)


def planner_killed(ledger: Ledger) -> None:
    _kill(ledger, Part.PLANNER)


def worker_killed(ledger: Ledger) -> None:
    _kill(ledger, Part.WORKER)


def consumer_stopped(ledger: Ledger) -> None:
    _stop(ledger.consumer)


def tracker_killed(ledger: Ledger) -> None:
    ledger.tracker.restart()


def tracker_stopped(ledger: Ledger) -> None:
    _stop(ledger.tracker)


def broker_killed(ledger: Ledger) -> None:
    ledger.broker.kill()
    ledger.broker.start()


def broker_stopped(ledger: Ledger) -> None:
    ledger.broker.pause()
    time.sleep(ledger.away_s)
    ledger.broker.resume()


FAULTS = (
    driver_killed,
    jvm_killed,
    planner_killed,
    worker_killed,
    consumer_stopped,
    tracker_killed,
    tracker_stopped,
    broker_killed,
    broker_stopped,
)


def _kill(ledger: Ledger, part: Part) -> None:
    """SIGKILL for a part of the consumer, as soon as there is one: it may be about to start again."""

    def killed() -> bool:
        found = ledger.consumer.process.pids_of(part)
        processes.kill(found)
        return bool(found)

    ledger.look_after(killed, f"a {part.name} runs")


def _stop(app: App) -> None:
    """SIGSTOP for longer than a lease."""
    app.process.pause()
    time.sleep(LEASE_S + 2)
    app.process.resume()


def check(verdict: Verdict, queue: Field) -> Verdict:
    """The verdict, and that whatever is a dead letter has been rejected or was out of deliveries."""
    letters = queue.dead_letters()
    verdict.check_settled(dead={one.id for one in letters})
    wrong = [one for one in letters if not one.value.startswith("reject") and one.count < MAX_DELIVERIES]
    assert not wrong
    return verdict


def report(ledger: Ledger, verdict: Verdict) -> str:
    """What there was, in a few lines."""
    reasons = Counter(reason for reasons in verdict.duplicates.values() for reason in reasons)
    return "\n".join(
        [
            f"seed {ledger.seed}: {dict(Counter(ledger.told))}",
            f"{len(verdict.produced)} messages, {len(verdict.seen)} deliveries, {len(verdict.acked)} acked, "
            f"{len(verdict.dead)} dead letters ({len(verdict.copied_twice)} copied twice)",
            f"came again: {dict(reasons)}",
            *(f"ended by {one}" for one in ledger.ended),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--away", type=float, help="seconds that a broker is stopped (120, in a cluster 3)")
    told = parser.parse_args()
    os.environ |= python_environment() | {"PYTHONPATH": str(ROOT)}
    properties = {"auto.create.topics.enable": False}
    with (
        tempfile.TemporaryDirectory() as scratch,
        EmbeddedKafka(brokers=told.brokers, properties=properties) as broker,
    ):
        garage = (SparkGarage if told.brokers == 1 else Garage)(Path(scratch) / "garage")
        queue = new_queue(broker, garage, Path(scratch))
        try:
            if told.brokers == 1:
                ledger = Ledger(broker, queue, told.seed, told.away or 120.0)
            else:
                ledger = on_cluster(broker, queue, told.seed, told.away or 3.0)
            end = time.monotonic() + told.minutes * 60
            verdict = ledger.run(lambda: time.monotonic() > end)
            print(report(ledger, verdict))
            check(verdict, queue)
            assert not ledger.ended
        finally:
            queue.close()
            garage.close()
    print("passed")


def on_cluster(broker: EmbeddedKafka, queue: Field, seed: int, away_s: float = 3.0) -> Ledger:
    """A ledger with the faults of a cluster, of which those of the brokers may end nothing."""
    from tests.e2e.cluster_faults import BROKER_FAULTS, CLUSTER_FAULTS  # they are made of this module

    return Ledger(
        broker,
        queue,
        seed,
        away_s,
        faults=CLUSTER_FAULTS,
        may_end=lambda fault: fault not in BROKER_FAULTS,
    )


def new_queue(
    broker: EmbeddedKafka, garage: Garage, directory: Path, trackers: Garage | None = None
) -> Field:
    """The ledger's queue and control topics, on a broker of its own; its tracker is of the same garage or of
    ``trackers``."""
    queue = Field(
        directory=directory,
        garage=garage,
        trackers=trackers,
        topic="ledger",
        subscription="s",
        control=control_on(broker, "ledger"),
    )
    queue.topics.create({queue.topic: (PARTITIONS, {}), queue.control.cursors: (8, KEPT)})
    return queue


if __name__ == "__main__":
    sys.exit(main())
