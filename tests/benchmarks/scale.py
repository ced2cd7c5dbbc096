"""(g) Scale: ten million outstanding in 64 cells, a hundred thousand queue ids, a million ack holes."""

from __future__ import annotations

import time

import numpy as np
from pyspark.sql import SparkSession

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.topics.cursors import CursorTable
from tests.benchmarks import tracker as of_tracker
from tests.benchmarks.catch_up import V1Load
from tests.benchmarks.common import Bench, print_table, spark_session
from tests.benchmarks.tracker import TrackerLoad

OUTSTANDING = 10_000_000
CELLS = 64
ACKS = 1_000_000
QUEUE_IDS = 100_000
OPEN = 1_000_000
HOLES = 1_000_000


def run(here: Bench) -> None:
    with spark_session(here, peer=False) as spark:
        rows = [*_many_cells(here, spark), *_many_holes(here, spark), *_many_queue_ids(here, spark)]
        peak = max(of_tracker.peak_kib())
    rows.append(["peak memory of a Python worker, all of it", f"{peak / 1024:.0f} MiB"])
    print_table("the tracker at scale, one local machine", ["", "figure"], rows)


def _many_cells(here: Bench, spark: SparkSession) -> list[list[str]]:
    load = TrackerLoad(here, spark)
    cells = [Cell(subscription="bench", topic="load", partition=p) for p in range(CELLS)]
    share = OUTSTANDING // CELLS
    opened = load.deliver(cells, share)
    order = [np.random.default_rng(p).permutation(share).astype(np.uint64) for p in range(CELLS)]
    acked = load.ack(cells, [offsets[: ACKS // CELLS] for offsets in order])
    state = load.state_bytes()
    restart = load.restart(cells[0])
    rebuilt = load.restart(cells[0], checkpoint=here.checkpoint())
    load.close()
    what = f"{OUTSTANDING:,} outstanding, {CELLS} cells"
    return [
        [f"{what}: the trigger that leases them", f"{opened:.2f} s"],
        [f"{what}: the trigger of {ACKS:,} acks in random order", f"{acked:.2f} s"],
        [f"{what}: state", f"{state / 2**20:.2f} MiB"],
        [f"{what}: restart, to the first cursor", f"{restart:.2f} s"],
        [f"{what}: restart without its checkpoint, from the cursors", f"{rebuilt:.2f} s"],
    ]


def _many_holes(here: Bench, spark: SparkSession) -> list[list[str]]:
    load = TrackerLoad(here, spark)
    cell = Cell(subscription="holes", topic="load", partition=0)
    load.deliver([cell], 2 * HOLES)
    acked = load.ack([cell], [np.arange(1, 2 * HOLES, 2, dtype=np.uint64)])
    size = load.state_bytes()
    one_more = load.ack([cell], [np.arange(0, 2, 2, dtype=np.uint64)])
    began = time.perf_counter()
    tail = CursorTable(load.config, load.topics["cursorsTopic"])
    tail.refresh()
    holes = tail.all()[cell].ack_holes.count_ranges()
    loaded = time.perf_counter() - began
    tail.close()
    load.close()
    return [
        [f"{holes:,} holes in one cursor: the trigger that makes them", f"{acked:.2f} s"],
        [f"{holes:,} holes: the trigger of one more ack", f"{one_more:.2f} s"],
        [f"{holes:,} holes: the cursor", f"{size / 2**10:.0f} KiB"],
        [f"{holes:,} holes: to read the cursor and its holes", f"{loaded:.2f} s"],
    ]


def _many_queue_ids(here: Bench, spark: SparkSession) -> list[list[str]]:
    load = V1Load(here, queue_ids=QUEUE_IDS)
    load.append(load.starts(0, OPEN))
    load.start(spark)
    opened = load.folded()
    load.append(load.ends(iter(range(0, OPEN, 10))))
    ended = load.folded()
    open_leases, size = load.state()
    load.stop()
    what = f"{QUEUE_IDS:,} queue ids, {open_leases:,} open messages"
    return [
        [f"{what}: the first trigger, {OPEN:,} Starts", f"{opened:.2f} s"],
        [f"{what}: the trigger of {OPEN // 10:,} Ends", f"{ended:.2f} s"],
        [f"{what}: state", f"{size / 2**20:.2f} MiB"],
    ]
