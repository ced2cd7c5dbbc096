"""The tracker without Spark: replicas share the work, and the two kinds of trackers never work together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_cursor_source.consumer.tracker_watch import unread_markers
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import End, Hello, Marker, Seek, Start
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import MissingOption, TrackerFenced, TrackerOwnedByAnother
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.admin_requests import AdminRequests
from spark_cursor_source.metrics.table import TRACKER_PARTITIONS
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.tracker_progress import is_replica, read_progress
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire import redelivery as redelivery_wire
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    cell_of,
    control_on,
    offsets,
    produce,
    read_all,
)
from tests.kafka.tracker_thread import options_of
from tests.late_signal import late_signal
from tests.tracker.spark_twin import SparkTwin
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.broker

SESSION_S = 2.0
ROOT = Path(__file__).resolve().parents[2]


def put(control: Control, *markers: Marker) -> None:
    records = [
        {
            "key": one.cell.key,
            "value": marker_wire.encode(one),
            "partition": one.cell.control_partition(PARTITIONS),
        }
        for one in markers
    ]
    produce(control.config, control.markers, records)


def hello(cell: Cell, run_id: str = "run") -> Hello:
    return Hello(cell=cell, run_id=run_id, position=0)


def leased(cell: Cell, *, lease_ms: int, count: int = 1) -> Start:
    return Start(cell=cell, offsets=offsets((0, 1)), lease_ms=lease_ms, delivery_count=count, run_id="run")


def cursors(control: Control) -> dict[Cell, CursorSnapshot]:
    tail = CursorTable(control.config, control.cursors)
    try:
        tail.refresh()
        return tail.all()
    finally:
        tail.close()


def answers(control: Control) -> set[bytes]:
    """Keys of the cursors that a tracker has written."""
    return {record.key() for record in read_all(control.config, control.cursors) if record.value()}


def announced(control: Control) -> list[Cell]:
    records = read_all(control.config, control.redeliveries)
    return [redelivery_wire.decode(record.value()).cell for record in records]


def answered(control: Control, cells: list[Cell], run_id: str = "run") -> Callable[[], bool]:
    def done() -> bool:
        found = cursors(control)
        return all(cell in found and found[cell].owner == run_id for cell in cells)

    return done


def in_each_partition(control: Control) -> list[Cell]:
    """One cell for each markers partition."""
    found: dict[int, Cell] = {}
    for number in range(1_000):
        cell = cell_of(control.queue, number)
        found.setdefault(cell.control_partition(PARTITIONS), cell)
    assert len(found) == PARTITIONS
    return list(found.values())


@contextmanager
def running(control: Control, tmp_path: Path, **options: object) -> Iterator[Tracker]:
    with Tracker(options_of(control, tmp_path, **options)) as tracker:
        yield tracker


def test_a_lease_that_runs_out_is_announced_once_and_an_ack_is_not(control: Control, tmp_path: Path) -> None:
    late, acked = cell_of(control.queue, 0), cell_of(control.queue, 1)
    with running(control, tmp_path):
        put(control, *map(hello, (late, acked)))
        acks = End(cell=acked, offsets=offsets((0, 1)))
        put(control, leased(acked, lease_ms=300), acks, leased(late, lease_ms=300))
        wait_until(lambda: announced(control) == [late])
        # The partitions of a transaction become visible one by one.
        wait_until(lambda: cursors(control).keys() == {late, acked})
    found = cursors(control)
    assert [found[one].outstanding.ranges for one in (late, acked)] == [((0, 1),), ()]
    assert is_replica(read_progress(ClusterAdmin(control.config), control.markers).query_id)


@pytest.mark.parametrize("kind", [Tracker, SparkTwin])
def test_markers_that_were_written_in_a_transaction_are_all_read(
    control: Control, tmp_path: Path, kind: type[Tracker | SparkTwin]
) -> None:
    # marker | commit | marker, aborted | abort: the records of the transactions' ends are no unread markers
    cell, aborted = cell_of(control.queue, 0), cell_of(control.queue, 1)
    producer = Producer({**control.config, "transactional.id": control.name})
    producer.init_transactions(30)
    topics = ClusterAdmin(control.config)
    with kind(options_of(control, tmp_path)):
        for one, end in ((cell, producer.commit_transaction), (aborted, producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(
                control.markers,
                key=one.key,
                value=marker_wire.encode(hello(one)),
                partition=one.control_partition(PARTITIONS),
            )
            producer.flush(30)
            end(30)
            wait_until(lambda: cell.key in answers(control))
            wait_until(lambda: unread_markers(topics, control.markers)[0] == 0)
    assert aborted not in cursors(control)


def test_a_tracker_continues_from_the_cursors_of_the_one_before(control: Control, tmp_path: Path) -> None:
    cell = cell_of(control.queue)
    with running(control, tmp_path):
        put(control, hello(cell))
        wait_until(answered(control, [cell]))
    put(control, leased(cell, lease_ms=300))
    with running(control, tmp_path):
        wait_until(lambda: announced(control) == [cell])


def test_what_waits_above_a_lowered_limit_is_a_dead_letter_although_no_lease_runs_out(
    control: Control, tmp_path: Path
) -> None:
    # S(0, 3rd)--| available, of 5     limit lowered to 3: dead letter     S(1)-----
    topics, cell = ClusterAdmin(control.config), cell_of(control.queue)
    topics.create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"poor"}, {"value": b"rich"}])
    with running(control, tmp_path, maxDeliveries=5):
        put(control, hello(cell), leased(cell, lease_ms=300, count=3))
        wait_until(lambda: announced(control) == [cell])
    with running(control, tmp_path, maxDeliveries=3):
        start = Start(cell=cell, offsets=offsets((1, 2)), lease_ms=600_000, delivery_count=1, run_id="next")
        put(control, hello(cell, "next"), start)
        wait_until(answered(control, [cell], "next"))
        dead = f"{control.queue}-{cell.subscription}-DLQ"
        wait_until(lambda: cursors(control)[cell].totals.dead_lettered == 1)
        assert [one.value() for one in read_all(control.config, dead)] == [b"poor"]
        # The Start may be in a later batch of the tracker.
        wait_until(lambda: cursors(control)[cell].outstanding == offsets((1, 2)))


@pytest.mark.parametrize("kind", [Tracker, SparkTwin])
def test_a_cursor_that_cannot_be_read_holds_its_cell_and_no_other(
    control: Control, tmp_path: Path, kind: type[Tracker | SparkTwin]
) -> None:
    torn, other = cell_of(control.queue, 0), cell_of(control.queue, 1)
    # An empty value says that the cursor is in parts, and there are none.
    place = {"key": torn.key, "value": b"", "partition": torn.control_partition(PARTITIONS)}
    produce(control.config, control.cursors, [place])
    with kind(options_of(control, tmp_path)):
        put(control, hello(torn), hello(other))
        wait_until(lambda: other.key in answers(control))
        assert torn.key not in answers(control)
        put(control, Seek(cell=torn, position=3))
        wait_until(lambda: torn.key in answers(control))
    assert cursors(control)[torn].read_position == 3


@pytest.mark.parametrize("options", [{}, {"messageTtl": "1s"}], ids=["as it is", "with looks at queues"])
def test_cursors_that_another_program_overwrites_end_no_tracker_at_the_next_assignment(
    control: Control, tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, object]
) -> None:
    cells = in_each_partition(control)
    torn = [{"key": c.key, "value": b"", "partition": c.control_partition(PARTITIONS)} for c in cells]
    group, name = ClusterAdmin(control.config), f"cursorq-tracker-{control.markers}"
    with running(control, tmp_path):
        put(control, *map(hello, cells))
        wait_until(answered(control, cells))
    with running(control, tmp_path, **options) as first:
        wait_until(lambda: partitions_of(first), "it has read the cursors", between=first.check)
        produce(control.config, control.cursors, torn)
        wait_until(lambda: caplog.text.count("event=cursor_torn") == len(cells), between=first.check)
        with running(control, tmp_path, **options) as second:

            def both_go_on() -> None:
                first.check()
                second.check()

            def shared() -> bool:
                return [len(one.partitions) for one in group.group_members(name)] == [4, 4]

            wait_until(shared, between=both_go_on)
            put(control, *(hello(cell, "second") for cell in cells))
            put(control, *(Seek(cell=cell, position=3) for cell in cells))
            wait_until(lambda: len(sought(control)) == len(cells), between=both_go_on)
            assert sought(control) == dict.fromkeys(cells, 3)


def sought(control: Control) -> dict[Cell, int]:
    """The read positions of the cursors that can be read."""
    tail = CursorTable(control.config, control.cursors)
    try:
        tail.refresh()
        return {cell: one.read_position for cell, one in tail.changes().items() if one is not None}
    finally:
        tail.close()


def test_trackers_share_the_partitions_and_hand_them_over(control: Control, tmp_path: Path) -> None:
    cells = in_each_partition(control)
    with running(control, tmp_path) as first:
        put(control, *map(hello, cells))
        wait_until(answered(control, cells))
        with running(control, tmp_path):
            group = ClusterAdmin(control.config)
            name = f"cursorq-tracker-{control.markers}"
            wait_until(lambda: [len(one.partitions) for one in group.group_members(name)] == [4, 4])
            put(control, *(hello(cell, "second") for cell in cells))
            wait_until(answered(control, cells, "second"))
            first.close()
            put(control, *(leased(cell, lease_ms=300) for cell in cells))
            wait_until(lambda: sorted(announced(control)) == sorted(cells))
            # Everything that is available is announced to a new run again. So this Hello comes last.
            put(control, *(hello(cell, "third") for cell in cells))
            wait_until(answered(control, cells, "third"))


def test_the_partitions_of_a_killed_tracker_go_to_the_others(control: Control, tmp_path: Path) -> None:
    cells = in_each_partition(control)
    with ExitStack() as stack:
        processes = [stack.enter_context(process(control, tmp_path)) for _ in range(2)]
        group, name = ClusterAdmin(control.config), f"cursorq-tracker-{control.markers}"
        wait_until(lambda: [len(one.partitions) for one in group.group_members(name)] == [4, 4])
        put(control, *map(hello, cells))
        wait_until(answered(control, cells))
        put(control, *(leased(cell, lease_ms=1_000) for cell in cells))
        os.kill(processes[0].pid, signal.SIGKILL)
        wait_until(lambda: sorted(announced(control)) == sorted(cells))
        processes[1].send_signal(signal.SIGTERM)
        assert processes[1].wait(PATIENCE_S) == 0


def test_a_tracker_that_was_stopped_beyond_its_session_is_fenced_and_works_again(
    control: Control, tmp_path: Path
) -> None:
    # leases, stopped -- session over: the other one announces -- goes on, sees the leases as due, is fenced
    cells = in_each_partition(control)
    group, name = ClusterAdmin(control.config), f"cursorq-tracker-{control.markers}"

    def share() -> list[int]:
        return sorted(len(one.partitions) for one in group.group_members(name))

    with process(control, tmp_path) as stopped, running(control, tmp_path, sessionTimeout="2s") as other:
        wait_until(lambda: share() == [4, 4])
        put(control, *map(hello, cells))
        wait_until(answered(control, cells))
        leases = [leased(cell, lease_ms=3_000) for cell in cells]
        put(control, *leases, *(hello(cell, "seen") for cell in cells))
        wait_until(answered(control, cells, "seen"))
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: sorted(announced(control)) == sorted(cells))
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        wait_until(lambda: share() == [4, 4])
        other.check()
        put(control, *(leased(cell, lease_ms=300, count=2) for cell in cells))
        wait_until(lambda: len(announced(control)) >= 2 * len(cells))
        assert sorted(announced(control)) == sorted(2 * cells)
        stopped.send_signal(signal.SIGTERM)
        assert stopped.wait(PATIENCE_S) == 0


def test_a_tracker_that_stood_still_waits_again_before_it_frees_rescued_copies(
    control: Control, tmp_path: Path
) -> None:
    group, name = ClusterAdmin(control.config), f"cursorq-tracker-{control.markers}"
    rescue = {"rescueTopic": f"rescue-{control.name}", "rescueBefore": "1s", "sessionTimeout": "4s"}
    with process(control, tmp_path, **rescue) as tracker:
        wait_until(lambda: len(group.group_members(name)) == 1)
        os.kill(tracker.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: not group.group_members(name))
        finally:
            os.kill(tracker.pid, signal.SIGCONT)
        wait_until(lambda: "event=rescue_stood_still seconds=" in (tmp_path / "log").read_text())
        wait_until(lambda: len(group.group_members(name)) == 1)
        tracker.send_signal(signal.SIGTERM)
        assert tracker.wait(PATIENCE_S) == 0


def test_a_tracker_that_stood_still_amid_a_check_waits_again_before_it_frees_rescued_copies(
    control: Control, tmp_path: Path
) -> None:
    rescue = {"rescueTopic": f"rescue-{control.name}", "rescueBefore": "1s", "sessionTimeout": "6s"}
    put(control, hello(cell_of(control.queue)))
    with process(control, tmp_path, "tests.tracker.stopped_check", **rescue) as tracker:
        stat = Path(f"/proc/{tracker.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        time.sleep(2.5)
        os.kill(tracker.pid, signal.SIGCONT)
        wait_until(lambda: "event=rescue_stood_still seconds=" in (tmp_path / "log").read_text())
        tracker.send_signal(signal.SIGTERM)
        assert tracker.wait(PATIENCE_S) == 0


@contextmanager
def process(
    control: Control, tmp_path: Path, module: str = "", **options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """``cursorq tracker`` on the control topics, or a module. What it logs is in the file ``log``."""
    options = {"sessionTimeout": f"{int(SESSION_S)}s"} | options
    conf = tmp_path / "tracker.toml"
    given = "\n".join(f'{option} = "{value}"' for option, value in options.items())
    conf.write_text(
        f"""
{given}
markersTopic = "{control.markers}"
redeliveriesTopic = "{control.redeliveries}"
cursorsTopic = "{control.cursors}"
[kafka]
"bootstrap.servers" = "{control.config["bootstrap.servers"]}"
"""
    )
    program = [module] if module else ["spark_cursor_source.cli", "tracker"]
    command = [sys.executable, "-m", *program, str(conf)]
    with (tmp_path / "log").open("ab") as log, subprocess.Popen(command, cwd=ROOT, stderr=log) as child:
        try:
            yield child
        finally:
            child.kill()


def test_a_wait_for_the_end_is_interrupted_by_a_signal_that_comes_just_before_it(
    control: Control, tmp_path: Path
) -> None:
    with running(control, tmp_path) as tracker:
        with late_signal(), pytest.raises(KeyboardInterrupt):
            tracker.wait()
        assert not tracker.wait(0)
    assert tracker.wait()


def test_a_close_without_brokers_ends_in_seconds_and_the_next_tracker_goes_on(
    mortal: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks, ask = threading.Event(), AdminRequests.ask

    def asked(self: AdminRequests, *what: Any, **how: Any) -> Any:
        if threading.current_thread() is tracker._thread:
            asks.set()
        return ask(self, *what, **how)

    control = control_on(mortal).create()
    cell = cell_of(control.queue)
    tracker = Tracker(options_of(control, tmp_path)).start()
    put(control, hello(cell))
    wait_until(answered(control, [cell]))
    monkeypatch.setattr(AdminRequests, "ask", asked)
    mortal.kill()
    assert asks.wait(PATIENCE_S)
    began = time.monotonic()
    tracker.close()
    assert time.monotonic() - began < 30
    tracker.close()
    mortal.start()
    with running(control, tmp_path):
        put(control, hello(cell, "next"))
        wait_until(answered(control, [cell], "next"))
    wait_until(lambda: not tracker._thread.is_alive())


# -- two kinds ---------------------------------------------------------------------------------------------


def test_a_tracker_leaves_the_topics_of_a_spark_query_alone_unless_told(
    control: Control, tmp_path: Path
) -> None:
    cell = cell_of(control.queue)
    options = options_of(control, tmp_path / "spark")
    with SparkTwin(options) as spark:
        put(control, hello(cell))
        wait_until(answered(control, [cell]))
        with (
            pytest.raises(TrackerOwnedByAnother, match="--take-over") as refused_as,
            running(control, tmp_path) as refused,
        ):
            refused.wait(PATIENCE_S)
        assert spark.failure is None
        put(control, leased(cell, lease_ms=300))
        with running(control, tmp_path, takeOver=True):
            wait_until(lambda: announced(control) == [cell])
            put(control, hello(cell, "next"))
            wait_until(answered(control, [cell], "next"))
    with SparkTwin(options) as again:
        wait_until(lambda: again.failure is not None)
    assert isinstance(again.failure, TrackerOwnedByAnother)
    assert "is a Spark query" in str(refused_as.value)
    assert "runs without Spark" in str(again.failure)


def partitions_of(tracker: Tracker) -> float:
    """The number of partitions that the tracker works on."""
    return next(one.value for one in tracker.metrics() if one.metric == TRACKER_PARTITIONS)


def test_a_spark_query_that_takes_over_ends_all_trackers(control: Control, tmp_path: Path) -> None:
    cells = in_each_partition(control)
    with ExitStack() as stack:
        trackers = [Tracker(options_of(control, tmp_path)).start() for _ in range(2)]
        # One that had not begun to work would be refused, and not fenced.
        wait_until(lambda: all(partitions_of(one) for one in trackers))
        put(control, *map(hello, cells))
        wait_until(answered(control, cells))
        with SparkTwin(options_of(control, tmp_path / "refused")) as refused:
            wait_until(lambda: refused.failure is not None)
        assert isinstance(refused.failure, TrackerOwnedByAnother)
        assert "runs without Spark" in str(refused.failure)
        put(control, *(leased(cell, lease_ms=300) for cell in cells))
        spark = SparkTwin(options_of(control, tmp_path / "spark", takeOver=True))
        stack.enter_context(spark)
        wait_until(lambda: sorted(announced(control)) == sorted(cells))
        topics = ClusterAdmin(control.config)
        wait_until(lambda: not any(map(is_replica, read_progress(topics, control.markers).owners.values())))
        # A tracker without work notices it with the next marker.
        put(control, *(hello(cell, "next") for cell in cells))
        wait_until(answered(control, cells, "next"))
        for one in trackers:
            with pytest.raises(TrackerFenced):
                one.wait(PATIENCE_S)
        assert spark.failure is None


def test_a_spark_query_needs_a_checkpoint_and_a_tracker_does_not(control: Control, tmp_path: Path) -> None:
    options: dict[str, Any] = options_of(control, tmp_path)
    del options["checkpointLocation"]
    Tracker(options)
    with pytest.raises(MissingOption, match="checkpointLocation"):
        SparkTwin(options)
