"""The types of subscriptions, with processes that come, leave, stop and are killed under load."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from zlib import crc32

import pytest
from confluent_kafka import Producer

from spark_cursor_source.admin.subscriptions import Subscriptions, at_offsets
from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.errors import SubscriptionHasConsumers
from tests.e2e.harness import App, Field, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.broker, pytest.mark.timeout(300)]

MakeQueue = Callable[..., Field]
SESSION_S = 6.0
SETTINGS = {"sessionTimeout": f"{SESSION_S:.0f}s", "leaseTimeout": "5s", "maxOffsetsPerTrigger": 6}


def test_a_second_exclusive_query_is_refused_and_told_who_is_there(make_plain_queue: MakeQueue) -> None:
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["plain"])
    lasting = SETTINGS | {"sessionTimeout": "10s"}  # else the first may lose its place when it stands still
    first = queue.consumer(**lasting)
    first.until(queue.all_settled, "the first is acked")
    second = queue.consumer(**lasting)
    error = second.until_failed()
    assert "SubscriptionInUse: subscriptionType=exclusive is refused" in error
    (member,) = queue.topics.group_members(queue.group)
    name = MemberName.parse(member.client_id)
    assert name is not None
    told = f"query {name.query_id} (exclusive) on host {name.host}, process {name.process.split('@')[0]}, "
    assert f"{told}since {name.since} " in error
    queue.produce(["plain"])
    first.until(lambda: queue.verdict(first).acked >= {(0, 1)}, "the first goes on")
    assert not first.events("failed")
    queue.verdict().check()


@pytest.mark.parametrize("how", ["killed", "paused", "left"])
def test_a_failover_query_takes_over_in_a_session_timeout_and_loses_nothing(
    make_plain_queue: MakeQueue, how: str
) -> None:
    queue = make_plain_queue(2)
    queue.tracker()
    with queue.producing(["plain", "flaky", "plain"], every_s=0.3):
        first = queue.consumer(subscriptionType="failover", **SETTINGS)
        first.until_seen(6)
        second = queue.consumer(subscriptionType="failover", **SETTINGS)
        third = queue.consumer(subscriptionType="failover", **SETTINGS)
        time.sleep(1.5)
        assert not second.seen(), "it waits"
        end = time.monotonic()
        {"killed": first.kill_tree, "paused": first.process.pause, "left": first.leave}[how]()
        wait_until(lambda: second.seen() or third.seen(), "one of those that wait takes over")
        # A look each half second, the join, and the tracker's answer, on a busy machine.
        assert time.monotonic() - end < (0.0 if how == "left" else SESSION_S) + 25.0
        if how == "paused":
            first.process.resume()
        time.sleep(2.0)
        assert not (second.seen() and third.seen()), "one of the two waits on"
    heir = second if second.seen() else third
    heir.until(queue.all_settled, "all is acked")
    queue.verdict(first, second, third).check_settled()
    assert not any(app.events("failed") for app in (first, second, third)), "a paused one waits again"


@pytest.mark.parametrize("how", ["killed", "paused", "left"])
def test_what_a_lost_query_had_leased_comes_back_in_a_session_timeout_and_not_in_a_lease(
    make_plain_queue: MakeQueue, how: str
) -> None:
    # first:  leases all | ends or stands still |                       goes on, acks
    # second: waits                               takes over, has all again
    queue = make_plain_queue(2)
    queue.tracker()
    for partition in (0, 1):
        queue.produce(["plain", *["leave"] * 3] if how == "left" else ["wait"] * 4, partition=partition)
    settings = {"subscriptionType": "failover", "sessionTimeout": "3s", "leaseTimeout": "10m"}
    with queue.producing(["plain"], every_s=0.3):
        first = queue.consumer(per_row=True, gate=True, onMemberLost="release", **settings)
        first.until_seen(8 if how == "left" else 1)
        second = queue.consumer(per_row=True, onMemberLost="release", **settings)
        time.sleep(1.5)
        assert not second.seen(), "it waits"
        end = time.monotonic()
        {"killed": first.kill_tree, "paused": first.process.pause, "left": first.leave}[how]()
        second.until(lambda: _again(second) >= {(0, n) for n in (1, 2, 3)}, "what was leased comes again")
        took_s = time.monotonic() - end
        print(f"{how}: what was leased came again after {took_s:.1f} s")
        # The session, a look each half second, the join, and the tracker's answer, on a busy machine.
        assert took_s < (0.0 if how == "left" else SESSION_S) + 25.0
        first.open_gate()
        if how == "paused":
            first.process.resume()
            time.sleep(2.0)
    second.until(queue.all_settled, "all is acked")
    queue.verdict(first, second).check_settled()
    assert not second.events("failed")
    assert how == "killed" or not first.events("failed")


def test_what_a_killed_query_had_leased_of_partitions_that_had_moved_comes_back_too(
    make_plain_queue: MakeQueue,
) -> None:
    # first:  leases 0 and 1 | partition 1 moves, its messages stay leased | dies | third: takes partition 0
    queue = make_plain_queue(2)
    queue.tracker()
    settings = {"subscriptionType": "shared", "sessionTimeout": "3s", "leaseTimeout": "10m"}
    for partition in (0, 1):
        queue.produce(["wait"] * 3, partition=partition)
    first = queue.consumer(gate=True, onMemberLost="release", **settings)
    wait_until(lambda: all(_leased(queue, number) == 3 for number in (0, 1)), "it has leased all")
    second = queue.consumer(onMemberLost="release", **settings)
    wait_until(lambda: _owners(queue) == 2, "a partition moves")
    time.sleep(2.0)
    assert not _again(second), "a member that is there keeps what it has leased"
    assert all(_leased(queue, number) == 3 for number in (0, 1))
    first.kill_tree()
    second.until(queue.all_settled, "all comes again and is acked, long before the leases end")
    verdict = queue.verdict(first, second).check_settled()
    assert verdict.acked == {(partition, offset) for partition in (0, 1) for offset in range(3)}


def _again(app: App) -> set[tuple[int, int]]:
    return {one.id for one in app.seen() if one.count > 1}


def _leased(queue: Field, partition: int) -> int:
    cursor = queue.cursor(partition)
    return 0 if cursor is None else len(cursor.leased)


def _owners(queue: Field) -> int:
    return len({cursor.owner for number in (0, 1) if (cursor := queue.cursor(number)) is not None})


def test_shared_queries_come_leave_stop_and_are_killed_under_load_and_all_is_acked(
    make_plain_queue: MakeQueue,
) -> None:
    queue = make_plain_queue(3)
    queue.tracker(maxDeliveries=0)
    with queue.producing(["plain", "flaky", "plain"], every_s=0.3, partitions=3):
        apps = [queue.consumer(subscriptionType="shared", **SETTINGS)]
        apps[0].until_seen(9)
        apps += [queue.consumer(subscriptionType="shared", **SETTINGS) for _ in range(3)]
        # Three have a partition each; the fourth waits.
        at_work = wait_until(lambda: _three_with_one_partition_each(queue), "each has its partition")
        assert at_work == {"0", "1", "2"}
        for app in apps:
            app.until(lambda app=app: app.seen() or len(_at_work(apps)) == 3, "three are at work")
        apps[0].kill_tree()
        wait_until(lambda: len(_at_work(apps[1:])) == 3, "the one that waited takes the partition")
        apps[1].process.pause()
        time.sleep(SESSION_S + 1.0)
        apps[1].process.resume()
        apps[2].leave()
        apps.append(queue.consumer(subscriptionType="shared", **SETTINGS))
        apps[-1].until_seen(3)
    apps[-1].until(queue.all_settled, "all is acked", beside=[apps[1]])
    queue.verdict(*apps).check_settled()
    assert not any(app.events("failed") for app in apps)


def test_messages_of_a_key_go_to_one_task_in_order_while_the_assignment_lasts(
    make_plain_queue: MakeQueue,
) -> None:
    queue = make_plain_queue(2)
    queue.tracker()
    settings = {"subscriptionType": "key_shared", "minPartitions": 5, "sessionTimeout": "60s"}
    apps = [queue.consumer(**settings) for _ in range(2)]
    wait_until(lambda: len(queue.topics.group_members(queue.group)) == 2, "both are there")
    wait_until(lambda: all(m.partitions for m in queue.topics.group_members(queue.group)), "both have one")
    keys = [f"key {number}".encode() for number in range(12)]
    producer = Producer(queue.control.config | {"enable.idempotence": True})
    for _ in range(20):
        for key in keys:
            producer.produce(queue.topic, b"plain", key=key, partition=crc32(key) % 2)
    assert producer.flush(30) == 0
    apps[0].until(queue.all_settled, "all is acked")
    queue.verdict(*apps).check_settled()
    key_of = {(one.partition(), one.offset()): one.key() for one in queue.records(queue.topic)}
    orders: defaultdict[bytes, list[int]] = defaultdict(list)
    places: defaultdict[bytes, set[object]] = defaultdict(set)
    for index, app in enumerate(apps):
        for one in app.events("seen"):
            key = key_of[one["partition"], one["offset"]]
            orders[key].append(one["offset"])
            places[key].add(index)
    assert orders.keys() == set(keys)
    for key in keys:
        assert orders[key] == sorted(orders[key]), key
        assert len(places[key]) == 1, "one query has all of a key"


def _at_work(apps: list[App]) -> list[App]:
    """Those that had a message in the last two seconds."""
    now = time.time() * 1000
    return [app for app in apps if any(one.at_ms > now - 2_000 for one in app.seen()[-20:])]


def _three_with_one_partition_each(queue: Field) -> set[str]:
    members = queue.topics.group_members(queue.group)
    held = [sorted(member.partitions) for member in members]
    if sorted(map(len, held)) != [0, 1, 1, 1]:
        return set()
    return {str(number) for one in held for _, number in one}


def test_a_running_query_follows_when_its_subscription_is_sought_back_and_forth(
    make_plain_queue: MakeQueue,
) -> None:
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["plain"] * 10)
    consumer = queue.consumer(**SETTINGS | {"leaseTimeout": "60s"})
    consumer.until(queue.all_settled, "all is acked")
    with closing(_subscriptions(queue)) as subscriptions:
        subscriptions.seek("s", queue.topic, at_offsets(queue.topic, {0: 7}))
        consumer.until_seen(13)
        consumer.until(queue.all_settled, "what was sought back to is acked again")
        consumer.restart()
        queue.produce(["plain"] * 2)
        consumer.until_seen(15)
        consumer.kill_tree()
        queue.produce(["plain"] * 8)
        subscriptions.seek("s", queue.topic, at_offsets(queue.topic, {0: 15}))
        consumer.restart()
        consumer.until_seen(20)
        consumer.until(queue.all_settled, "all above is acked")
    ids = [offset for (_, offset) in (one.id for one in consumer.seen())]
    assert ids == [*range(10), *range(7, 10), *range(10, 12), *range(15, 20)]
    assert not consumer.events("failed")


def test_a_running_query_follows_when_its_subscription_is_restored(make_plain_queue: MakeQueue) -> None:
    # 0..9 read, 3 and 5 left | snapshot | 10..14 read, all acked | restore: 3, 5 and 10..14 again | undo
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["leave" if offset in (3, 5) else "plain" for offset in range(10)])
    consumer = queue.consumer(per_row=True, sessionTimeout="3s", leaseTimeout="10m")
    consumer.until(
        lambda: (cursor := queue.cursor()) and len(cursor.outstanding) == 2, "all but two are acked"
    )
    with closing(_subscriptions(queue)) as subscriptions:
        assert subscriptions.snapshot("s", queue.topic, "before") == {0: 10}
        queue.produce(["plain"] * 5)
        consumer.until_seen(15)
        queue.ack([3, 5])
        consumer.until(queue.all_settled, "all is acked")
        assert subscriptions.restore("s", queue.topic, "before") == {0: 10}
        consumer.until_seen(22)
        consumer.until(queue.all_settled, "what was not acked then is acked again")
        subscriptions.skip("s", queue.topic, 5)
        subscriptions.undo("s", queue.topic)
        # Until it has noticed, what it reads does not count and comes again.
        consumer.until(lambda: (cursor := queue.cursor()) and cursor.owner, "it follows")
        queue.produce(["plain"] * 2)
        consumer.until_seen(24)
        consumer.until(queue.all_settled, "nothing is skipped")
    seen = [(one.id[1], one.count) for one in consumer.seen()]
    assert sorted(seen[15:22]) == [(3, 2), (5, 2), *((offset, 1) for offset in range(10, 15))]
    assert sorted(seen[22:]) == [(15, 1), (16, 1)]
    assert not consumer.events("failed")


def test_a_query_runs_on_when_its_subscription_is_deleted_by_force(make_plain_queue: MakeQueue) -> None:
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["plain", "flaky"] * 4)
    consumer = queue.consumer(**SETTINGS)
    consumer.until(queue.all_settled, "all is acked")
    with closing(_subscriptions(queue)) as subscriptions:
        with pytest.raises(SubscriptionHasConsumers, match="query"):
            subscriptions.delete("s")
        assert not subscriptions.delete("s", force=True), "its group stays"
    queue.produce(["plain", "flaky"] * 4)
    # What it starts before it has noticed comes again.
    consumer.until(lambda: queue.verdict(consumer).acked >= {(0, n) for n in range(16)}, "all is acked anew")
    consumer.until(queue.all_settled, "and the new cursor says so")
    assert not consumer.events("failed")


def _subscriptions(queue: Field) -> Subscriptions:
    return Subscriptions(
        queue.control.config,
        **queue.control.topics,
        group_id_prefix=queue.group_prefix,
    )
