"""A planner whose query the group gives up between Spark's two questions: what is logged, and not planned."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from spark_cursor_source.admin.subscriptions import Subscriptions, at_offsets
from spark_cursor_source.consumer.batch_planner import BatchPlanner, PlannedBatch
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.interop.planner import PlannerV1, planner_for
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.markers import MarkerSender
from tests.conftest import READY_S
from tests.kafka.control_plane import Control, control_on, produce
from tests.kafka.tracker_thread import running_tracker
from tests.spark.harness import logged, wait_until

pytestmark = pytest.mark.broker

SESSION_S = 3.0
MakePlanner = Callable[..., BatchPlanner]


@pytest.fixture(scope="module")
def mortal() -> Iterator[EmbeddedKafka]:
    """A broker that stands still for a while."""
    with EmbeddedKafka(properties={"auto.create.topics.enable": False}, ready_timeout_s=READY_S) as broker:
        yield broker


@pytest.fixture
def control(mortal: EmbeddedKafka, tmp_path: Path) -> Iterator[Control]:
    """A queue of ten messages with keys, and its tracker."""
    made = control_on(mortal).create()
    ClusterAdmin(made.config).create({made.queue: (1, {})})
    produce(made.config, made.queue, [{"key": b"q", "value": b"%d" % n} for n in range(10)])
    with running_tracker(made, tmp_path / "tracker"):
        yield made


@pytest.fixture(params=["v1", "v2"])
def make_planner(control: Control, request: pytest.FixtureRequest) -> Iterator[MakePlanner]:
    with ExitStack() as stack:

        def make(**more: str) -> BatchPlanner:
            is_v1 = request.param == "v1"
            given = {
                "kafka.bootstrap.servers": control.config["bootstrap.servers"],
                "subscribe": control.queue,
                "subscription": "s",
                "markerFormat": request.param,
                "markersTopic": f"{control.markers}-v1" if is_v1 else control.markers,
                "sessionTimeout": f"{SESSION_S:.0f}s",
            }
            if not is_v1:
                given |= {"redeliveriesTopic": control.redeliveries, "cursorsTopic": control.cursors}
            options = SourceOptions.parse(given | more)
            planner = planner_for(options)
            stack.callback(planner.close)
            return planner

        yield make


def test_what_was_logged_while_the_group_had_given_it_up_is_planned_when_it_has_joined_again(
    make_planner: MakePlanner, mortal: EmbeddedKafka
) -> None:
    # log(0-3) S -- log(3-6), the broker stands still for longer than a session, nothing -- log(3-10) S
    planner = make_planner()
    start = planner.initial_offset()
    first = planner.latest_offset(start, max_offsets=3)
    delivered = offsets(planner.plan(start, first))
    second = planner.latest_offset(first, max_offsets=3)
    stand_still(mortal)
    delivered |= offsets(planner.plan(first, second))
    third = next_batch(planner, logged(second))
    delivered |= offsets(planner.plan(logged(second), logged(third)))
    assert delivered == OffsetSet.of((0, 10))


def test_a_batch_that_begins_below_the_one_before_is_replayed_from_there(make_planner: MakePlanner) -> None:
    # log(0-3) S -- log(3-6), nothing -- crash -- log(3-10) S -- crash -- the same again
    planner = make_planner()
    start = planner.initial_offset()
    first = planner.latest_offset(start, max_offsets=3)
    planner.plan(start, first)
    second = planner.latest_offset(first, max_offsets=3)
    planner.close()
    planner = make_planner()
    third = next_batch(planner, logged(second))
    assert offsets(planner.plan(logged(second), logged(third))) == OffsetSet.of((3, 10))
    planner.close()
    again = offsets(make_planner().plan(logged(second), logged(third)))
    # Their tracker brings back what has a Start.
    assert again == (EMPTY if isinstance(planner, PlannerV1) else OffsetSet.of((3, 10)))


@pytest.mark.parametrize("make_planner", ["v2"], indirect=True)
def test_no_later_run_acks_what_was_started_and_never_went_out(
    make_planner: MakePlanner, monkeypatch: pytest.MonkeyPatch, control: Control
) -> None:
    # log(0-10) S, this process stands still, Release -- the batch completes, empty -- crash -- S of 0-10
    planner = make_planner(ackMode="batch")
    start = planner.initial_offset()
    first = planner.latest_offset(start, max_offsets=None)
    flush = MarkerSender.flush

    def flush_and_stand_still(sender: MarkerSender, timeout_s: float) -> int | None:
        monkeypatch.undo()
        at_ms = flush(sender, timeout_s)
        stand_still_ourselves()
        return at_ms

    monkeypatch.setattr(MarkerSender, "flush", flush_and_stand_still)
    assert offsets(planner.plan(start, first)) == EMPTY
    planner.close()
    planner = make_planner(ackMode="batch")
    planner.latest_offset(logged(first), max_offsets=None)
    second = next_batch(planner, logged(first))
    assert offsets(planner.plan(logged(first), logged(second))) == OffsetSet.of((0, 10))
    planner.latest_offset(logged(second), max_offsets=None)
    until_acked(control, 10)


@pytest.mark.parametrize("make_planner", ["v2"], indirect=True)
def test_a_batch_that_somebody_sought_back_to_is_replayed_and_not_acked_for_the_dead(
    make_planner: MakePlanner, control: Control
) -> None:
    # log(0-10) S E -- Seek(4) -- log(4-10) S -- crash -- S of 4-10 again, E
    # The Seek comes before the planner has heard the answer to its Hello, too.
    planner = make_planner(ackMode="batch", trackerTimeout="8s")
    start = planner.initial_offset()
    first = planner.latest_offset(start, max_offsets=None)
    planner.plan(start, first)
    planner.latest_offset(first, max_offsets=None)
    until_acked(control, 10)
    names = control.topics
    with Subscriptions(control.config, **names, **control.groups) as subscriptions:
        subscriptions.seek("s", control.queue, at_offsets(control.queue, {0: 4}))
    second = next_batch(planner, first)
    assert offsets(planner.plan(first, second)) == OffsetSet.of((4, 10))
    planner.close()
    planner = make_planner(ackMode="batch")
    assert offsets(planner.plan(logged(first), logged(second))) == OffsetSet.of((4, 10))
    planner.latest_offset(logged(second), max_offsets=None)
    until_acked(control, 16)


def until_acked(control: Control, count: int) -> None:
    """Wait until so many messages are acked, and none is outstanding."""
    cell = Cell(subscription="s", topic=control.queue, partition=0)
    with closing(CursorTable(control.config, control.cursors)) as cursors:

        def done() -> bool:
            cursors.refresh()
            found = cursors.get(cell)
            return found is not None and found.totals.acked == count and not found.outstanding

        wait_until(done, f"{count} are acked")


def stand_still(broker: EmbeddedKafka) -> None:
    """For longer than a session."""
    broker.pause()
    time.sleep(SESSION_S + 2.0)
    broker.resume()


def stand_still_ourselves() -> None:
    """This whole process, tracker and all, as a machine under a suspended hypervisor would."""
    ours = os.getpid()
    with subprocess.Popen(["sh", "-c", f"sleep {SESSION_S + 2.0}; kill -CONT {ours}"]):
        os.kill(ours, signal.SIGSTOP)


def next_batch(planner: BatchPlanner, start: SourceOffset) -> SourceOffset:
    """The end of the next batch that holds anything."""

    def asked() -> SourceOffset | None:
        end = planner.latest_offset(start, max_offsets=None)
        return None if end is start else end

    found: SourceOffset = wait_until(asked, "there is a batch")
    return found


def offsets(batch: PlannedBatch) -> OffsetSet:
    """All that a batch delivers of the queue's one partition."""
    return OffsetSet.union(piece.offsets for task in batch.tasks for piece in task)
