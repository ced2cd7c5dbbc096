"""SIGKILL of the consumer: its driver, its JVM, a worker; nothing is lost, what comes again has a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_cursor_source.core.marker import Start
from spark_cursor_source.core.offsets import OffsetSet
from tests.e2e.harness import App, Field, Verdict, released
from tests.e2e.processes import Part

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900)]

MakeQueue = Callable[..., Field]


def test_a_batch_is_replayed_once_less_what_has_ended_and_handed_back_the_second_time(
    make_plain_queue: MakeQueue,
) -> None:
    # run 1: batch 0 = 0..5 (1) | SIGKILL, another job acks 2 | run 2: batch 0 = 0 1 3 4 5 (2) | SIGKILL
    # run 3: batch 0 is empty | a later batch = 0 1 3 4 5 (3) -> acked
    # Three runs: without Spark, whose replays are in the test of its parts that are killed.
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["wait", *(f"plain-{n}" for n in range(1, 6))])
    consumer = queue.consumer(gate=True, leaseTimeout="10m")
    (first,) = consumer.until_seen(1, run=1)
    assert _started(queue) == {1: OffsetSet.of((0, 6))}
    consumer.kill_tree()
    queue.ack([2])

    but_2 = OffsetSet.of((0, 2), (3, 6))
    consumer.start()
    (second,) = consumer.until_seen(1, run=2)
    assert (second.id, second.count, second.batch) == (first.id, 2, first.batch)
    assert _started(queue)[2] == but_2

    consumer.restart()
    (third,) = consumer.until_seen(1, run=3)
    assert (third.id, third.count) == (first.id, 3)
    assert third.batch != first.batch
    assert _started(queue)[3] == but_2
    assert [back.delivery_count for back in released(queue.markers())] == [2]

    consumer.open_gate()
    consumer.until(queue.all_settled, "all is acked")
    verdict = queue.verdict()
    assert verdict.lost == {(0, 2)}, "nobody has seen what another job has acked"
    assert not verdict.wrongs
    assert verdict.acked == verdict.produced
    assert verdict.duplicates == {(0, 0): ("replay", "redelivery")}


def test_a_batch_whose_leases_ran_out_while_nobody_ran_comes_again(make_plain_queue: MakeQueue) -> None:
    # S--------6s lease--------available (1) | restart: batch 0 again (2), the announcement is stale
    queue = make_plain_queue(2)
    queue.tracker()
    for partition in (0, 1):
        queue.produce(["wait", "plain", "plain"], partition=partition)
    consumer = queue.consumer(gate=True, leaseTimeout="6s")
    (first,) = consumer.until_seen(1)
    consumer.kill_tree()
    for partition in (0, 1):
        consumer.until(
            lambda partition=partition: _waiting(queue, partition) == ((0, 3),), "the leases run out"
        )

    consumer.open_gate()
    consumer.start()
    consumer.until(queue.all_settled, "all is acked")
    verdict = queue.verdict().check_settled()
    assert verdict.duplicates == {first.id: ("replay",)}
    again = consumer.seen(run=2)
    assert sorted(one.id for one in again) == sorted(verdict.produced)
    assert {(one.count, one.batch) for one in again} == {(2, first.batch)}


def test_a_query_killed_five_times_before_any_message_reached_its_handler_loses_no_batch(
    make_plain_queue: MakeQueue,
) -> None:
    # Five runs die between Start and handler. Nobody can tell that from a message that kills its process, so
    # suspects part: groups of 3 at the fourth delivery, single ones at the fifth. At most one of them, alone
    # in its batch when the fifth run dies, is taken for the culprit. Six runs: without Spark.
    queue = make_plain_queue()
    queue.tracker()
    queue.produce([f"plain-{n}" for n in range(6)])
    consumer = queue.consumer(per_row=True, gate=True, wait_first=True, leaseTimeout="8s")
    for kills in range(1, 6):
        consumer.until(lambda kills=kills: len(_runs_that_started(queue)) == kills, "a Start is there")
        consumer.kill_tree()
        if kills == 5:
            consumer.open_gate()
        consumer.start()
    assert not consumer.seen(run=5)

    consumer.until(queue.all_settled, "all is acked")
    verdict = queue.verdict().check()
    assert len(verdict.dead) <= 1
    assert verdict.acked == verdict.produced - verdict.dead
    assert not verdict.duplicates


def test_a_message_that_ends_its_worker_every_time_ends_in_the_dead_letters_alone(
    make_queue: MakeQueue,
) -> None:
    # deliveries 1 to 3: all together, and all die | 4: groups of 3 | 5: each alone, one dies -> dead letter
    queue = make_queue()
    queue.produce([*(f"plain-{n}" for n in range(5)), "exit", "plain-6", "plain-7"])
    consumer = queue.consumer(per_row=True, restarts=50, leaseTimeout="8s")
    consumer.supervise_until(queue.all_settled, "all is acked, or a dead letter")
    _check_poison(queue, consumer, poison=5, count=5)
    assert consumer.runs == 1  # the query was started again; its driver lives


def test_a_message_that_ends_its_driver_every_time_ends_in_the_dead_letters_alone(
    make_plain_queue: MakeQueue,
) -> None:
    # deliveries 1 and 2: all together, and all die | 3: each alone, and one dies -> dead letter
    # Four runs: without Spark.
    queue = make_plain_queue()
    queue.tracker(maxDeliveries=3)
    queue.produce(["plain-0", "plain-1", "kill", "plain-3", "plain-4"])
    consumer = queue.consumer(per_row=True, leaseTimeout="8s")
    consumer.supervise_until(queue.all_settled, "all is acked, or a dead letter")
    _check_poison(queue, consumer, poison=2, count=3)
    assert consumer.runs == 4


def test_a_worker_a_jvm_or_a_planner_that_is_killed_costs_a_delivery_and_nothing_else(
    make_queue: MakeQueue,
) -> None:
    # (1) | worker killed: the query fails, starts again | (2) | JVM killed: the driver is started again | (3)
    # planner killed: the batch goes on, is acked, and then the query fails and starts again
    queue = make_queue(partitions=2)
    for partition in (0, 1):
        queue.produce(["wait", "plain", "plain"], partition=partition)
    consumer = queue.consumer(per_row=True, gate=True, restarts=10)
    consumer.until_seen(2)
    for part, count in ((Part.WORKER, 2), (Part.JVM, 3)):
        consumer.process.kill(part)
        consumer.supervise_until(
            lambda count=count: len(_held(consumer, count)) == 2, "the batch comes again"
        )
    consumer.process.kill(Part.PLANNER)
    consumer.open_gate()
    consumer.until(queue.all_settled, "all is acked")
    queue.produce(["plain"])
    consumer.supervise_until(lambda: queue.all_settled() and _is_acked(queue, (0, 3)), "the query goes on")
    queue.verdict().check_settled()


def test_a_driver_that_stood_still_for_longer_than_its_lease_goes_on(make_plain_queue: MakeQueue) -> None:
    # S (1)--- SIGSTOP ---- lease over, announced ---- SIGCONT, acked: nobody else had them
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["plain", "plain", "wait"])
    consumer = queue.consumer(gate=True, leaseTimeout="2s")
    consumer.until_seen(3)
    consumer.process.pause()
    consumer.until(lambda: queue.announcements(), "the leases run out")
    consumer.process.resume()
    consumer.open_gate()
    consumer.until(queue.all_settled, "all is acked")
    queue.produce(["plain"])
    consumer.until(lambda: _is_acked(queue, (0, 3)) and queue.all_settled(), "the query goes on")
    verdict = queue.verdict().check_settled()
    assert set(verdict.duplicates.values()) <= {("redelivery",)}
    assert not consumer.events("failed")


def _started(queue: Field) -> dict[int, OffsetSet]:
    """What the Starts of each delivery count name."""
    starts = [one.marker for one in queue.markers(Start)]
    counts = {start.delivery_count for start in starts}
    return {
        count: OffsetSet.union(start.offsets for start in starts if start.delivery_count == count)
        for count in counts
    }


def _runs_that_started(queue: Field) -> set[str | None]:
    return {one.marker.run_id for one in queue.markers(Start)}


def _waiting(queue: Field, partition: int) -> tuple[tuple[int, int], ...]:
    cursor = queue.cursor(partition)
    return () if cursor is None else cursor.waiting.ranges


def _held(consumer: App, least: int) -> set[tuple[int, int]]:
    """The messages that came for at least the ``least``-th time."""
    return {one.id for one in consumer.seen() if one.count >= least}


def _is_acked(queue: Field, message: tuple[int, int]) -> bool:
    return message in queue.verdict().acked


def _check_poison(queue: Field, consumer: App, *, poison: int, count: int) -> Verdict:
    """Every neighbour of the poison message is acked, and it is a dead letter after its last delivery."""
    verdict = queue.verdict().check_settled(dead=[(0, poison)])
    (letter,) = queue.dead_letters()
    assert (letter.id, letter.count) == ((0, poison), count)
    assert [one.count for one in consumer.seen() if one.id == (0, poison)] == list(range(1, count + 1))
    return verdict
