"""Outcomes settle while a task runs, a later attempt skips them, and stragglers settle after their batch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from spark_cursor_source import Leave, Reject, Release
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, KeepAlive
from spark_cursor_source.core.marker import Leave as LeaveMarker
from spark_cursor_source.core.marker import Reject as RejectMarker
from spark_cursor_source.core.marker import Release as ReleaseMarker
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import MarkersPartitionsChanged, UnknownOutcome
from spark_cursor_source.interop.sender import MarkerSenderV1
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.actions import Markers, counted, markers_of
from spark_cursor_source.spark.handler_calls import Handling, calls_of
from spark_cursor_source.spark.handling import handle_and_settle
from spark_cursor_source.spark.outcome_flusher import OutcomeFlusher
from spark_cursor_source.spark.per_row import Rows
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.wire import marker as wire
from spark_cursor_source.wire.marker import MarkerType, MarkerV1
from tests.kafka.control_plane import PARTITIONS, new_control
from tests.spark.harness import wait_until

pytestmark = pytest.mark.broker

CELL = Cell(subscription="s", topic="t", partition=0)
FLUSH_MS = 100


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([CELL.topic] * count),
            "partition": pa.array([CELL.partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "delivery_count": pa.array([1] * count, pa.int32()),
        }
    )


@pytest.fixture
def markers(config: dict[str, str]) -> Markers:
    """A markers topic of the test's own, as a task gets it."""
    control = new_control(config)
    given = {"kafka.bootstrap.servers": config["bootstrap.servers"], "subscription": "s"}
    options = AckOptions.parse({**given, "markersTopic": control.markers, "leaseTimeout": "1s"})
    return markers_of(replace(options, cursors_topic=None))


@pytest.fixture
def second_attempt() -> Iterator[None]:
    """This process as a worker that runs the second attempt of a task."""
    context = TaskContext._getOrCreate()
    context._attemptNumber = 1
    yield
    TaskContext._taskContext = None


def written(markers: Markers, kind: type[Any] = object) -> list[Any]:
    config = {"bootstrap.servers": markers.options.kafka["bootstrap.servers"]}
    topic, topics = markers.options.markers_topic, ClusterAdmin(config)
    places = [(topic, number) for number in range(PARTITIONS)]
    ends = topics.end_offsets(places, committed=True)
    with closing(RangeReader(config, committed=True)) as reader:
        # Up to the present end: a partition to which something is always appended has no other one.
        found = list(reader.read(topic, {number: (0, end) for (_, number), end in ends.items()}))
    decoded = [wire.decode(one.key(), one.value()) for one in found]
    return [one for one in decoded if isinstance(one, kind)]


def ended(markers: Markers) -> OffsetSet:
    return OffsetSet.union(one.offsets for one in written(markers, End))


def run(markers: Markers, fn: Any, *batches: pa.RecordBatch, **rules: Any) -> int:
    """The number of outcomes that a task and its earlier attempts settle."""
    handling = Handling(fn=fn, **{"flush_ms": FLUSH_MS, **rules})
    (done,) = handle_and_settle(iter(batches), handling, markers)
    assert done.schema == counted(0).schema
    settled: int = done.to_pydict()["settled"][0]
    return settled


class Recorded:
    """A handler that writes down each call, and takes its time."""

    def __init__(self, path: Path, pause_s: float = 0.002) -> None:
        self._path, self._pause_s = path, pause_s

    def __call__(self, message: Any) -> None:
        time.sleep(self._pause_s)
        with self._path.open("ab") as calls:
            calls.write(b"%d\n" % message.offset)

    @property
    def calls(self) -> list[int]:
        return [int(line) for line in self._path.read_bytes().split()] if self._path.exists() else []


@pytest.mark.parametrize("concurrency", [1, 4])
def test_outcomes_are_settled_while_later_handlers_still_run(markers: Markers, concurrency: int) -> None:
    def handle(message: Any) -> Any:
        if message.offset == 9:
            wait_until(lambda: OffsetSet.of((0, 7)) - ended(markers) == OffsetSet.of(), "0 to 6 are acked")
        return Release(delay="1s") if message.offset == 7 else None

    assert run(markers, handle, rows(10), concurrency=concurrency) == 10
    assert ended(markers) == OffsetSet.of((0, 7), (8, 10))
    (release,) = written(markers, ReleaseMarker)
    assert (release.offsets, release.delay_ms) == (OffsetSet.of((7, 8)), 1_000)


def test_a_killed_worker_costs_the_handler_calls_since_the_last_flush(
    markers: Markers, tmp_path: Path, second_attempt: None
) -> None:
    # 0 .......... killed when 500 of 1,000 are acked       2 ms each: 50 calls between two flushes
    handler = Recorded(tmp_path / "calls")
    worker = multiprocessing.get_context("spawn").Process(target=run, args=(markers, handler, rows(1_000)))
    worker.start()
    wait_until(lambda: len(ended(markers)) >= 500, "500 are acked")
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join()
    called, acked = handler.calls, len(ended(markers))
    assert run(markers, handler, rows(300), rows(700, first=300)) == 1_000
    again = handler.calls[len(called) :]
    assert again == list(range(1_000 - len(again), 1_000))
    # What the worker had sent may have come to the broker only after it was killed.
    skipped = 1_000 - len(again)
    assert acked <= skipped <= len(called)
    assert len(called) - skipped <= 500, "about a second of work, of a process that has a busy machine"
    assert ended(markers) == OffsetSet.of((0, 1_000))


def test_a_later_attempt_skips_what_this_delivery_came_to_and_nothing_else(
    markers: Markers, second_attempt: None
) -> None:
    # 0 ended, 1 released, 2 rejected, 3 released by an earlier delivery, 4 ended in another partition
    given = {"cell": CELL, "delivery_count": 1}
    sender = MarkerSender({"bootstrap.servers": markers.options.kafka["bootstrap.servers"]}, *topic(markers))
    sender.send(
        [
            End(cell=CELL, offsets=OffsetSet.of((0, 1))),
            ReleaseMarker(**given, offsets=OffsetSet.of((1, 2)), delay_ms=0),
            RejectMarker(**given, offsets=OffsetSet.of((2, 3)), reason=""),
            ReleaseMarker(cell=CELL, delivery_count=2, offsets=OffsetSet.of((3, 4)), delay_ms=0),
            End(cell=replace(CELL, partition=1), offsets=OffsetSet.of((4, 5))),
        ]
    )
    sender.flush()
    sender.close()
    seen: list[int] = []
    run(markers, lambda message: seen.append(message.offset), rows(6))
    assert seen == [3, 4, 5]
    # Markers from before the batch say nothing of this delivery.
    seen.clear()
    run(markers_of(markers.options), lambda message: seen.append(message.offset), rows(3))
    assert seen == [0, 1, 2]


def test_a_later_attempt_skips_nothing_because_of_late_markers_of_a_deleted_topic(
    markers: Markers, second_attempt: None
) -> None:
    # 0 acked and 1 rejected as messages of the deleted topic, 2 acked as a message of the present one
    sender = MarkerSender({"bootstrap.servers": markers.options.kafka["bootstrap.servers"]}, *topic(markers))
    sender.send(
        [
            End(cell=CELL, offsets=OffsetSet.of((0, 1)), topic_id="deleted"),
            RejectMarker(cell=CELL, offsets=OffsetSet.of((1, 2)), delivery_count=1, topic_id="deleted"),
            End(cell=CELL, offsets=OffsetSet.of((2, 3)), topic_id="present"),
        ]
    )
    sender.flush()
    sender.close()
    seen: list[int] = []
    options = replace(markers.options, topic_ids={CELL.topic: "present"})
    run(replace(markers, options=options), lambda message: seen.append(message.offset), rows(4))
    assert seen == [0, 1, 3]


def test_a_stage_that_runs_again_after_a_shuffle_skips_what_was_settled_though_its_attempts_begin_at_0(
    markers: Markers,
) -> None:
    seen: list[tuple[int, int]] = []

    def handle(message: Any) -> Any:
        seen.append((message.offset, message.attempt))
        return message.offset != 1  # 1 is released

    shuffled = replace(markers, after_shuffle=True)
    assert run(shuffled, handle, rows(3)) == 3
    assert run(shuffled, handle, rows(5)) == 5
    assert seen == [(offset, 0) for offset in range(5)]


def test_a_later_attempt_skips_what_v1_markers_have_acked(
    config: dict[str, str], second_attempt: None
) -> None:
    # 0 and 2 acked, 1 extended, 3 acked in another partition
    given = {
        "kafka.bootstrap.servers": config["bootstrap.servers"],
        "markersTopic": new_control(config).markers,
    }
    own = {"subscription": "s", "markerFormat": "v1", "leaseTimeout": "1s"}
    markers = markers_of(AckOptions.parse(given | own))
    end, extend = MarkerType.END, MarkerType.KEEP_ALIVE
    sender = MarkerSenderV1(config, *topic(markers))
    sender.send(
        MarkerV1(queue_id=b"mails", type=kind, partition=partition, offset=offset, redeliver_after_ms=1_000)
        for kind, partition, offset in ((end, 0, 0), (extend, 0, 1), (end, 0, 2), (end, 1, 3))
    )
    sender.flush()
    sender.close()
    seen: list[int] = []
    batch = rows(5).append_column("key", pa.array([b"mails"] * 5, pa.binary()))
    assert run(markers, lambda message: seen.append(message.offset), batch) == 5
    assert seen == [1, 3, 4]


def topic(markers: Markers) -> tuple[str, int]:
    return markers.options.markers_topic, PARTITIONS


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_task_that_fails_has_settled_what_its_handlers_have_done(
    markers: Markers, concurrency: int
) -> None:
    with pytest.raises(UnknownOutcome):
        run(markers, lambda message: 42 if message.offset == 5 else None, rows(6), concurrency=concurrency)
    # Only calls that still ran when the one of offset 5 failed may lack an outcome.
    assert len(OffsetSet.of((0, 5)) - ended(markers)) < concurrency
    assert 5 not in ended(markers)


def test_a_flush_that_fails_keeps_its_outcomes_and_fails_the_task_at_its_end(markers: Markers) -> None:
    seen: list[int] = []

    def handle(message: Any) -> None:
        seen.append(message.offset)
        time.sleep(0.05)

    changed = replace(markers, partitions=PARTITIONS + 1)
    with pytest.raises(MarkersPartitionsChanged):
        run(changed, handle, rows(6))
    assert seen == list(range(6)), "a flush in between does not end the task"
    assert written(markers) == []


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_reason_that_is_no_utf8_costs_no_other_message_its_outcome(
    markers: Markers, concurrency: int
) -> None:
    def handle(message: Any) -> None:
        time.sleep(0.02)
        if message.offset == 3:
            raise ValueError("unknown customer \ud800")

    assert run(markers, handle, rows(20), concurrency=concurrency) == 20
    assert ended(markers) == OffsetSet.of((0, 3), (4, 20))
    (release,) = written(markers, ReleaseMarker)
    assert release.reason == "ValueError: unknown customer ?"


def test_an_outcome_without_a_marker_fails_each_flush_and_the_others_are_written(markers: Markers) -> None:
    flusher = OutcomeFlusher(markers.options, markers.partitions, flush_ms=FLUSH_MS)
    batches = [Rows(rows(2, first)) for first in (0, 2, 4, 6)]
    batches[1].odd[0] = "release", "soon", None, None  # type: ignore[assignment]
    for batch in batches:
        flusher.follow(batch, 2)
    for batch in batches[:3]:
        batch.done += [0, 1]
    flusher.start(calls_of(Handling(fn=lambda message: None), ()))
    wait_until(lambda: len(ended(markers)) == 4, "0, 1, 4 and 5 are acked")
    batches[3].done += [0, 1]
    wait_until(lambda: len(ended(markers)) == 6, "6 and 7 are acked: the flushes go on")
    flusher.stop()
    for fail in (flusher.collect, flusher.flush):
        with pytest.raises(pa.ArrowInvalid):
            fail()
    assert ended(markers) == OffsetSet.of((0, 2), (4, 8))


@pytest.mark.parametrize("flush_ms", [FLUSH_MS, 60_000], ids=["flushed often", "flushed after the lease"])
def test_a_straggler_stays_leased_and_settles_when_its_handler_returns(
    markers: Markers, flush_ms: int
) -> None:
    # This process is no worker of Spark that lives on, so the flusher is told to leave, as a task there does.
    released = threading.Event()
    handling = Handling(
        fn=lambda message: released.wait(60) and None, concurrency=2, flush_ms=flush_ms, stragglers_ms=100
    )
    flusher = OutcomeFlusher(markers.options, markers.partitions, flush_ms=flush_ms)
    calls, given = calls_of(handling, ()), Rows(rows(5))
    flusher.start(calls)
    flusher.follow(given, 1)
    calls.submit(given, [3])
    assert not calls.finish(0.1)
    calls.close()
    following = flusher.leave(calls)
    extended = written(markers, KeepAlive)  # the first at once; a slow machine has more of them by now
    assert extended[0] == KeepAlive(cell=CELL, offsets=OffsetSet.of((3, 4)), lease_ms=1_000, delivery_count=1)
    wait_until(
        lambda: len(written(markers, KeepAlive)) >= len(extended) + 2,
        "the lease of a second is extended further",
    )
    assert written(markers, End) == []
    released.set()
    following.join(30)
    assert ended(markers) == OffsetSet.of((3, 4))


def by_batch(markers: Markers) -> Markers:
    """The same for a source that acks whole batches."""
    return replace(markers, options=replace(markers.options, ack_mode=AckMode.BATCH))


def test_a_straggler_is_not_acked_with_its_batch_and_is_acked_by_name(markers: Markers) -> None:
    # 1 is done when the task ends, 3 is not: of a batch that the source acks, 3 is left
    released = threading.Event()
    handling = Handling(
        fn=lambda message: message.offset == 1 or (released.wait(60) and None),
        concurrency=2,
        flush_ms=FLUSH_MS,
        stragglers_ms=100,
    )
    flusher = OutcomeFlusher(by_batch(markers).options, markers.partitions, flush_ms=FLUSH_MS)
    calls, given = calls_of(handling, ()), Rows(rows(5))
    flusher.start(calls)
    flusher.follow(given, 2)
    calls.submit(given, [1, 3])
    wait_until(lambda: calls.running() == [(given, 3)], "1 is done")
    assert not calls.finish(0.1)
    calls.close()
    following = flusher.leave(calls)
    assert written(markers, LeaveMarker) == [
        LeaveMarker(cell=CELL, offsets=OffsetSet.of((3, 4)), delivery_count=1)
    ]
    released.set()
    following.join(30)
    assert 3 in ended(markers)


@pytest.mark.usefixtures("second_attempt")
def test_a_task_writes_the_exceptions_of_a_batch_that_the_source_acks_and_its_next_attempt_skips_them(
    markers: Markers,
) -> None:
    outcomes = {0: Release(), 1: Reject("no"), 2: Leave()}
    calls: list[int] = []

    def handle(message: Any) -> Any:
        calls.append(message.offset)
        return outcomes.get(message.offset)

    for _ in range(2):
        assert run(by_batch(markers), handle, rows(5)) == 5
    assert calls == [0, 1, 2, 3, 4, 3, 4]
    kinds = {type(one): one.offsets for one in written(markers)}
    assert kinds == {
        ReleaseMarker: OffsetSet.of((0, 1)),
        RejectMarker: OffsetSet.of((1, 2)),
        LeaveMarker: OffsetSet.of((2, 3)),
    }


def test_where_workers_end_with_their_task_it_waits_for_its_stragglers(markers: Markers) -> None:
    assert run(markers, lambda message: time.sleep(0.5), rows(2), concurrency=2, stragglers_ms=100) == 2
    assert ended(markers) == OffsetSet.of((0, 2))
