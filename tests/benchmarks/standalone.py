"""(j) The tracker without Spark: its answers, its lateness, its takeover, and its CPU while it is idle."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Hello, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire import redelivery as redelivery_wire
from tests.benchmarks.common import Bench, append
from tests.benchmarks.report import Figure

ROUNDS = 150
LEASE_MS = 1_000
IDLE_S = 20
SESSION_S = 6


def run(here: Bench) -> list[Figure]:
    with closing(Control(here)) as control:
        return measured(here, control)


def measured(here: Bench, control: Control) -> list[Figure]:
    with control.tracker():
        answers = [control.answer_s() for _ in range(ROUNDS)][10:]
        late = control.lateness_s(ROUNDS)
    with control.tracker() as process:
        control.answer_s()
        time.sleep(5)
        cpu = cpu_share(process.pid)
    takeovers = [control.takeover_s() for _ in range(here.runs)]
    takeover = "takeover after SIGKILL, beyond the session timeout"
    return [
        Figure(what="answer to Hello, p50", value=at(answers, 0.5), unit="ms", goal=50),
        Figure(what="answer to Hello, p99", value=at(answers, 0.99), unit="ms"),
        Figure(what="redelivery after its lease, p50", value=at(late, 0.5), unit="ms"),
        Figure(what="redelivery after its lease, p99", value=at(late, 0.99), unit="ms", goal=250),
        Figure(what="CPU while nothing happens", value=100 * cpu, unit="%", goal=1),
        Figure(what=takeover, value=max(takeovers) - SESSION_S, goal=2),
    ]


def at(seconds: Sequence[float], share: float) -> float:
    """The quantile, in ms."""
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * share))] * 1000


def cpu_share(pid: int) -> float:
    """CPU time of a process as a share of the time."""

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(IDLE_S)
    return (used() - before) / IDLE_S


@contextmanager
def tracker_process(
    here: Bench, topics: Mapping[str, str], **options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """``cursorq tracker`` in a process of its own, on the topics for markers, redeliveries and cursors."""
    conf = here.scratch / f"{uuid.uuid4().hex}.toml"
    names = "\n".join(f'{part}Topic = "{name}"' for part, name in topics.items())
    names += "".join(f'\n{option} = "{value}"' for option, value in options.items())
    servers = here.broker.bootstrap_servers
    conf.write_text(f'sessionTimeout = "{SESSION_S}s"\n{names}\n[kafka]\n"bootstrap.servers" = "{servers}"\n')
    command = [sys.executable, "-m", "spark_cursor_source.cli", "tracker", str(conf)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@dataclass
class Seen:
    """Records of a topic, as they can be read."""

    key: bytes
    value: bytes
    at_s: float


class Tail:
    """The end of a topic, read in a thread."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.seen: list[Seen] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            message = self._consumer.poll(1.0)
            if message is not None and message.error() is None:
                self.seen.append(Seen(message.key() or b"", message.value() or b"", time.time()))


class Control:
    """Control topics of their own."""

    def __init__(self, here: Bench) -> None:
        self._here = here
        self._servers = here.broker.bootstrap_servers
        name = uuid.uuid4().hex[:8]
        self._topics = {part: f"{part}-{name}" for part in ("markers", "redeliveries", "cursors")}
        made = ClusterAdmin({"bootstrap.servers": self._servers}).ensure_control(**self._topics)
        self._partitions = made.markers
        self._producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        self._cursors = Tail(self._servers, self._topics["cursors"], 8)
        self._redeliveries = Tail(self._servers, self._topics["redeliveries"], 8)
        self._cells = 0

    def close(self) -> None:
        for tail in (self._cursors, self._redeliveries):
            tail.close()

    @contextmanager
    def tracker(self, count: int = 1) -> Iterator[subprocess.Popen[bytes]]:
        """``cursorq tracker`` in processes of their own; the first one."""
        with ExitStack() as stack:
            started = [stack.enter_context(tracker_process(self._here, self._topics)) for _ in range(count)]
            yield started[0]

    def answer_s(self) -> float:
        """From a Hello to the cursor that names its run."""
        time.sleep(random.uniform(0.05, 0.2))
        cell, run_id = self._cell(), uuid.uuid4().hex
        began = time.time()
        self._put(Hello(cell=cell, run_id=run_id, position=0))
        return self._await_owner(cell, run_id) - began

    def lateness_s(self, count: int) -> list[float]:
        """From the end of each lease, in the broker's time, to the announcement."""
        cells = [self._cell() for _ in range(count)]
        self._greet(cells, "run")
        begun: dict[Cell, float] = {}
        for cell in cells:
            time.sleep(random.uniform(0, 0.1))
            begun[cell] = self._put(
                Start(
                    cell=cell,
                    offsets=OffsetSet.of((0, 1)),
                    lease_ms=LEASE_MS,
                    delivery_count=1,
                    run_id="run",
                )
            )
        self._await(lambda: self._redeliveries.seen[-1] if len(self._redeliveries.seen) >= count else None)
        back = {redelivery_wire.decode(one.value).cell: one.at_s for one in self._redeliveries.seen}
        return [back[cell] - at_s - LEASE_MS / 1000 for cell, at_s in begun.items()]

    def takeover_s(self) -> float:
        """From the death of one of two trackers to the answers in all partitions."""
        cells: dict[int, Cell] = {}
        while len(cells) < self._partitions:
            cell = self._cell()
            cells.setdefault(cell.control_partition(self._partitions), cell)
        with self.tracker(2) as first:
            for run_id in ("before", "both"):
                self._greet(list(cells.values()), f"{run_id}-{uuid.uuid4().hex}")
                time.sleep(5)
            first.kill()
            died = time.time()
            return self._greet(list(cells.values()), uuid.uuid4().hex) - died

    def _greet(self, cells: Sequence[Cell], run_id: str) -> float:
        for cell in cells:
            self._put(Hello(cell=cell, run_id=run_id, position=0))
        return max(self._await_owner(cell, run_id) for cell in cells)

    def _cell(self) -> Cell:
        self._cells += 1
        return Cell(subscription="bench", topic="load", partition=self._cells)

    def _put(self, marker: Marker) -> float:
        """Append a marker; its append time."""
        partition = marker.cell.control_partition(self._partitions)
        encoded = marker_wire.encode(marker)
        return append(self._producer, self._topics["markers"], partition, marker.cell.key, encoded)[1]

    def _await_owner(self, cell: Cell, run_id: str) -> float:
        def owned() -> Seen | None:
            found = (one for one in reversed(self._cursors.seen) if one.key == cell.key)
            return next((one for one in found if cursor_wire.decode(one.value).owner == run_id), None)

        return self._await(owned).at_s

    @staticmethod
    def _await(find: Callable[[], Seen | None]) -> Seen:
        until = time.monotonic() + 60
        while (found := find()) is None:
            assert time.monotonic() < until, "the tracker does not answer"
            time.sleep(0.002)
        return found
