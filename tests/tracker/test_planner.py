"""How far the tracker's driver lets each batch read, and where it lets leases run out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import InputPartition

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Delayed, Lease, MarkersLog
from spark_cursor_source.core.marker import End, EndOffsetObserved, Marker
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import CellTracker
from spark_cursor_source.core.tracker_offset import TrackerOffset
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import MarkersTopicRecreated
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop import markers_wire as message_wire
from spark_cursor_source.interop.lease_table import END, START, LeaseTable, MessageMarkers
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.spark.tracker_source import MarkerStreamReader
from spark_cursor_source.tracker import marker_ends
from spark_cursor_source.tracker import planner as marker_planner
from spark_cursor_source.tracker.fold import MarkerFold
from spark_cursor_source.tracker.marker_ends import MarkerEnds
from spark_cursor_source.tracker.planner import AllCursors, MarkersSlice, TrackerPlanner
from spark_cursor_source.tracker.watch import QueueWatch
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    cell_of,
    login,
    offsets,
    produce,
    read_all,
)
from tests.logged import names
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

MakePlanner = Callable[..., TrackerPlanner]


@pytest.fixture
def planner(control: Control) -> Iterator[MakePlanner]:
    """``planner(**options)``: the driver's side of a tracker of the test's control topics."""
    made: list[TrackerPlanner] = []

    def make(**given: Any) -> TrackerPlanner:
        made.append(TrackerPlanner(options_of(control, **given)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def options_of(control: Control, **given: Any) -> TrackerOptions:
    return TrackerOptions.parse(control.options(checkpointLocation="cp", **given))


def home(cell: Cell) -> int:
    return cell.control_partition(PARTITIONS)


def leased(cell: Cell, *, deadline_ms: int, **more: Any) -> CursorSnapshot:
    """A cursor with one message, whose lease is over after ``deadline_ms``."""
    return CursorSnapshot(
        **{
            "cell": cell,
            "read_position": 1,
            "next_marker": 0,
            "owner": "run",
            "markers_partition": home(cell),
            "leases": ((Lease(deadline_ms, 1, "run"), offsets((0, 1))),),
            **more,
        }
    )


def put_cursor(control: Control, cursor: CursorSnapshot) -> None:
    record = {"key": cursor.cell.key, "value": cursor_wire.encode(cursor), "partition": home(cursor.cell)}
    produce(control.config, control.cursors, [record])


def put_markers(control: Control, *markers: Marker) -> None:
    produce(
        control.config,
        control.markers,
        [
            {"key": one.cell.key, "value": marker_wire.encode(one), "partition": home(one.cell)}
            for one in markers
        ],
    )


def test_no_lease_runs_out_while_a_transaction_hides_what_was_appended(
    control: Control, planner: MakePlanner
) -> None:
    # lease over   a stranger's transaction begins | an End in time behind it | the transaction ends
    cell = cell_of(control.queue)
    put_markers(control, End(cell=cell, offsets=offsets((7, 8))))
    tracker = planner()
    start = tracker.latest_offset(tracker.initial_offset())
    put_cursor(control, leased(cell, deadline_ms=1, next_marker=1))
    assert tracker.latest_offset(start).settled == {home(cell)}, "without a transaction it runs out"
    stranger = Producer({**control.config, "transactional.id": control.name})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(control.markers, b"?", b"?", partition=home(cell))
    assert stranger.flush(30) == 0
    put_markers(control, End(cell=cell, offsets=offsets((0, 1))))
    hidden = tracker.latest_offset(start)
    assert (hidden.settled, hidden.next) == (frozenset(), start.next)
    stranger.abort_transaction(30)
    # The broker answers before the end of the transaction is in the log.
    wait_until(lambda: tracker.latest_offset(start).settled == {home(cell)})
    assert tracker.latest_offset(start).next[home(cell)] == start.next[home(cell)] + 3


def test_a_tracker_with_nothing_to_do_commits_its_offsets_now_and_then(
    control: Control, planner: MakePlanner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cell_of(control.queue)
    put_markers(control, End(cell=cell, offsets=offsets((7, 8))))
    idle = planner()
    start = idle.latest_offset(idle.initial_offset())
    assert idle.latest_offset(start) is start
    monkeypatch.setattr(marker_planner, "COMMIT_EVERY_MS", 1)
    often = planner()
    wait_until(lambda: often.latest_offset(start).settled == {home(cell)})  # once it knows the time
    end = often.latest_offset(start)
    assert end.next == start.next
    assert [task for task in often.tasks(start, end) if not isinstance(task, AllCursors)]


HOUR_MS = 3_600_000


def delayed(cell: Cell, due_ms: int) -> CursorSnapshot:
    """A cursor with one message that waits."""
    waiting = ((Delayed(due_ms, 1, False), offsets((0, 1))),)
    return leased(cell, deadline_ms=1, leases=(), delayed=waiting)


def hour_old(cell: Cell) -> TrackerOffset:
    """A checkpoint of an hour ago."""
    now_ms = time.time_ns() // 1_000_000 - HOUR_MS
    return TrackerOffset(tracker_id="of-an-hour-ago", next={home(cell): 0}, now_ms={home(cell): now_ms})


def test_a_delay_that_is_over_since_the_tracker_was_stopped_ends_though_nothing_is_appended(
    control: Control, planner: MakePlanner
) -> None:
    # an hour ago: the tracker's last batch   half an hour ago: due   now: a new tracker, an empty partition
    cell = cell_of(control.queue)
    before = hour_old(cell)
    put_cursor(control, delayed(cell, before.now_ms[home(cell)] + HOUR_MS // 2))
    tracker = planner()
    first = tracker.latest_offset(before)
    assert tracker.latest_offset(first).settled == {home(cell)}
    asked = read_all(control.config, control.markers)
    assert [marker_wire.decode(one.key(), one.value()) for one in asked] == [
        EndOffsetObserved(cell=cell, position=0)
    ]
    policy = RedeliveryPolicy(message_ttl_ms=1_000)
    snapshot = delayed(cell, HOUR_MS)
    state = CellTracker.resume(snapshot, cell=cell, policy=policy, markers_partition=home(cell))
    had = state.snapshot()
    state.apply(EndOffsetObserved(cell=cell, position=0), at_ms=5, marker_offset=0)
    assert had is not None
    assert state.snapshot() == replace(had, next_marker=1), "it has no effect"


def test_a_tracker_for_which_nothing_waits_appends_nothing(control: Control, planner: MakePlanner) -> None:
    cell = cell_of(control.queue)
    put_cursor(control, leased(cell, deadline_ms=1, leases=()))
    tracker, start = planner(), hour_old(cell)
    assert tracker.latest_offset(start) is start
    assert read_all(control.config, control.markers) == []


@pytest.mark.parametrize("marker_format", ["protobuf", "kmq"])
def test_a_lease_of_one_message_that_is_over_since_then_ends_too(
    control: Control, planner: MakePlanner, marker_format: str
) -> None:
    before = hour_old(cell_of(control.queue))
    (partition,) = before.next
    rows = [(0, before.now_ms[partition], START, 0, 5, 60_000)]
    table = LeaseTable.resume(None).apply(MessageMarkers.of(rows))
    key = table_wire.table_cell(control.queue, control.markers, partition)
    record = {"key": key.key, "value": table_wire.encode_record(table, key)}
    produce(control.config, control.cursors, [record])
    given = {"redelivery": "reappend", "queueTopic": control.queue, "markerFormat": marker_format}
    tracker = planner(**given)
    first = tracker.latest_offset(before)
    assert tracker.latest_offset(first).settled == {partition}
    fold = MarkerFold(partition, control.markers, options_of(control, **given).reappend)
    for one in read_all(control.config, control.markers):
        fold.add_all([one.offset() or 0], [one.timestamp()[1]], [one.key()], [one.value()])
    (row,) = [row._asdict() for row in fold.rows()]
    markers = message_wire.decode(row["body"])
    assert (row["kind"], markers.kinds.tolist()) == ("messages", [END])
    assert table.apply(markers).expire(-1)[1].next_event_ms == table.next_event_ms, "it has no effect"


def test_a_tracker_that_may_not_write_markers_says_so_and_goes_on(
    guarded_broker: EmbeddedKafka,
    make_control: Callable[[dict[str, str]], Control],
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = make_control(servers | login("admin", "of-admin"))
    as_bob = replace(control, config=servers | login("bob", "of-bob"))
    watch = QueueWatch(options_of(as_bob), ClusterAdmin(control.config), PARTITIONS)
    assert watch.ask_time({0: cell_of(control.queue)}) is False
    watch.close()
    assert "markers_time_unknown" in caplog.text
    assert "Grant the tracker Write" in caplog.text


def test_a_marker_counts_from_when_it_was_read_where_its_leaders_clock_is_another_one(
    control: Control, planner: MakePlanner
) -> None:
    # the first marker is read   the second is appended   and read: its time lies in between
    cell = cell_of(control.queue)
    put_markers(control, End(cell=cell, offsets=offsets((7, 8))))
    tracker = planner()
    first = tracker.latest_offset(tracker.initial_offset())
    first = tracker.latest_offset(first)
    put_markers(control, End(cell=cell, offsets=offsets((8, 9))))
    second = tracker.latest_offset(first)
    (task,) = tracker.tasks(first, second)
    assert isinstance(task, MarkersSlice)
    (at_ms,) = (
        one.timestamp()[1] for one in read_all(control.config, control.markers) if one.offset() == task.start
    )
    earliest, latest = second.read_between[home(cell)]
    assert 0 < earliest <= at_ms <= latest
    assert times_of(control, task) == [at_ms]
    ahead = replace(task, read_between=(earliest - 61_000, latest - 61_000))
    behind = replace(task, read_between=(earliest + 61_000, latest + 61_000))
    assert times_of(control, ahead) == [latest - 61_000]
    assert times_of(control, behind) == [latest + 61_000]


def times_of(control: Control, task: InputPartition) -> list[int]:
    rows = [row for batch in rows_of(control, task) for row in batch.to_pylist()]
    return [row["at_ms"] for row in rows if row["kind"] == "marker"]


def test_cells_of_another_markers_topics_tracker_are_not_this_ones(
    control: Control, planner: MakePlanner
) -> None:
    # a cursors topic for two: theirs has read further than this markers topic goes, and is overdue
    theirs = leased(
        cell_of(control.queue), deadline_ms=1, next_marker=1_000, log=MarkersLog("of-others", "id")
    )
    own = leased(cell_of(control.queue, 1), deadline_ms=1, log=MarkersLog(control.markers, topic_id(control)))
    put_cursor(control, theirs)
    put_cursor(control, own)
    put_markers(control, *(End(cell=one.cell, offsets=offsets((7, 8))) for one in (own, theirs)))
    tracker = planner(messageTtl="20s")
    start = tracker.latest_offset(tracker.initial_offset())
    assert tracker.latest_offset(start).settled == {home(own.cell)}
    rows = [row for batch in rows_of(control, AllCursors(partitions=PARTITIONS)) for row in batch.to_pylist()]
    assert [(row["kind"], cursor_wire.decode(row["body"]).cell) for row in rows] == [("cursor", own.cell)]
    told = [one.key() for one in read_all(control.config, control.markers)]
    assert told.count(theirs.cell.key) == 1, "no marker about them but that of the test"


def test_cursors_that_tell_of_an_earlier_markers_topic_of_this_name_are_refused(
    control: Control, planner: MakePlanner
) -> None:
    put_cursor(control, leased(cell_of(control.queue), deadline_ms=1, log=MarkersLog(control.markers, "was")))
    tracker = planner()
    with pytest.raises(MarkersTopicRecreated, match=r"its id was was and is .* Set new topics"):
        tracker.latest_offset(tracker.initial_offset())


def topic_id(control: Control) -> str:
    return ClusterAdmin(control.config).describe([control.markers])[control.markers].topic_id


def rows_of(control: Control, task: MarkersSlice | AllCursors) -> Iterator[pa.RecordBatch]:
    return MarkerStreamReader(options_of(control)).read(InputPartition(task))


def test_a_transaction_that_stays_open_in_the_markers_topic_is_told_once(
    control: Control, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker_ends, "HIDDEN_S", 0.0)
    ends = MarkerEnds(ClusterAdmin(control.config), control.markers, PARTITIONS)
    stranger = Producer({**control.config, "transactional.id": control.name})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(control.markers, b"?", b"?", partition=3)
    assert stranger.flush(30) == 0
    with caplog.at_level("INFO", marker_ends.__name__):
        for _ in range(3):
            assert ends.look().whole == set(range(PARTITIONS)) - {3}
        stranger.abort_transaction(30)
        wait_until(lambda: 3 in ends.look().whole)
    assert names(caplog.records) == ["markers_hidden", "markers_visible"]


def test_a_bounded_run_ends_after_what_was_there_at_its_start(control: Control, planner: MakePlanner) -> None:
    # three markers | run: two of them, the third, what is due | markers that come meanwhile do not prolong it
    cell = cell_of(control.queue)
    put_markers(control, *(End(cell=cell, offsets=offsets((at, at + 1))) for at in range(3)))
    put_cursor(control, leased(cell, deadline_ms=1, next_marker=0))
    tracker = planner(maxMarkersPerTrigger=2)
    tracker.bound_by_now()
    at = tracker.initial_offset()
    batches = []
    while (end := tracker.latest_offset(at)) is not at:
        batches.append((end.next[home(cell)], end.settled))
        put_markers(control, *(End(cell=cell, offsets=offsets((9, 10))) for _ in range(4)))
        at = end
        assert len(batches) < 9
    assert [reached for reached, _ in batches] == [2, 4, 6]


def test_a_bounded_run_that_resumes_executes_what_has_become_due(
    control: Control, planner: MakePlanner
) -> None:
    # run 1: the lease begins | the deadline passes while no tracker runs | run 2 knows the present time
    cell = cell_of(control.queue)
    put_markers(control, End(cell=cell, offsets=offsets((7, 8))))
    first = planner()
    stopped = first.latest_offset(first.initial_offset())
    now_ms = int(time.time() * 1000)  # the broker is on this machine
    first.close()
    put_cursor(control, leased(cell, deadline_ms=now_ms + 500, next_marker=1))
    time.sleep(0.7)
    second = planner()
    second.bound_by_now()
    at, settled = stopped, []
    while (end := second.latest_offset(at)) is not at:
        settled.append(home(cell) in end.settled and end.now_ms[home(cell)] > now_ms + 500)
        at = end
        assert len(settled) < 9
    assert any(settled), "the lease runs out in this run"
