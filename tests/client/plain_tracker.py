"""A tracker without Spark: the real planner, rules, outbox and pace in a thread; a dict is its state."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.lease_table import LeaseTable, MessageMarkers
from spark_cursor_source.core.marker_clock import TrackerOffset
from spark_cursor_source.core.tracker import CellTracker, Decision
from spark_cursor_source.core.tracker_options import TrackerOptions
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.outbox import Outbox
from spark_cursor_source.kafka.tail import TailReader
from spark_cursor_source.spark.marker_source import MarkerPlanner
from spark_cursor_source.wire.marker import MarkerV1, decode

_PAUSE_S = 0.02  # where it has nothing to do


class PlainTracker:
    """Runs from ``with`` to its end; what went wrong in between is raised there."""

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = TrackerOptions.parse({"checkpointLocation": "none", **options})
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._cells: dict[Cell, CellTracker] = {}
        self._tables: dict[int, LeaseTable] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:  # noqa: BLE001 - raised where the tracker is ended
            self._failure = failure

    def _work(self) -> None:
        options = self._options
        planner = MarkerPlanner(options)
        config = client_config(options.kafka, "producer")
        reader = TailReader(client_config(options.kafka, "consumer"), committed=True)
        start = planner.initial_offset()
        outbox = Outbox(
            config,
            markers_topic=options.markers_topic,
            redeliveries_topic=options.redeliveries_topic,
            cursors_topic=options.cursors_topic,
            query_id=start.tracker_id,
            policy_for=options.policy_for,
            reappend=options.reappend,
        )
        batch = 0
        while not self._stopping.is_set():
            pace = Deadline.after_ms(options.trigger_ms)
            end = planner.latest_offset(start)
            if end == start:
                self._stopping.wait(_PAUSE_S)
                continue
            if not batch:  # after the planner's first look, which fences whoever was there before
                outbox.open(take_over=True)
            if any((decided := self._step(reader, start, end)).values()):
                outbox.carry_out(batch, next_markers=end.next, **decided)
            start, batch = end, batch + 1
            self._stopping.wait(pace.left_s())
        for client in (planner, reader, outbox):
            client.close()

    def _step(self, reader: TailReader, start: TrackerOffset, end: TrackerOffset) -> dict[str, Any]:
        ranges = {p: (start.next.get(p, 0), stop) for p, stop in end.next.items()}
        messages: dict[int, list[tuple[int, int, int, int, int, int]]] = {}
        touched: dict[Cell, int] = {}
        for record in reader.read(self._options.markers_topic, ranges):
            partition, offset, (_, at_ms) = record.partition(), record.offset(), record.timestamp()
            assert partition is not None
            assert offset is not None
            marker = decode(record.key(), record.value())
            if isinstance(marker, MarkerV1):
                row = (offset, at_ms, marker.type, marker.partition, marker.offset, marker.redeliver_after_ms)
                messages.setdefault(partition, []).append(row)
                continue
            self._tracker(marker.cell, partition).apply(marker, at_ms=at_ms, marker_offset=offset)
            touched[marker.cell] = partition
        now = {p: end.now_ms[p] for p in end.settled}
        for cell, tracker in self._cells.items():
            found = tracker.snapshot()
            due = found.next_event_ms
            if due is not None and due < now.get(found.markers_partition, 0):
                touched[cell] = found.markers_partition
        decisions: list[Decision] = []
        for cell, partition in touched.items():
            decisions += self._cells[cell].settle(now.get(partition))
        return {
            "decisions": decisions,
            "cursors": [self._cells[cell].snapshot() for cell in touched],
            **self._settle_messages(messages, now),
        }

    def _settle_messages(self, markers: Mapping[int, Any], now: Mapping[int, int]) -> dict[str, Any]:
        due: dict[int, LeaseTable] = {}
        for partition in markers.keys() | self._tables.keys() & now.keys():
            table = LeaseTable.resume(self._tables.get(partition))
            table = table.apply(MessageMarkers.of(markers.get(partition, [])))
            over, self._tables[partition] = table.settle(now.get(partition, -1))
            if len(over):
                due[partition] = over
        return {"tables": dict(self._tables) if markers or due else {}, "due": due}

    def _tracker(self, cell: Cell, partition: int) -> CellTracker:
        if cell not in self._cells:
            policy = self._options.policy_for(cell.subscription)
            self._cells[cell] = CellTracker.resume(
                None, cell=cell, policy=policy, markers_partition=partition
            )
        return self._cells[cell]
