"""What is done to the topics, and by whom there should be only one: noticed, and nothing is lost by it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Hello, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.subscription_type import group_id
from spark_cursor_source.wire import marker as marker_wire
from tests.conftest import DeleteTopic
from tests.e2e.conftest import Outage
from tests.e2e.harness import App, Field, wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.broker,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("outage"),
]

MakeQueue = Callable[..., Field]
HOUR_MS = 3_600_000


# ---- two where one should be


def test_a_tracker_that_stood_still_while_another_took_over_ends_and_changes_nothing(
    make_plain_queue: MakeQueue,
) -> None:
    # first: S(1) -- SIGSTOP ------- lease over ------- SIGCONT: fenced
    # second:             takeOver ---- announced, acked
    queue = make_plain_queue()
    first = queue.tracker()
    consumer = queue.consumer(leaseTimeout="3s")
    queue.produce(["plain", "leave", "flaky", "reject"])
    # Among all cursors: the present one may have it for a moment only.
    first.until(lambda: any(len(one.cursor.leased) == 1 for one in queue.cursors()), "1 is left")
    first.process.pause()
    second = queue.tracker(takeOver=True)
    consumer.until(queue.all_settled, "the second tracker is at work, and the lease is over")
    told = len(queue.cursors()), len(queue.announcements())
    first.process.resume()
    queue.produce(["plain"])
    error = first.until_failed()
    assert "TrackerFenced" in error or "TrackerOwnedByAnother" in error
    consumer.until(queue.all_settled, "the second tracker goes on")
    verdict = queue.verdict().check_settled(dead=[(0, 3)])
    assert not verdict.copied_twice
    assert len(queue.announcements()) == told[1]
    assert not second.events("failed")


def test_of_two_queries_on_one_checkpoint_at_most_one_goes_on_and_a_restart_has_all(
    make_plain_queue: MakeQueue,
) -> None:
    # first: S(1) held ------------------------ says what has happened and ends, or the second does
    # second:          Hello, the same batch
    # In one group the second would be refused. The other one knows where the first batch began, too: or the
    # second would begin behind what the first has started, and that lasts.
    queue = make_plain_queue()
    prefix = f"other-{queue.topic}"
    queue.topics.commit(group_id(prefix, queue.subscription), {(queue.topic, 0): 0})
    queue.tracker()
    queue.produce(["wait", "leave", "plain"])
    first = queue.consumer(gate=True, leaseTimeout="3s")
    first.until_seen(1)
    its_own = {"events": first.config["events"] + "-second"}
    its_own["options"] = first.config["options"] | {"groupIdPrefix": prefix}
    second = App(queue.garage, first.config | its_own, runs=100)
    queue.apps.append(second)
    second.until_seen(1)
    first.open_gate()
    queue.produce(["plain"] * 3)
    failed = first.until(lambda: first.events("failed") + second.events("failed"), "one of them ends")
    assert "RunSuperseded" in failed[0]["error"] or "FileExistsError" in failed[0]["error"]
    for query in (first, second):
        query.kill_tree()
    first.restart()
    first.until(queue.all_settled, "all is acked")
    verdict = queue.verdict(first, second)
    assert not verdict.lost
    assert verdict.acked == verdict.produced
    assert not verdict.outstanding


def test_a_query_that_is_superseded_says_so_and_ends(make_plain_queue: MakeQueue) -> None:
    # Another group: the one of the first, which would refuse it, does not know the later query. It has a
    # checkpoint of its own, too, so no log of Spark's could tell the earlier one.
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["plain"])
    first = queue.consumer()
    first.until(queue.all_settled, "the first is acked")
    second = queue.consumer(groupIdPrefix="other")
    assert "RunSuperseded: A later query reads" in first.until_failed()
    queue.produce(["leave", "flaky"])
    second.until(lambda: queue.verdict().acked >= {(0, 2)}, "the second goes on")
    assert not second.events("failed")


# ---- topics that change


def test_partitions_that_come_during_a_batch_and_before_its_replay_are_read_from_their_beginning(
    make_plain_queue: MakeQueue, admin: AdminClient
) -> None:
    # batch 0 = 0-0 held | partition 1, with messages | SIGKILL | partition 2, with messages | batch 0 again
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["wait", "plain"])
    consumer = queue.consumer(gate=True)
    consumer.until_seen(1)
    _add_partition(queue, admin, 2)
    queue.produce(["plain"] * 2, partition=1)
    consumer.kill_tree()
    _add_partition(queue, admin, 3)
    queue.produce(["plain"] * 2, partition=2)
    consumer.open_gate()
    consumer.restart()
    consumer.until(queue.all_settled, "all is acked")
    verdict = queue.verdict().check_settled()
    assert len(verdict.acked) == 6
    assert {one.batch for one in verdict.seen if one.id[0] == 0} == {0}


@pytest.mark.parametrize("at_work", [True, False])
def test_markers_that_are_removed_before_the_tracker_has_read_them_stop_it(
    make_plain_queue: MakeQueue, admin: AdminClient, at_work: bool
) -> None:
    # What it has read may go, at work or not; what it has not read is missed.
    queue = make_plain_queue()
    tracker = queue.tracker()
    queue.produce(["plain"] * 3)
    consumer = queue.consumer()
    consumer.until(queue.all_settled, "all is acked")
    _truncate_markers(queue, admin)
    if not at_work:
        tracker.kill_tree()
    else:
        tracker.process.pause()
    queue.produce(["leave"] * 3)
    consumer.until_seen(6)
    starts = [one.marker.offsets.first for one in queue.markers(Start)]
    assert min(starts) == 3, "only what came last is in the markers, in one batch or more"
    _truncate_markers(queue, admin)
    if at_work:
        tracker.process.resume()
    else:
        tracker.start()
    error = tracker.until_failed()
    assert "MarkersGone: Markers topic" in error or "RecordsGone" in error
    assert "takeOver=true" in error or "are not available" in error


def test_a_markers_topic_that_is_created_again_stops_the_tracker_and_the_next_one_too(
    make_plain_queue: MakeQueue, delete_topic: DeleteTopic
) -> None:
    queue = make_plain_queue()
    tracker = queue.tracker()
    queue.produce(["plain"] * 3)
    consumer = queue.consumer()
    consumer.until(queue.all_settled, "all is acked")
    consumer.kill_tree()
    tracker.kill_tree()
    delete_topic(queue.control.markers)
    tracker.start()
    assert "Set new topics in markersTopic" in tracker.until_failed()
    another = queue.tracker(takeOver=True)
    assert "Set new topics in markersTopic" in another.until_failed()


# ---- clocks


@pytest.mark.parametrize("wrong_ms", [HOUR_MS, -HOUR_MS])
def test_a_producer_whose_clock_is_an_hour_off_moves_no_deadline(
    make_plain_queue: MakeQueue, wrong_ms: int
) -> None:
    # Of messages, and of a Start from a machine whose clock is wrong: leases are in the broker's time.
    queue = make_plain_queue()
    tracker = queue.tracker()
    its_time_ms = int(time.time() * 1000) + wrong_ms
    queue.produce(["plain"] * 3, timestamp_ms=its_time_ms)
    _start_from_elsewhere(queue, OffsetSet.of((0, 3)), timestamp_ms=its_time_ms)
    (start,) = queue.markers(Start)
    # A tracker that is late does not see the lease before its end.
    tracker.until(lambda: queue.cursor() and len(queue.cursor().waiting) == 3, "the lease is over")
    over_ms = next(one.at_ms for one in queue.cursors() if one.cursor.waiting)
    assert 3_000 <= over_ms - start.at_ms < 60_000
    assert abs(start.at_ms - time.time() * 1000) < HOUR_MS / 2
    consumer = queue.consumer()
    consumer.until(queue.all_settled, "all is acked")
    assert {one.count for one in consumer.seen()} == {2}


# ---- the last one: meanwhile the others have had their time


def test_a_broker_that_was_away_for_two_minutes_costs_nothing(outage: Outage) -> None:
    # load ---- SIGKILL of the broker ........ 120 s ........ start ---- all is acked
    verdict = outage.over()
    assert len(verdict.acked) == len(verdict.produced) > 30


def _add_partition(queue: Field, admin: AdminClient, count: int) -> None:
    admin.create_partitions([NewPartitions(queue.topic, count)])[queue.topic].result(timeout=20)
    wait_until(lambda: queue.topics.describe([queue.topic])[queue.topic].partitions == count, "it is there")


def _truncate_markers(queue: Field, admin: AdminClient) -> None:
    """As retention would, at its worst."""
    topic = queue.control.markers
    count = queue.topics.describe([topic])[topic].partitions
    ends = queue.topics.end_offsets([(topic, number) for number in range(count)], committed=False)
    wanted = [TopicPartition(topic, number, end) for (_, number), end in ends.items() if end]
    for future in admin.delete_records(wanted).values():
        future.result(timeout=20)


def _start_from_elsewhere(queue: Field, offsets: OffsetSet, *, timestamp_ms: int) -> None:
    topic = queue.control.markers
    wait_until(lambda: queue.topics.existing([topic]), "the tracker has made its topics")
    cell = Cell(subscription=queue.subscription, topic=queue.topic, partition=0)
    run_id = "elsewhere"
    hello = Hello(cell=cell, run_id=run_id, position=0)
    start = Start(cell=cell, offsets=offsets, lease_ms=3_000, delivery_count=1, run_id=run_id)
    producer = Producer(queue.control.config)
    for marker in (hello, start):
        producer.produce(
            topic,
            marker_wire.encode(marker),
            cell.key,
            partition=cell.control_partition(queue.topics.describe([topic])[topic].partitions),
            timestamp=timestamp_ms,
        )
    assert producer.flush(30) == 0
