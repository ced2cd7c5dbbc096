"""(n) Memory of the tracker without Spark over a backlog of markers: it should not grow with the backlog."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import MAX_LEASE_MS, End, Hello, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.wire import marker as marker_wire
from tests.benchmarks.common import PARTITIONS, Bench
from tests.benchmarks.report import Figure
from tests.benchmarks.standalone import tracker_process

SMALL = 1_000_000
LARGE = 10_000_000
A_BATCH = 1_000  #: messages of a Start; each has an End of its own


def run(here: Bench) -> list[Figure]:
    found = {count: Backlog(here, count).folded() for count in (SMALL, LARGE)}
    (_, small), (took, large) = found[SMALL], found[LARGE]
    is_small = f"a backlog of {SMALL:,}"
    return [
        Figure(what=f"backlog of {LARGE:,} markers", value=LARGE / took, unit="/s"),
        Figure(what="the same: peak memory", value=large, unit="MiB", peer=small, peer_is=is_small, goal=0.8),
    ]


class Backlog:
    """Markers of one subscription on control topics of its own."""

    def __init__(self, here: Bench, count: int) -> None:
        self._here, self._config = here, {"bootstrap.servers": here.broker.bootstrap_servers}
        name = uuid.uuid4().hex[:8]
        self._topics = {part: f"{part}-{name}" for part in ("markers", "redeliveries", "cursors")}
        made = ClusterAdmin(self._config).ensure_control(**self._topics)
        self._cells = [Cell(subscription="backlog", topic="load", partition=p) for p in range(PARTITIONS)]
        self._messages = count // PARTITIONS // (A_BATCH + 1) * A_BATCH
        self._append(made.markers)

    def folded(self) -> tuple[float, float]:
        """Seconds until a new tracker has read all, and its peak memory in MiB."""
        began = time.monotonic()
        with (
            tracker_process(self._here, self._topics) as process,
            closing(CursorTable(self._config, self._topics["cursors"])) as cursors,
        ):
            while not self._all_acked(cursors):
                assert process.poll() is None, "the tracker has ended"
                assert time.monotonic() - began < 900, "the tracker does not keep up"
                time.sleep(0.2)
            took = time.monotonic() - began
            status = Path(f"/proc/{process.pid}/status").read_text()
        return took, int(status.split("VmHWM:")[1].split()[0]) / 1024

    def _all_acked(self, cursors: CursorTable) -> bool:
        cursors.refresh()
        found = [cursors.get(cell) for cell in self._cells]
        return all(cursor is not None and cursor.mark_delete == self._messages - 1 for cursor in found)

    def _append(self, partitions: int) -> None:
        producer = Producer(
            self._config | {"linger.ms": 50, "queue.buffering.max.messages": 1_000_000, "acks": "all"}
        )
        for marker in self._markers():
            value, cell = marker_wire.encode(marker), marker.cell
            producer.produce(self._topics["markers"], value, cell.key, cell.control_partition(partitions))
            if len(producer) > 500_000:
                producer.poll(0.05)
        assert producer.flush(120) == 0

    def _markers(self) -> Iterator[Marker]:
        for cell in self._cells:
            yield Hello(cell=cell, run_id="run", position=0)
        for first in range(0, self._messages, A_BATCH):
            for cell in self._cells:
                whole = OffsetSet.of((first, first + A_BATCH))
                yield Start(cell=cell, offsets=whole, lease_ms=MAX_LEASE_MS, delivery_count=1, run_id="run")
                for number in range(first, first + A_BATCH):
                    yield End(cell=cell, offsets=OffsetSet.of((number, number + 1)))
