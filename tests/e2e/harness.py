"""Real processes that are killed, and the verdict that the topics give on it afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import (
    End,
    EndLeased,
    EndUpTo,
    Hello,
    Leave,
    Marker,
    Reject,
    Release,
    Start,
)
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.subscription_type import group_id
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire import redelivery as redelivery_wire
from tests import waiting
from tests.beside import beside
from tests.e2e import plain_app, processes
from tests.e2e.processes import Part
from tests.forked import start_forked
from tests.kafka.control_plane import Control
from tests.kafka.topic_records import TopicRecords

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 240.0  #: for anything that is waited for; a busy machine starts a Spark in a minute

MessageId = tuple[int, int]  #: (partition, offset)


def wait_until(condition: Callable[[], Any], what: str, *, timeout_s: float = TIMEOUT_S) -> Any:
    """The first truthy answer of ``condition``."""
    return waiting.wait_until(condition, what, timeout_s=timeout_s)


# -- processes ---------------------------------------------------------------------------------------------


class Process(ABC):
    """A consumer or a tracker, with all processes that it consists of."""

    log_path: Path

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether its driver is."""

    @abstractmethod
    def tell(self, config: Mapping[str, Any]) -> None:
        """What it is to be."""

    @abstractmethod
    def pids_of(self, part: Part) -> set[int]:
        """The processes that are this part."""

    def kill(self, part: Part) -> None:
        """SIGKILL for the processes that are this part, as soon as there are any."""
        processes.kill(wait_until(lambda: self.pids_of(part), f"a {part.name} runs"))

    @abstractmethod
    def kill_tree(self) -> None:
        """SIGKILL for every process of it."""

    @abstractmethod
    def pause(self) -> None:
        """SIGSTOP for every process of it."""

    @abstractmethod
    def resume(self) -> None:
        """SIGCONT for every process of it."""

    def write_stacks(self) -> None:  # noqa: B027 - not every kind can
        """Have it write to its log what its threads do."""


class Garage:
    """Where processes of one kind come from."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started = 0
        self._all: list[Process] = []

    def take(self) -> Process:
        """A process that waits to be told what to be."""
        self._all = [process for process in self._all if process.alive]
        return self._start()

    def close(self) -> None:
        for process in self._all:
            process.kill_tree()

    def _start(self) -> Process:
        self._started += 1
        process = self._new(self._directory / f"app-{self._started}")
        self._all.append(process)
        return process

    def _new(self, directory: Path) -> Process:
        return PlainProcess(directory)


class SparkGarage(Garage):
    """One of them is always warm: the next one starts while the last one is at work."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._spare: Process | None = None

    def take(self) -> Process:
        taken, self._spare = self._spare or super().take(), super().take()
        return taken

    def park(self) -> None:
        """End the one that waits: nobody is going to take it soon."""
        if self._spare is not None:
            self._spare.kill_tree()
            self._spare = None

    def _new(self, directory: Path) -> Process:
        return SparkProcess(directory)


class PlainProcess(Process):
    """One process, without Spark: :mod:`tests.e2e.plain_app`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self.log_path = directory / "log"
        self._process: BaseProcess | None = None

    @property
    def alive(self) -> bool:
        return self._process is None or self._process.is_alive()

    def tell(self, config: Mapping[str, Any]) -> None:
        self._process = start_forked(plain_app.run, dict(config), self._directory)

    def pids_of(self, part: Part) -> set[int]:
        raise AssertionError(f"a process without Spark has no {part.name}")

    def kill_tree(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def write_stacks(self) -> None:
        if self.alive and self._process is not None:
            self._signal(signal.SIGUSR1)
            time.sleep(0.5)  # nothing tells when they are written

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.pid is not None
        processes.signal_all([self._process.pid], number)


class SparkProcess(Process):
    """A driver, its JVM, its planners and its Python workers: :mod:`tests.e2e.spark_app`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.tag = uuid.uuid4().hex
        self.log_path = directory / "log"
        with self.log_path.open("wb") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.spark_app"],
                cwd=directory,
                env={**os.environ, processes.TAG: self.tag},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._driver.poll() is None

    def tell(self, config: Mapping[str, Any]) -> None:
        assert self._driver.stdin is not None
        self._driver.stdin.write(json.dumps({**config, "tag": self.tag}).encode() + b"\n")
        self._driver.stdin.flush()

    def pids_of(self, part: Part) -> set[int]:
        return processes.pids_of(self.tag, part)

    def kill_tree(self) -> None:
        processes.kill_tree(self.tag)
        self._driver.wait()
        if self._driver.stdin is not None:
            self._driver.stdin.close()

    def pause(self) -> None:
        processes.pause_tree(self.tag)

    def resume(self) -> None:
        processes.resume_tree(self.tag)


@dataclass
class App:
    """What a Spark process was told to be, and is again after each restart: the consumer, or the tracker."""

    garage: Garage
    config: dict[str, Any]
    process: Process = field(init=False)
    runs: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self, **changes: Any) -> None:
        """Run (again), with a process of its own."""
        self.config |= changes
        self.runs += 1
        self.process = self.garage.take()
        self.process.tell(self.config | {"run": self.runs})

    def kill_tree(self) -> None:
        self.process.kill_tree()

    def restart(self, **changes: Any) -> None:
        """SIGKILL, and start again."""
        self.kill_tree()
        self.start(**changes)

    def supervise_until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait, and do nothing but start it again whenever its driver has ended."""

        def looked_after() -> Any:
            if answer := condition():
                return answer
            if not self.process.alive:
                self.restart()  # what is left of it, a JVM without a driver for one, ends first
            return None

        return self.until(looked_after, what)

    def events(self, event: str | None = None, *, run: int | None = None) -> list[dict[str, Any]]:
        """What it has written down, of all runs or of one."""
        path = Path(self.config["events"])
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [
            one
            for one in found
            if event in (None, one["event"]) and run in (None, int(one["run"].partition(".")[0]))
        ]

    def seen(self, *, run: int | None = None) -> list[Delivery]:
        """The messages that reached the handler, in this order."""
        return [
            Delivery(
                id=(one["partition"], one["offset"]),
                count=one["delivery_count"],
                batch=one["batch"],
                run=one["run"],
                at_ms=int(one["at"] * 1000),
            )
            for one in self.events("seen", run=run)
        ]

    def until(
        self,
        condition: Callable[[], Any],
        what: str,
        *,
        timeout_s: float = TIMEOUT_S,
        beside: Sequence[App] = (),
    ) -> Any:
        """:func:`wait_until`; the ends of its log and of those of the apps ``beside`` are in the error."""
        try:
            return wait_until(condition, what, timeout_s=timeout_s)
        except AssertionError as late:
            told = "".join(app._told() for app in (self, *beside))
            raise AssertionError(f"{late}{told}") from late

    def _told(self) -> str:
        """Its last events and the end of its log, with what its threads do."""
        self.process.write_stacks()
        tail = self.process.log_path.read_text(errors="replace")[-6_000:]
        return f"\n{self.config['role']}: {self.events()[-10:]}\nlog: {tail}"

    def until_seen(self, count: int, *, run: int | None = None) -> list[Delivery]:
        """The messages that reached the handler, once there are so many."""
        self.until(lambda: len(self.seen(run=run)) >= count, f"{count} messages reach the handler")
        return self.seen(run=run)

    def until_failed(self, *, run: int | None = None) -> str:
        """The error that has ended the query."""
        return str(self.until(lambda: self.events("failed", run=run), "the query fails")[0]["error"])

    def leave(self) -> None:
        """Have one without Spark end its query as a query is ended."""
        Path(self.config["leave"]).touch()

    def open_gate(self) -> None:
        """Let the handler go on."""
        Path(self.config["gate"]).unlink()


# -- what a test has ---------------------------------------------------------------------------------------


@dataclass
class Field:
    """A queue topic, its control topics, and the apps of one test."""

    control: Control
    directory: Path
    garage: Garage
    topic: str
    subscription: str
    trackers: Garage | None = None  #: where a tracker comes from, if not from the same garage
    apps: list[App] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topics = ClusterAdmin(self.control.config)
        # Of its own: in a group with a member of a moment ago, the next one waits until that one is given up.
        self.group_prefix = f"cursorq-{uuid.uuid4().hex[:8]}"
        self._sender: MarkerSender | None = None
        self._records = TopicRecords(self.control.config, self.topics)

    @property
    def group(self) -> str:
        """The consumer group of this subscription."""
        return group_id(self.group_prefix, self.subscription)

    def close(self) -> None:
        for app in self.apps:
            app.kill_tree()
        if self._sender is not None:
            self._sender.close()
        self._records.close()

    def consumer(
        self,
        *,
        per_row: bool = False,
        gate: bool = False,
        wait_first: bool = False,
        restarts: int = 0,
        slow_s: float = 0.0,
        trigger: str = "100 milliseconds",
        die_at: str | None = None,
        bug: bool = False,
        **options: object,
    ) -> App:
        """A running consumer; with a ``gate`` its handler waits at messages that say so (or, with
        ``wait_first``, before every message) until :meth:`App.open_gate`.

        One without Spark can be told the step to ``die_at`` (see :mod:`tests.e2e.death`), and to have a
        ``bug``: it acks a message that its handler has not seen."""
        directory = self.directory / f"consumer-{len(self.apps)}"
        directory.mkdir()
        if gate:
            (directory / "gate").touch()
        return self._app(
            self.garage,
            role="consumer",
            options=self.control.options(
                subscribe=self.topic,
                subscription=self.subscription,
                groupIdPrefix=self.group_prefix,
                leaseTimeout="60s",
                trackerTimeout=f"{TIMEOUT_S:.0f}s",
            )
            | {name: str(value) for name, value in options.items()},
            checkpoint=str(directory / "checkpoint"),
            gate=str(directory / "gate"),
            leave=str(directory / "leave"),
            events=str(directory / "events"),
            per_row=per_row,
            wait_first=wait_first,
            restarts=restarts,
            slow_s=slow_s,
            trigger=trigger,
            die_at=die_at,
            bug=bug,
        )

    def tracker(self, *, die_at: tuple[str, int] | None = None, bug: bool = False, **options: object) -> App:
        """A running tracker of this test's control topics; ``die_at`` is a step and the batch of it.

        One without Spark can have a ``bug``: it passes over an End."""
        directory = self.directory / f"tracker-{len(self.apps)}"
        directory.mkdir()
        return self._app(
            self.trackers or self.garage,
            role="tracker",
            options=self.control.options(checkpointLocation=str(directory / "checkpoint"), trigger="200ms")
            | options,
            events=str(directory / "events"),
            die_at=die_at and {"step": die_at[0], "batch": die_at[1]},
            bug=bug,
        )

    def _app(self, garage: Garage, **config: Any) -> App:
        app = App(garage, config)
        self.apps.append(app)
        return app

    def produce(
        self,
        values: Iterable[str],
        *,
        partition: int = 0,
        timestamp_ms: int = 0,
        keys: Sequence[str | None] = (None,),
    ) -> None:
        """Append messages to the queue; ``timestamp_ms`` is what a producer takes for the time, if not 0.

        The messages have the ``keys`` in turn."""
        producer = Producer({**self.control.config, "linger.ms": 5, "enable.idempotence": True})
        for value, key in zip(values, cycle(keys), strict=False):
            producer.produce(self.topic, value.encode(), key, partition=partition, timestamp=timestamp_ms)
        assert producer.flush(60) == 0

    @contextmanager
    def producing(
        self,
        values: Sequence[str],
        *,
        every_s: float,
        partitions: int = 2,
        keys: Sequence[str | None] = (None,),
    ) -> Iterator[None]:
        """Append the values to each partition, over and over, as long as the block runs."""

        def produce(ended: threading.Event) -> None:
            while not ended.wait(every_s):
                for partition in range(partitions):
                    self.produce(values, partition=partition, keys=keys)

        with beside(produce):
            yield

    def ack(self, offsets: Iterable[int], *, partition: int = 0) -> None:
        """Ack from outside, as any job may."""
        cell = Cell(subscription=self.subscription, topic=self.topic, partition=partition)
        if self._sender is None:
            markers = self.control.markers
            self._sender = MarkerSender(
                self.control.config, markers, self.topics.describe([markers])[markers].partitions
            )
        self._sender.send([End(cell=cell, offsets=OffsetSet.from_offsets(sorted(offsets)))])
        self._sender.flush()

    def verdict(self, *consumers: App) -> Verdict:
        """What became of every message, by the topics and by what the consumers have seen."""
        return Verdict.of(self, consumers or [app for app in self.apps if app.config["role"] == "consumer"])

    def records(self, topic: str) -> list[Message]:
        """The committed records of a topic, by partition and offset; none if it does not exist."""
        return self._records.of(topic)

    def markers(self, kind: type[Any] = object) -> list[Marked]:
        """The markers of this queue and subscription."""
        found = []
        for message in self.records(self.control.markers):
            marker = marker_wire.decode(message.key(), message.value())
            assert not isinstance(marker, marker_wire.MarkerV1)
            if isinstance(marker, kind) and self._is_ours(marker.cell):
                at = message.offset(), message.timestamp()[1]
                found.append(Marked(*at, marker))
        return found

    def cursors(self) -> list[Told]:
        """Every cursor of this queue since it was last deleted; compaction is far away in these tests."""
        values: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
        found: list[Told] = []
        for message in self.records(self.control.cursors):
            key, value = message.key(), message.value()
            values[message.partition()][key] = value
            cell = Cell.from_key(key)
            if self._is_ours(cell) and value is None:
                found = [told for told in found if told.cursor.cell != cell]
            elif self._is_ours(cell):
                found.append(Told(message.timestamp()[1], cursor_wire.decode(value)))
        return found

    def cursor(self, partition: int = 0) -> CursorSnapshot | None:
        """The cursor of a partition as it is now."""
        told = [one.cursor for one in self.cursors() if one.cursor.cell.partition == partition]
        return told[-1] if told else None

    def announcements(self) -> list[Announced]:
        """What the tracker has announced for this queue."""
        found = []
        for message in self.records(self.control.redeliveries):
            redeliver = redelivery_wire.decode(message.value())
            if self._is_ours(redeliver.cell):
                found.append(Announced(message.timestamp()[1], redeliver))
        return found

    def dead_letters(self) -> list[DeadLetter]:
        """What is in this subscription's dead-letter topic."""
        letters = []
        for message in self.records(f"{self.topic}-{self.subscription}-DLQ"):
            facts = {name: (value or b"").decode() for name, value in message.headers() or []}
            letters.append(
                DeadLetter(
                    id=(int(facts["cursorq-partition"]), int(facts["cursorq-offset"])),
                    value=(message.value() or b"").decode(),
                    count=int(facts["cursorq-delivery-count"]),
                    reason=facts["cursorq-reason"],
                )
            )
        return letters

    def all_settled(self) -> bool:
        """Whether the cursors say that every message of the queue is gone, acked or as a dead letter."""
        count = self.topics.describe([self.topic])[self.topic].partitions
        ends = self.topics.end_offsets([(self.topic, number) for number in range(count)], committed=True)
        latest = {told.cursor.cell.partition: told.cursor for told in self.cursors()}
        return all(
            number in latest and latest[number].mark_delete >= end - 1
            for (_, number), end in ends.items()
            if end
        )

    def _is_ours(self, cell: Cell) -> bool:
        return cell.topic == self.topic and cell.subscription == self.subscription


@dataclass(frozen=True, slots=True)
class Marked:
    """A record of the markers topic."""

    marker_offset: int
    at_ms: int
    marker: Marker


@dataclass(frozen=True, slots=True)
class Told:
    """A record of the cursors topic."""

    at_ms: int
    cursor: CursorSnapshot


@dataclass(frozen=True, slots=True)
class Announced:
    """A record of the redeliveries topic."""

    at_ms: int
    redeliver: Redeliver


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of the dead-letter topic."""

    id: MessageId
    value: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that reached the handler."""

    id: MessageId
    count: int
    batch: int | None
    run: str
    at_ms: int


# -- the verdict -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of the messages of a queue. :meth:`check` is what always holds, whatever was killed."""

    produced: frozenset[MessageId]
    acked: frozenset[MessageId]
    dead: frozenset[MessageId]
    outstanding: frozenset[MessageId]
    unseen: frozenset[MessageId]  #: above the read position
    holes: frozenset[MessageId]
    seen: tuple[Delivery, ...]
    duplicates: dict[MessageId, tuple[str, ...]]  #: message -> why it came again, each time
    copied_twice: frozenset[MessageId]  #: dead letters that are there twice
    wrongs: tuple[str, ...]  #: what must never be

    @property
    def lost(self) -> frozenset[MessageId]:
        """Neither acked, nor dead, nor still to come; or acked, and nobody has seen it."""
        gone = self.produced - self.acked - self.dead - self.outstanding - self.unseen
        return gone | ((self.acked & self.produced) - {one.id for one in self.seen})

    def check(self) -> Verdict:
        """Nothing is lost, nothing came again without a reason, the cursors say what the acks say."""
        assert not self.lost, f"lost: {sorted(self.lost)}"
        assert not self.wrongs, "\n".join(self.wrongs)
        return self

    def check_settled(self, *, dead: Iterable[MessageId] = ()) -> Verdict:
        """And every message is acked, but for these, which are dead letters."""
        self.check()
        assert self.dead == frozenset(dead), sorted(self.dead)
        assert self.produced - self.acked - self.dead == frozenset()
        assert not self.outstanding
        assert not self.unseen
        assert not self.holes
        return self

    @classmethod
    def of(cls, queue: Field, consumers: Iterable[App]) -> Verdict:
        marked = queue.markers()
        latest = {told.cursor.cell.partition: told.cursor for told in queue.cursors()}
        produced = frozenset((one.partition(), one.offset()) for one in queue.records(queue.topic))
        acked = frozenset(
            (one.marker.cell.partition, offset) for one in marked for offset in _ended(one.marker)
        ) | _ended_by_batch(marked)
        letters = queue.dead_letters()
        seen = tuple(
            sorted((one for app in consumers for one in app.seen()), key=lambda delivery: delivery.at_ms)
        )
        started = _starts(marked)
        duplicates, unexplained = why_again(seen, marked, queue.announcements())
        return cls(
            produced=produced,
            acked=acked,
            dead=frozenset(one.id for one in letters),
            outstanding=frozenset(_members(latest, lambda cursor: cursor.outstanding)),
            unseen=frozenset((p, o) for p, o in produced if p not in latest or o >= latest[p].read_position),
            holes=frozenset(_members(latest, lambda cursor: cursor.ack_holes)),
            seen=seen,
            duplicates=duplicates,
            copied_twice=frozenset(one.id for one, more in Counter(letters).items() if more > 1),
            wrongs=(
                *unexplained,
                *_not_started(seen, started),
                *(
                    f"{one} reached the handler and is not in the queue"
                    for one in {d.id for d in seen} - produced
                ),
                *_started_after_end(marked),
                *_announced_after_end(queue, marked),
                *(f"{one} is acked and a dead letter" for one in acked & {one.id for one in letters}),
                *_cursors_that_lie(latest, acked | {one.id for one in letters}),
            ),
        )


def _ended(marker: Marker) -> OffsetSet:
    """What the marker ends, whatever came before it."""
    match marker:
        case End(offsets=offsets):
            return offsets
        case EndUpTo(position=position):
            return OffsetSet.of((0, position))
    return EMPTY


def _ended_by_batch(marked: Iterable[Marked]) -> frozenset[MessageId]:
    """What the EndLeased of whole batches ended, if no lease had expired by then."""
    leased: dict[MessageId, tuple[str, int]] = {}
    ended: set[MessageId] = set()
    for one in sorted(marked, key=lambda one: one.marker_offset):
        marker = one.marker
        match marker:
            case Start(run_id=run, delivery_count=count):
                leased |= dict.fromkeys(ids_of([marker]), (run or "", count or 1))
            case Release(delivery_count=count) | Reject(delivery_count=count) | Leave(delivery_count=count):
                of_run = getattr(marker, "run_id", None)  # of a Leave of the source
                for message in ids_of([marker]):
                    if message not in leased or of_run not in (None, leased[message][0]):
                        continue
                    if leased[message][1] == count:
                        del leased[message]
            case EndLeased(run_id=run, delivery_count=count):
                ended |= {one for one in ids_of([marker]) if leased.get(one) == (run, count)}
            case End():
                for message in ids_of([marker]):
                    leased.pop(message, None)
    return frozenset(ended)


def ids_of(markers: Iterable[Any]) -> frozenset[MessageId]:
    """The messages that markers, or announcements, are about."""
    return frozenset((marker.cell.partition, offset) for marker in markers for offset in marker.offsets)


def _members(
    cursors: Mapping[int, CursorSnapshot], which: Callable[[CursorSnapshot], OffsetSet]
) -> Iterator[MessageId]:
    return ((number, offset) for number, cursor in cursors.items() for offset in which(cursor))


def _starts(marked: Iterable[Marked]) -> dict[tuple[MessageId, int], int]:
    """When each delivery of each message was first started, by its count."""
    started: dict[tuple[MessageId, int], int] = {}
    for one in marked:
        if isinstance(one.marker, Start):
            for message in ids_of([one.marker]):
                started.setdefault((message, one.marker.delivery_count or 1), one.at_ms)
    return started


def why_again(
    seen: Iterable[Delivery], marked: Iterable[Marked], announced: Iterable[Announced]
) -> tuple[dict[MessageId, tuple[str, ...]], list[str]]:
    """Why each message came again: a batch that was replayed, or an announcement after a delivery."""
    starts = [one for one in marked if isinstance(one.marker, Start)]
    started = _starts(starts)
    runs: defaultdict[tuple[MessageId, int], set[str]] = defaultdict(set)
    for one in starts:
        for message in ids_of([one.marker]):
            runs[message, one.marker.delivery_count or 1].add(one.marker.run_id)
    announcements: defaultdict[MessageId, set[int]] = defaultdict(set)
    for told in announced:
        for message in ids_of([told.redeliver]):
            announcements[message].add(told.redeliver.delivery_count)

    def is_replay_of_unseen(message: MessageId, count: int, after: int) -> bool:
        """Whether a run died between the Start of an announced delivery and its handler, and this is its
        replay: there is one of these at most, because what was replayed before is handed back."""
        unseen = count - 1
        return (
            unseen > after
            and unseen - 1 in announcements[message]
            and bool(runs[message, unseen])
            and runs[message, unseen].isdisjoint(runs[message, count])
        )

    by_id: defaultdict[MessageId, list[Delivery]] = defaultdict(list)
    for delivery in seen:
        by_id[delivery.id].append(delivery)
    duplicates, unexplained = {}, []
    for message, deliveries in by_id.items():
        reasons = []
        # One who stands still after the Start hands it to the handler after whoever had it next.
        deliveries.sort(key=lambda one: (started.get((one.id, one.count), one.at_ms), one.at_ms))
        for before, after in pairwise(deliveries):
            if after.count <= before.count:
                unexplained.append(f"{message} came with count {before.count}, then {after.count}")
            elif after.batch == before.batch and after.run != before.run:
                reasons.append("replay")
            elif after.count - 1 in announcements[message] or is_replay_of_unseen(
                message, after.count, before.count
            ):
                reasons.append("redelivery")
            else:
                unexplained.append(f"{message} came again as {after}, which nobody announced")
        if reasons:
            duplicates[message] = tuple(reasons)
    return duplicates, unexplained


def _not_started(seen: Iterable[Delivery], started: Mapping[tuple[MessageId, int], int]) -> Iterator[str]:
    """Messages that reached the handler before a Start of that delivery was on the broker."""
    for delivery in seen:
        at_ms = started.get((delivery.id, delivery.count))
        if at_ms is None or at_ms > delivery.at_ms:
            yield f"{delivery} reached the handler, and its Start is of {at_ms}"


def _started_after_end(marked: Iterable[Marked]) -> Iterator[str]:
    """Starts of messages whose End was in the markers before the run said Hello."""
    ended: defaultdict[Cell, OffsetSet] = defaultdict(lambda: EMPTY)
    ended_at_hello: dict[tuple[Cell, str], OffsetSet] = {}
    for one in sorted(marked, key=lambda one: one.marker_offset):
        match one.marker:
            case Hello(cell=cell, run_id=run):
                ended_at_hello.setdefault((cell, run), ended[cell])
            case End(cell=cell) | EndUpTo(cell=cell):
                ended[cell] = ended[cell] | _ended(one.marker)
            case Start(cell=cell, offsets=offsets, run_id=run):
                wrong = offsets & ended_at_hello.get((cell, run or ""), EMPTY)
                if wrong:
                    yield f"{cell}: run {run} started {wrong.ranges}, which had ended before it began"


def _announced_after_end(queue: Field, marked: Iterable[Marked]) -> Iterator[str]:
    """Announcements in or after the batch in which the tracker applied the End."""
    told: defaultdict[Cell, list[Told]] = defaultdict(list)
    for one in queue.cursors():
        told[one.cursor.cell].append(one)
    for announced in queue.announcements():
        cell, at_ms = announced.redeliver.cell, announced.at_ms
        # The cursor goes out after the announcements, in the same transaction.
        batch = next((one.cursor for one in told[cell] if one.at_ms >= at_ms), None)
        if batch is None:
            yield f"{announced.redeliver} came without a cursor"
            continue
        ended = OffsetSet.union(
            _ended(one.marker)
            for one in marked
            if one.marker.cell == cell and one.marker_offset < batch.next_marker
        )
        if wrong := ended & announced.redeliver.offsets:
            yield f"{cell}: {wrong.ranges} was announced after its End was applied"


def _cursors_that_lie(cursors: Mapping[int, CursorSnapshot], gone: frozenset[MessageId]) -> Iterator[str]:
    """Cursors at which the queue was read to the end, and that say otherwise than Ends and dead letters."""
    for number, cursor in cursors.items():
        said = OffsetSet.of((0, cursor.read_position)) - cursor.outstanding
        known = OffsetSet.from_offsets(sorted(o for p, o in gone if p == number))
        if wrong := said - known:
            yield f"partition {number}: the cursor takes {wrong.ranges} for gone"
        if wrong := cursor.outstanding & known:
            yield f"partition {number}: {wrong.ranges} is gone, and the cursor has it outstanding"


def released(marked: Iterable[Marked]) -> list[Release]:
    """The Releases among the markers."""
    return [one.marker for one in marked if isinstance(one.marker, Release)]
