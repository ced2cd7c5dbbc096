"""(m) Cost of idle cells and of open batches for a tracker, without a broker: the records are in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease, MarkersLog
from spark_cursor_source.core.marker import MAX_LEASE_MS, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import CellTracker
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.tracker.memory import CellsInMemory
from spark_cursor_source.tracker.tracked_cells import TrackedCells
from spark_cursor_source.tracker.watch import QueueWatch
from spark_cursor_source.wire import cursor as cursor_wire
from tests.benchmarks.common import Bench
from tests.benchmarks.report import Figure, Median

CELLS = 100_000
CHANGED = 10
OPEN = 40_000
PARTITIONS = 8
NOW = dict.fromkeys(range(PARTITIONS), 10**13)
_CURSORS = "spark_cursor_source.topics.cursors"


def run(here: Bench) -> list[Figure]:
    driver = Driver()
    first = _cpu_ms(driver.trigger)
    idle = Median.of(_cpu_ms(driver.trigger) for _ in range(here.runs))
    changed = Median.of(_after(driver, driver.trigger) for _ in range(here.runs))
    memory = CellsInMemory()
    for number in range(CELLS):
        memory.put(_cell(number).key, b"cursor", 10**13 + number)
    replica = Median.of(_cpu_ms(partial(_next_event, memory)) for _ in range(here.runs))
    trigger_ms, size = _open_batches(here.runs)
    what = f"{CELLS:,} idle cells"
    return [
        Figure(what=f"{what}: start of the tracker", value=first / 1000, goal=10),
        Figure(what=f"{what}: a trigger without changes", value=idle, unit="ms", goal=20),
        Figure(what=f"{what}: a trigger that changes {CHANGED}", value=changed, unit="ms", goal=20),
        Figure(what=f"{CELLS:,} leased cells: next event, tracker without Spark", value=replica, unit="ms"),
        Figure(what=f"{OPEN:,} open batches in a cell: a trigger", value=trigger_ms, unit="ms", goal=100),
        Figure(what=f"{OPEN:,} open batches in a cell: the cursor", value=size, unit="B", goal=100_000),
    ]


def _next_event(memory: CellsInMemory) -> None:
    memory.next_event_ms()
    memory.cell_keys(due_ms=0)


class Driver:
    """What the driver of a tracker does with the cursors at each trigger, without its requests to brokers."""

    def __init__(self) -> None:
        with patch(f"{_CURSORS}.ClusterAdmin"), patch(f"{_CURSORS}.RangeReader"):
            self._table = CursorTable({}, "cursors", markers_topic="markers")
        self._table._positions = dict.fromkeys(range(PARTITIONS), 0)
        self._table._values = {number: {} for number in range(PARTITIONS)}
        self._records = [_record(number) for number in range(CELLS)]
        for record in self._records:
            self._table._take(*record)
        options = TrackerOptions.parse(
            {"kafka": {"bootstrap.servers": "none:1"}, "checkpointLocation": "none"}
        )
        nobody: Any = SimpleNamespace()
        with patch("spark_cursor_source.tracker.watch.MarkerSender"):
            self._watch = QueueWatch(options, nobody, PARTITIONS)
        self._cells = TrackedCells(self._table.get)

    def change(self) -> None:
        for record in self._records[:: CELLS // CHANGED]:
            self._table._take(*record)

    def trigger(self) -> None:
        changed = self._table.changes()
        self._cells.update(changed)
        self._watch.note(changed)
        self._watch.look(self._cells, NOW)
        self._cells.due(NOW)


def _after(driver: Driver, work: Callable[[], object]) -> float:
    driver.change()
    return _cpu_ms(work)


def _cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def _cell(number: int) -> Cell:
    return Cell(subscription=f"subscription-{number // 100}", topic="orders", partition=number % 100)


def _record(number: int) -> tuple[int, bytes, bytes]:
    cell = _cell(number)
    home = cell.control_partition(PARTITIONS)
    cursor = CursorSnapshot(
        cell=cell,
        read_position=1_000,
        next_marker=5_000,
        owner="r" * 32,
        markers_partition=home,
        topic_id="t" * 22,
        log=MarkersLog("markers", "m" * 22),
    )
    return home, cell.key, cursor_wire.encode(cursor)


def _open_batches(runs: int) -> tuple[Median, int]:
    """CPU of a trigger that adds a batch to a cell with many open ones, and the size of its cursor."""
    cell, run_id = _cell(0), "r" * 32
    leases = tuple(
        (Lease(MAX_LEASE_MS + 1_000 * n, 1, run_id, 1_000 * n), OffsetSet.of((2 * n, 2 * n + 1)))
        for n in range(OPEN)
    )
    first = CursorSnapshot(cell=cell, read_position=2 * OPEN, next_marker=OPEN, owner=run_id, leases=leases)
    stored = [cursor_wire.encode(first)]

    def trigger() -> None:
        cursor = cursor_wire.decode(stored[-1])
        tracker = CellTracker.resume(cursor, cell=cell, policy=RedeliveryPolicy())
        at, new = 1_000 * OPEN, cursor.read_position
        start = Start(
            cell=cell, offsets=OffsetSet.of((new, new + 1)), lease_ms=60_000, delivery_count=1, run_id=run_id
        )
        tracker.apply(start, at_ms=at, marker_offset=cursor.next_marker)
        tracker.advance(at)
        found = tracker.snapshot()
        assert found is not None
        stored.append(cursor_wire.encode(found))

    trigger()  # the first one brings the many groups together
    taken = Median.of(_cpu_ms(trigger) for _ in range(runs))
    return taken, len(stored[-1])
