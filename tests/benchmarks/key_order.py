"""(q) Cost of blocked keys, without a broker: in the tracker's state, in the cursor, and in a task."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.key_order import BlockedKeys, key_hash
from spark_cursor_source.core.marker import Block, End, Hello, Release, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import CellTracker
from spark_cursor_source.topics.key_order import OrderedMessages
from spark_cursor_source.wire import cursor as cursor_wire
from tests.benchmarks.common import Bench
from tests.benchmarks.report import Figure, Median

KEYS = 100_000
CELL = Cell(subscription="s", topic="orders", partition=0)
POLICY = RedeliveryPolicy(max_deliveries=None)


def run(here: Bench) -> list[Figure]:
    state = _with_blocked_keys()
    ended = iter(range(KEYS))

    def trigger() -> None:
        """Reads the cursor, takes in the ack of one message that others wait for, and writes the cursor."""
        tracker = CellTracker.resume(cursor_wire.decode(state), cell=CELL, policy=POLICY)
        only = next(ended)
        ack = End(cell=CELL, offsets=OffsetSet.of((only, only + 1)))
        tracker.apply(ack, at_ms=2_000, marker_offset=100 + only)
        assert len(tracker.advance(2_000)) == 1
        cursor_wire.encode(_snapshot(tracker))

    hashes = {offset: key_hash(b"customer-%d" % (offset % KEYS)) for offset in range(2 * KEYS)}
    waiting = OffsetSet.of((KEYS, 2 * KEYS))
    sent = pickle.dumps(BlockedKeys.of(hashes, waiting))
    what = f"{KEYS:,} blocked keys"
    return [
        Figure(what=f"{what}: a trigger that ends one", value=_times(here, trigger), unit="ms", goal=100),
        Figure(what=f"{what}: the cursor", value=len(state), unit="B", goal=1_000_000),
        Figure(
            what=f"{what}: the planner, for each batch",
            value=_times(here, lambda: BlockedKeys.of(hashes, waiting)),
            unit="ms",
        ),
        Figure(
            what=f"{what}: the gate of a task",
            value=_times(here, lambda: OrderedMessages(pickle.loads(sent))),
            unit="ms",
        ),
    ]


def _with_blocked_keys() -> bytes:
    """The cursor of a cell with one released message of each key, and one that waits for it."""
    tracker = CellTracker.resume(
        CursorSnapshot(cell=CELL, read_position=0, next_marker=0), cell=CELL, policy=POLICY
    )
    first, second = OffsetSet.of((0, KEYS)), OffsetSet.of((KEYS, 2 * KEYS))
    every = first | second
    for at, marker in enumerate(
        (
            Hello(cell=CELL, run_id="r", position=0),
            Start(cell=CELL, offsets=every, lease_ms=60_000, delivery_count=1, run_id="r"),
            Release(cell=CELL, offsets=first, delivery_count=1, delay_ms=3_600_000),
            Block(cell=CELL, offsets=second, behind=tuple(range(KEYS)), delivery_count=1),
        )
    ):
        tracker.apply(marker, at_ms=1_000, marker_offset=at)
    tracker.advance(1_000)
    return cursor_wire.encode(_snapshot(tracker))


def _snapshot(tracker: CellTracker) -> CursorSnapshot:
    state = tracker.snapshot()
    assert state is not None
    return state


def _times(here: Bench, work: Callable[[], object]) -> Median:
    def once() -> float:
        began = time.process_time()
        work()
        return (time.process_time() - began) * 1000

    return Median.of(once() for _ in range(here.runs))
