"""SIGKILL of the tracker, its absence, and the loss of its checkpoint."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.e2e.harness import App, Field, wait_until
from tests.e2e.processes import Part

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900)]

MakeQueue = Callable[..., Field]


def test_a_tracker_killed_at_any_moment_goes_on_where_it_was(make_queue: MakeQueue) -> None:
    # First it dies between its transaction and the end of its batch, which Spark then repeats. After that:
    # acks, releases, rejects and leases that run out, all the time; the tracker dies, whole or in part.
    moments = random.Random(20261121)
    queue = make_queue(partitions=2, own_tracker=True)
    tracker = queue.tracker(die_at=("transaction", 1))
    consumer = queue.consumer(per_row=True, leaseTimeout="8s", maxOffsetsPerTrigger=40)
    _die_inside_a_batch(queue, tracker, consumer, [("transaction", 1)])
    with queue.producing(["plain"] * 5 + ["flaky", "leave", "reject"], every_s=1.0):
        for part in (None, Part.WORKER):
            told = len(queue.cursors())
            tracker.supervise_until(lambda told=told: len(queue.cursors()) > told + 2, "the tracker works")
            time.sleep(moments.uniform(0, 1.5))
            if part is None:
                tracker.restart()
            else:
                tracker.process.kill(part)
    tracker.supervise_until(queue.all_settled, "all is acked, or a dead letter")
    rejected = [one.id for one in queue.dead_letters()]
    assert all(one.value.startswith("reject") for one in queue.dead_letters())
    queue.verdict().check_settled(dead=rejected)
    assert not consumer.events("failed")


def test_a_tracker_that_dies_after_its_copies_repeats_the_batch_and_takes_nothing_back(
    make_plain_queue: MakeQueue,
) -> None:
    # A batch is copied to the dead letters, and not carried out. No Spark is needed: it dies in two batches.
    queue = make_plain_queue()
    tracker = queue.tracker(die_at=("copies", 0))
    consumer = queue.consumer(per_row=True, leaseTimeout="8s")
    _die_inside_a_batch(queue, tracker, consumer, [("copies", 0), ("copies", 1)])
    assert not consumer.events("failed")


def _die_inside_a_batch(queue: Field, tracker: App, consumer: App, deaths: Sequence[tuple[str, int]]) -> None:
    """Wait for these deaths of the tracker, and restart it each time; what came of it is right each time."""
    for following in [*deaths[1:], None]:
        queue.produce(["plain", "reject", "flaky", "leave"])
        tracker.until(lambda: not tracker.process.alive, "the tracker dies")
        tracker.restart(die_at=following and {"step": following[0], "batch": following[1]})
    queue.produce(["plain", "reject", "flaky", "leave"])
    consumer.until(queue.all_settled, "all is acked, or a dead letter")
    firsts = range(0, 4 * len(deaths) + 4, 4)
    verdict = queue.verdict().check_settled(dead=[(0, first + 1) for first in firsts])
    assert sorted(verdict.duplicates) == [(0, first + after) for first in firsts for after in (2, 3)]
    if deaths[0][0] == "transaction":
        assert not verdict.copied_twice
        assert len(tracker.events("skipped")) == len(deaths), "it has recognized each batch that it repeated"


def test_a_tracker_that_was_away_for_many_leases_brings_nothing_back_that_was_acked(
    make_plain_queue: MakeQueue,
) -> None:
    # tracker: up ---- SIGKILL ........... four leases ......... up: first reads what happened
    queue = make_plain_queue()
    tracker = queue.tracker()
    consumer = queue.consumer(leaseTimeout="1s", maxOffsetsPerTrigger=5)
    queue.produce(["plain"] * 5)
    consumer.until(queue.all_settled, "the first are acked")
    announced = len(queue.announcements())
    tracker.kill_tree()
    killed = time.monotonic()
    for _ in range(4):
        queue.produce(["plain"] * 5)
    consumer.until_seen(25)
    wait_until(lambda: time.monotonic() - killed > 4, "four leases pass")
    tracker.start()
    tracker.until(queue.all_settled, "the tracker has caught up")
    verdict = queue.verdict().check_settled()
    assert len(queue.announcements()) == announced
    assert not announced or verdict.duplicates  # only a machine that stands still lets the first run out


def test_a_tracker_without_its_checkpoint_takes_over_from_the_cursors_when_it_is_told_to(
    make_plain_queue: MakeQueue,
) -> None:
    # 0 2 acked, 1 left, 3 held | SIGKILL of the tracker, no checkpoint | refused | takeOver: 1 (2)
    # the checkpoint of before: stale, takeOver or not
    queue = make_plain_queue()
    tracker = queue.tracker()
    # The last one keeps the consumer from taking 1 again, however long the rest takes.
    queue.produce(["plain", "leave", "plain", "wait"])
    consumer = queue.consumer(per_row=True, gate=True, leaseTimeout="4s")
    consumer.until(lambda: _holes(queue) == ((2, 3),), "0 and 2 are acked")
    consumer.until(lambda: len({one.id for one in consumer.seen()}) == 4, "the last is held")
    tracker.kill_tree()
    checkpoint = Path(tracker.config["options"]["checkpointLocation"])
    checkpoint.rename(checkpoint.with_name("old"))

    tracker.start()
    assert "TrackerOwnedByAnother" in tracker.until_failed(run=2)
    shutil.rmtree(checkpoint)
    told_before = len(queue.cursors())
    tracker.restart(options=tracker.config["options"] | {"takeOver": True})
    tracker.until(lambda: len(queue.cursors()) > told_before, "the tracker is rebuilt")
    assert _holes(queue, told_before) == ((2, 3),)
    consumer.open_gate()
    consumer.until(queue.all_settled, "all is acked")
    queue.verdict().check_settled()
    assert {one.id for one in consumer.seen() if one.count > 1} <= {(0, 1), (0, 3)}
    assert not consumer.events("failed")

    tracker.kill_tree()
    checkpoint.rename(checkpoint.with_name("new"))
    checkpoint.with_name("old").rename(checkpoint)
    tracker.start()
    assert "It has continued beyond this checkpoint" in tracker.until_failed(run=4)


def _holes(queue: Field, number: int = -1) -> tuple[tuple[int, int], ...]:
    cursors = queue.cursors()
    return cursors[number].cursor.ack_holes.ranges if cursors else ()
