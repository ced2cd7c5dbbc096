"""(g) Scale: ten million outstanding in 64 cells, a hundred thousand queue ids, a million ack holes."""

from __future__ import annotations

import time

import numpy as np
from pyspark.sql import SparkSession

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.topics.cursors import CursorTable
from tests.benchmarks import tracker as of_tracker
from tests.benchmarks.catch_up import V1Load
from tests.benchmarks.common import Bench, spark_session
from tests.benchmarks.report import Figure
from tests.benchmarks.tracker import TrackerLoad

OUTSTANDING = 10_000_000
CELLS = 64
ACKS = 1_000_000
QUEUE_IDS = 100_000
OPEN = 1_000_000
HOLES = 1_000_000


def run(here: Bench) -> list[Figure]:
    with spark_session(here, peer=False) as spark:
        rows = [*_many_cells(here, spark), *_many_holes(here, spark), *_many_queue_ids(here, spark)]
        peak = max(of_tracker.peak_kib())
    return [*rows, Figure(what="peak memory of a Python worker", value=peak / 1024, unit="MiB")]


def _many_cells(here: Bench, spark: SparkSession) -> list[Figure]:
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
        Figure(what=f"{what}: the trigger that leases them", value=opened),
        Figure(what=f"{what}: the trigger of {ACKS:,} acks in random order", value=acked),
        Figure(what=f"{what}: state", value=state / 2**20, unit="MiB"),
        Figure(what=f"{what}: restart, to the first cursor", value=restart),
        Figure(what=f"{what}: restart without its checkpoint, from the cursors", value=rebuilt),
    ]


def _many_holes(here: Bench, spark: SparkSession) -> list[Figure]:
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
        Figure(what=f"{holes:,} holes in one cursor: the trigger that makes them", value=acked),
        Figure(what=f"{holes:,} holes: the trigger of one more ack", value=one_more),
        Figure(what=f"{holes:,} holes: the cursor", value=size / 2**10, unit="KiB"),
        Figure(what=f"{holes:,} holes: to read the cursor and its holes", value=loaded),
    ]


def _many_queue_ids(here: Bench, spark: SparkSession) -> list[Figure]:
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
        Figure(what=f"{what}: the first trigger, {OPEN:,} Starts", value=opened),
        Figure(what=f"{what}: the trigger of {OPEN // 10:,} Ends", value=ended),
        Figure(what=f"{what}: state", value=size / 2**20, unit="MiB"),
    ]
