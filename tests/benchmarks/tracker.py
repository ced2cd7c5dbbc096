"""(d) The tracker under load: ten million outstanding messages, a million acks in random order a batch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import MAX_LEASE_MS, End, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.cursors import CursorTail
from spark_cursor_source.kafka.markers import MarkerSender
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.wire import cursor as cursor_wire
from tests.benchmarks.common import PARTITIONS, Bench, print_table, spark_session

OUTSTANDING = 10_000_000
ACKS = 1_000_000


def run(here: Bench) -> None:
    config = {"bootstrap.servers": here.broker.bootstrap_servers}
    with spark_session(here, peer=False) as spark:
        tracker = cursorq.start_tracker(
            spark,
            {
                "kafka.bootstrap.servers": here.broker.bootstrap_servers,
                "checkpointLocation": here.checkpoint(),
            },
        )
        control = Topics(config).ensure_control(
            markers="__cursorq_markers", redeliveries="__cursorq_redeliveries", cursors="__cursors"
        )
        sender = MarkerSender(config, "__cursorq_markers", control.markers)
        cursors = CursorTail(config, "__cursors")
        cells = [Cell(subscription="bench", topic="load", partition=p) for p in range(PARTITIONS)]
        share = OUTSTANDING // PARTITIONS
        every = OffsetSet.of((0, share))
        _sent(
            sender,
            [
                Start(cell=c, offsets=every, lease_ms=MAX_LEASE_MS, delivery_count=1, run_id="r")
                for c in cells
            ],
        )
        _wait(tracker, cursors, OUTSTANDING)
        order = [np.random.default_rng(p).permutation(share).astype(np.uint64) for p in range(PARTITIONS)]
        step = ACKS // PARTITIONS
        figures = []
        for number in range(here.runs):
            part = slice(number * step, (number + 1) * step)
            ends = [
                End(cell=cell, offsets=OffsetSet.from_offsets(offsets[part]))
                for cell, offsets in zip(cells, order, strict=True)
            ]
            before = tracker.lastProgress["batchId"] if tracker.lastProgress else -1
            _sent(sender, ends)
            _wait(tracker, cursors, OUTSTANDING - (number + 1) * ACKS)
            figures.append(_longest(tracker, before))
        state = sum(len(cursor_wire.encode(cursor)) for cursor in cursors.all().values())
        peak = max(_peak_kib())
        tracker.stop()
    rows = [
        ["trigger, median", f"{median(figures):.2f} s", "2 s"],
        ["trigger, longest", f"{max(figures):.2f} s", ""],
        ["state of all cells", f"{state / 2**20:.1f} MiB", "8 MiB"],
        ["peak memory of a Python worker", f"{peak / 1024:.0f} MiB", ""],
    ]
    title = f"{OUTSTANDING:,} outstanding, {ACKS:,} acks in random order a batch, {here.runs} batches"
    print_table(title, ["", "figure", "goal"], rows)


def _sent(sender: MarkerSender, markers: list[Any]) -> None:
    sender.send(markers)
    sender.flush()


def _wait(tracker: StreamingQuery, cursors: CursorTail, outstanding: int) -> None:
    until = time.monotonic() + 120
    while True:
        if (problem := tracker.exception()) is not None:
            raise problem
        cursors.refresh()
        if sum(len(cursor.outstanding) for cursor in cursors.all().values()) == outstanding:
            return
        assert time.monotonic() < until, "the tracker does not keep up"
        time.sleep(0.2)


def _longest(tracker: StreamingQuery, after: int) -> float:
    """Seconds of the trigger that folded the acks: the longest since batch ``after``."""
    time.sleep(1.5)  # its progress is reported after its work is done
    done = [p for p in tracker.recentProgress if p["batchId"] > after and p["numInputRows"]]
    return max(float(p["durationMs"]["triggerExecution"]) / 1000 for p in done)


def _peak_kib() -> Iterator[int]:
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
