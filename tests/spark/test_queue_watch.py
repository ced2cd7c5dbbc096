"""What the tracker's driver writes to the markers topic, and when it runs a batch for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.marker import CloseBreaker, EndOffsetObserved, OpenBreaker
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.ttl import MessageAges, ObservedEnd
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.tracker.planner import TrackerPlanner
from spark_cursor_source.tracker.tracked_cells import TrackedCells
from spark_cursor_source.tracker.watch import QueueWatch
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import Control, control_on, produce, read_all

pytestmark = pytest.mark.broker


class Watched:
    """A queue of two partitions and a watch over it."""

    def __init__(self, control: Control, **given: Any) -> None:
        self.control = control
        self.topics = ClusterAdmin(control.config)
        self.topics.create({control.queue: (2, {})})
        self.options = TrackerOptions.parse(control.options(checkpointLocation="cp", **given))
        self.partitions = self.topics.describe([control.markers])[control.markers].partitions
        self.watch = QueueWatch(self.options, self.topics, self.partitions)

    def cell(self, partition: int = 0, subscription: str = "s") -> Cell:
        return Cell(subscription=subscription, topic=self.control.queue, partition=partition)

    def cursor(self, cell: Cell | None = None, read_position: int = 0, **more: Any) -> CursorSnapshot:
        return CursorSnapshot(
            **{
                "cell": cell or self.cell(),
                "read_position": read_position,
                "next_marker": 0,
                "owner": "run",
                "markers_partition": (cell or self.cell()).control_partition(self.partitions),
                **more,
            }
        )

    def produce(self, count: int, partition: int = 0) -> None:
        produce(self.control.config, self.control.queue, [{"value": b"v", "partition": partition}] * count)

    def told(self, *cursors: CursorSnapshot, now_ms: dict[int, int] | None = None) -> list[Any]:
        """The markers that a look at these cursors makes."""
        before = len(self.markers())
        known = {cursor.cell: cursor for cursor in cursors}
        cells = TrackedCells(known.get)
        cells.update(known)
        self.watch.note(known)
        self.watch.look(cells, now_ms or {})
        return self.markers()[before:]

    def markers(self) -> list[Any]:
        found = read_all(self.control.config, self.control.markers)
        found.sort(key=lambda one: one.timestamp()[1])
        return [marker_wire.decode(one.key(), one.value()) for one in found]


@pytest.fixture
def watched(broker: EmbeddedKafka) -> Iterator[Callable[..., Watched]]:
    control = control_on(broker).create()
    made: list[Watched] = []

    def make(**given: Any) -> Watched:
        made.append(Watched(control, **given))
        return made[-1]

    yield make
    for one in made:
        one.watch.close()


def test_the_end_of_a_log_that_has_grown_is_told_once_and_not_too_often(
    watched: Callable[..., Watched],
) -> None:
    queue = watched(messageTtl="1h")
    assert queue.told(queue.cursor()) == [], "an empty log"
    queue.produce(3)
    assert queue.told(queue.cursor()) == [], "it was looked at less than three minutes ago"
    # A watch that was just made has looked at nothing yet.
    assert watched(messageTtl="1h").told(queue.cursor()) == [EndOffsetObserved(cell=queue.cell(), position=3)]


def test_the_end_of_a_log_that_has_not_grown_is_told_when_a_tracker_begins_for_the_time_that_it_brings(
    watched: Callable[..., Watched],
) -> None:
    queue = watched(messageTtl="20s")
    queue.produce(3)
    known = queue.cursor(ages=MessageAges(ttl_ms=20_000, ends=(ObservedEnd(1, 3),)))
    assert queue.told(known) == [EndOffsetObserved(cell=queue.cell(), position=3)]
    time.sleep(1.05)
    assert queue.told(known) == []


def test_what_is_gone_needs_no_age(watched: Callable[..., Watched]) -> None:
    queue = watched(messageTtl="20s")
    queue.produce(3)
    queue.produce(3, partition=1)
    held = ((Lease(1, 1, "run"), OffsetSet.of((1, 2))),)
    cursors = (queue.cursor(read_position=3), queue.cursor(queue.cell(1), 3, leases=held))
    assert queue.told(*cursors) == [EndOffsetObserved(cell=queue.cell(1), position=3)]


def test_only_subscriptions_with_a_ttl_and_queues_that_are_there_are_looked_at(
    watched: Callable[..., Watched],
) -> None:
    queue = watched(subscriptions={"Short": {"messageTtl": "20s"}})
    queue.produce(3)
    short = queue.cell(subscription="Short")
    gone = Cell(subscription="Short", topic="gone-topic", partition=0)
    beyond = queue.cell(7, "Short")
    of_v1 = queue.cursor(queue.cell(1, "Short"), owner=None)
    queue.produce(1, partition=1)
    cursors = [queue.cursor(cell) for cell in (queue.cell(), short, gone, beyond)]
    assert queue.told(*cursors, of_v1) == [EndOffsetObserved(cell=short, position=3)]


def test_a_ttl_that_was_changed_reaches_cells_whose_logs_do_not_grow(
    watched: Callable[..., Watched],
) -> None:
    queue = watched(messageTtl="20s")
    queue.produce(3)
    of_old = queue.cursor(ages=MessageAges(ttl_ms=3_600_000, ends=(ObservedEnd(1, 3),)))
    assert queue.told(of_old) == [EndOffsetObserved(cell=queue.cell(), position=3)]


def test_messages_of_an_open_transaction_are_no_end(watched: Callable[..., Watched]) -> None:
    queue = watched(messageTtl="20s")
    producer = Producer({**queue.control.config, "transactional.id": queue.control.queue})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(queue.control.queue, b"v", partition=0)
    assert producer.flush(30) == 0
    assert queue.told(queue.cursor()) == []
    producer.abort_transaction(30)


def test_the_partitions_of_a_subscription_hold_together(watched: Callable[..., Watched]) -> None:
    queue = watched(breaker="10/1m")
    policy = queue.options.policy.breaker
    opened = queue.cursor(breaker=Breaker().opened("5@x", 5, policy))
    others = queue.cursor(queue.cell(1)), queue.cursor(queue.cell(subscription="other"))
    assert queue.told(opened, *others) == [OpenBreaker(cell=queue.cell(1), trip="5@x")]
    unlimited = watched(breaker="none")
    assert unlimited.told(opened, *others) == [CloseBreaker(cell=queue.cell())]


def test_an_idle_tracker_with_a_ttl_runs_a_batch_only_when_a_log_grows_or_messages_expire(
    watched: Callable[..., Watched],
) -> None:
    # 0 idle   3 messages: a batch for the end of the log   idle   1 s: a batch in which they expire
    queue = watched(messageTtl="1s")
    cell, planner = queue.cell(), TrackerPlanner(queue.options)
    put(queue, queue.cursor())
    start = planner.latest_offset(planner.initial_offset())
    assert planner.latest_offset(start) is start, "nothing has happened"
    queue.produce(3)
    told = until_moved(planner, start)
    assert queue.markers() == [EndOffsetObserved(cell=cell, position=3)]
    (at_ms,) = (one.timestamp()[1] for one in read_all(queue.control.config, queue.control.markers))
    put(queue, queue.cursor(ages=MessageAges(ttl_ms=1_000, ends=(ObservedEnd(at_ms, 3),)), next_marker=1))
    due = until_moved(planner, told)
    partition = cell.control_partition(queue.partitions)
    assert (dict(due.next), due.settled) == (dict(told.next), {partition})
    assert due.now_ms[partition] > at_ms + 1_000
    put(queue, queue.cursor(read_position=3, ages=MessageAges(ttl_ms=1_000, expired_below=3), next_marker=1))
    idle_until = time.monotonic() + 2.2
    while time.monotonic() < idle_until:
        assert planner.latest_offset(due) is due, "what is gone is not looked at again"
        time.sleep(0.2)
    planner.close()


def put(queue: Watched, cursor: CursorSnapshot) -> None:
    partition = cursor.cell.control_partition(queue.partitions)
    record = {"key": cursor.cell.key, "value": cursor_wire.encode(cursor), "partition": partition}
    produce(queue.control.config, queue.control.cursors, [record])


def until_moved(planner: TrackerPlanner, start: Any) -> Any:
    deadline = time.monotonic() + 60
    while (end := planner.latest_offset(start)) is start:
        assert time.monotonic() < deadline, "no batch"
        time.sleep(0.05)
    return end
