"""(d) The tracker under load: ten million outstanding messages, a million acks in random order a batch."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import MAX_LEASE_MS, End, Hello, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.wire import cursor as cursor_wire
from tests.benchmarks.common import PARTITIONS, Bench, spark_session
from tests.benchmarks.report import Figure, Median

OUTSTANDING = 10_000_000
ACKS = 1_000_000


def run(here: Bench) -> list[Figure]:
    with spark_session(here, peer=False) as spark:
        load = TrackerLoad(here, spark)
        cells = [Cell(subscription="bench", topic="load", partition=p) for p in range(PARTITIONS)]
        share = OUTSTANDING // PARTITIONS
        load.deliver(cells, share)
        order = [np.random.default_rng(p).permutation(share).astype(np.uint64) for p in range(PARTITIONS)]
        step = ACKS // PARTITIONS
        parts = [slice(number * step, (number + 1) * step) for number in range(here.runs)]
        figures = [load.ack(cells, [offsets[part] for offsets in order]) for part in parts]
        state = load.state_bytes()
        peak = max(peak_kib())
        load.close()
    what = f"{OUTSTANDING:,} outstanding, {ACKS:,} acks in random order"
    return [
        Figure(what=f"{what}: a trigger", value=Median.of(figures), goal=2),
        Figure(what=f"{what}: state", value=state / 2**20, unit="MiB", goal=8),
        Figure(what=f"{what}: peak memory of a Python worker", value=peak / 1024, unit="MiB"),
    ]


class TrackerLoad:
    """A tracker on control topics of its own, and markers for it."""

    def __init__(self, here: Bench, spark: SparkSession) -> None:
        self._here, self._spark = here, spark
        name = uuid.uuid4().hex[:8]
        self.config = {"bootstrap.servers": here.broker.bootstrap_servers}
        kinds = ("markers", "redeliveries", "cursors")
        self.topics = {f"{kind}Topic": f"{kind}-{name}" for kind in kinds}
        control = ClusterAdmin(self.config).ensure_control(**{kind: f"{kind}-{name}" for kind in kinds})
        self._sender = MarkerSender(self.config, self.topics["markersTopic"], control.markers)
        self._cursors = CursorTable(self.config, self.topics["cursorsTopic"])
        self._checkpoint = here.checkpoint()
        self._tracker = self._start()

    def deliver(self, cells: Sequence[Cell], share: int) -> float:
        """Lease so many messages of each cell; seconds of the trigger."""
        every = OffsetSet.of((0, share))
        greeted = [Hello(cell=cell, run_id="r", position=0) for cell in cells]
        started = [
            Start(cell=cell, offsets=every, lease_ms=MAX_LEASE_MS, delivery_count=1, run_id="r")
            for cell in cells
        ]
        return self._folded([*greeted, *started], change=share * len(cells))

    def ack(self, cells: Sequence[Cell], offsets: Sequence[np.ndarray]) -> float:
        """Acknowledge outstanding offsets of each cell; seconds of the trigger."""
        ends = [
            End(cell=cell, offsets=OffsetSet.from_offsets(some))
            for cell, some in zip(cells, offsets, strict=True)
        ]
        return self._folded(ends, change=-sum(map(len, offsets)))

    def restart(self, cell: Cell, *, checkpoint: str | None = None) -> float:
        """Stop the tracker and start it again; seconds until it has folded one marker more."""
        self._tracker.stop()
        self._cursors.refresh()
        before = self._cursors.all()[cell].next_marker
        self._sent([End(cell=cell, offsets=OffsetSet.of((2**40, 2**40 + 1)))])
        began = time.perf_counter()
        if checkpoint is not None:
            self._checkpoint = checkpoint
        self._tracker = self._start()
        self._wait(lambda: self._cursors.all()[cell].next_marker > before)
        return time.perf_counter() - began

    def state_bytes(self) -> int:
        """The bytes of all cursors."""
        self._cursors.refresh()
        return sum(len(cursor_wire.encode(cursor)) for cursor in self._cursors.all().values())

    def close(self) -> None:
        self._tracker.stop()
        self._sender.close()
        self._cursors.close()

    def _start(self) -> StreamingQuery:
        return cursorq.start_tracker(
            self._spark,
            {
                "kafka.bootstrap.servers": self._here.broker.bootstrap_servers,
                "checkpointLocation": self._checkpoint,
                "takeOver": True,
                **self.topics,
            },
        )

    def _folded(self, markers: Sequence[Marker], *, change: int) -> float:
        before = self._tracker.lastProgress["batchId"] if self._tracker.lastProgress else -1
        wanted = self._outstanding() + change
        self._sent(markers)
        self._wait(lambda: self._outstanding() == wanted)
        return _longest(self._tracker, before)

    def _outstanding(self) -> int:
        return sum(len(cursor.outstanding) for cursor in self._cursors.all().values())

    def _sent(self, markers: Sequence[Marker]) -> None:
        self._sender.send(markers)
        self._sender.flush()

    def _wait(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + 120
        self._cursors.refresh()
        while not done():
            if (problem := self._tracker.exception()) is not None:
                raise problem
            assert time.monotonic() < until, "the tracker does not keep up"
            time.sleep(0.2)
            self._cursors.refresh()


def _longest(tracker: StreamingQuery, after: int) -> float:
    """Seconds of the trigger that folded the markers: the longest since batch ``after``."""
    time.sleep(1.5)  # its progress is reported after its work is done
    done = [p for p in tracker.recentProgress if p["batchId"] > after and p["numInputRows"]]
    return max(float(p["durationMs"]["triggerExecution"]) / 1000 for p in done)


def peak_kib() -> Iterator[int]:
    """Peak resident memory of each Python worker below this process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # ended meanwhile
    yield 0
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        try:
            if above == os.getpid() and b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes():
                status = Path(f"/proc/{pid}/status").read_text()
                if b"java" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    yield int(status.split("VmHWM:")[1].split()[0])
        except OSError:
            continue
