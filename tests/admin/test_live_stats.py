"""Statistics that are read again and again: complete at first, then at the cost of what has changed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AclOperation

from spark_cursor_source.admin import read_partition_map, read_stats, read_stuck
from spark_cursor_source.admin.live_stats import LiveStats, LiveView
from spark_cursor_source.admin.topic_metrics import TopicMetrics
from spark_cursor_source.core.control_names import AllNames
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.core.stats import Stats
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import KafkaUnavailable
from spark_cursor_source.kafka import admin
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.kafka.deadline import Deadline, Pace
from spark_cursor_source.kafka.group_member import SOLE, GroupMember
from spark_cursor_source.metrics.table import BACKLOG, CONSUMERS, CURSOR_BYTES, OLDEST_AGE, Metric
from spark_cursor_source.wire import cursor as cursor_wire
from tests.kafka.control_plane import (
    Control,
    allow_bob,
    cell_of,
    cursor_of,
    login,
    new_control,
    offsets,
    produce,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

FIRST_MS = 1_700_000_000_000
SUBSCRIPTIONS = 20  #: more than are asked for their members one by one


@pytest.fixture
def filled(control: Control) -> Control:
    """A queue of ten messages, a second apart, and subscriptions that have acked the first two of them."""
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    produce(
        control.config,
        control.queue,
        [{"value": b"v", "timestamp": FIRST_MS + 1_000 * at} for at in range(10)],
    )
    write(control, *(cursor(control, number, first=2) for number in range(SUBSCRIPTIONS)))
    return control


def cursor(control: Control, number: int, *, first: int) -> CursorSnapshot:
    """A cursor with the messages from ``first`` on outstanding."""
    return CursorSnapshot(
        cell=cell_of(control.queue, 0, f"s{number:02}"),
        read_position=8,
        next_marker=0,
        leases=((Lease(60_000, 1, "run"), offsets((first, 8))),),
    )


def write(control: Control, *cursors: CursorSnapshot) -> None:
    produce(
        control.config,
        control.cursors,
        [{"key": one.cell.key, "value": cursor_wire.encode(one)} for one in cursors],
    )


def oldest(view: LiveView) -> set[int]:
    return {((one.oldest_unacked_ms or 0) - FIRST_MS) // 1_000 for one in view.stats.subscriptions}


def live(control: Control, **more: object) -> LiveStats:
    names = {**control.topics, **control.groups}
    return LiveStats(control.config, **names, **more)  # type: ignore[arg-type]


def test_without_a_budget_everything_is_read_and_with_a_small_one_all_have_their_turn(
    filled: Control,
) -> None:
    with closing(live(filled)) as stats:
        assert oldest(stats.refresh(budget_ms=None)) == {2}
        write(filled, *(cursor(filled, number, first=5) for number in range(SUBSCRIPTIONS)))
        views = [stats.refresh(budget_ms=0) for _ in range(SUBSCRIPTIONS)]
        assert all(len(one.stats.subscriptions) == SUBSCRIPTIONS for one in views)
        assert oldest(views[-1]) == {5}, "the budget of each refresh is enough for one reading"


def test_statistics_are_of_one_subscription_with_the_sizes_of_its_cursors(filled: Control) -> None:
    with closing(live(filled, subscription="s03", sizes=True)) as stats:
        (one,) = stats.refresh().stats.subscriptions
        assert (one.subscription, one.partitions[0].cursor_bytes > 10) == ("s03", True)


def test_the_members_of_many_groups_are_found(filled: Control) -> None:
    names = [
        MemberName(
            type=SubscriptionType.EXCLUSIVE, host="web-7", process="41@7", query_id=query, since="2026-01-01"
        )
        for query in ("first", "second")
    ]
    # The broker lists the second member with the name of the first one, whose place it takes.
    sole = [
        GroupMember(filled.config, filled.group("s08"), name, session_ms=6_000, instance_id=f"{SOLE}-8")
        for name in names
    ]
    foreign = Consumer({**filled.config, "group.id": filled.group("s07"), "client.id": "kcat"})
    topics = ClusterAdmin(filled.config)
    try:
        for member in sole:
            member.subscribe({filled.queue})
            wait_until(lambda member=member: bool(member.partitions))
        sole[1].commit({(filled.queue, 0): 8}, Deadline.after_ms(10_000))
        foreign.subscribe([filled.queue])
        wait_until(lambda: foreign.poll(0.1) is not None or bool(foreign.assignment()))
        groups = [filled.group(name) for name in ("s07", "s08", "s09")]
        assert topics.members_by_group(groups) == {name: topics.group_members(name) for name in groups}
        with closing(live(filled)) as stats:
            view = stats.refresh(budget_ms=None)
    finally:
        foreign.close()
        for member in sole:
            member.close()
    found = {one.subscription: [two.query_id for two in one.consumers] for one in view.stats.subscriptions}
    assert {name: queries for name, queries in found.items() if queries} == {"s07": [None], "s08": ["second"]}
    assert view.unknown_members == frozenset()


def test_a_topic_that_may_not_be_read_hides_the_oldest_message_of_no_other(
    guarded_broker: EmbeddedKafka,
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = new_control(servers | login("admin", "of-admin"))
    closed = f"{control.queue}-closed"
    ClusterAdmin(control.config).create(dict.fromkeys((control.queue, closed), (1, {})))
    for topic in (control.queue, closed):
        produce(control.config, topic, [{"value": b"v", "timestamp": FIRST_MS}])
        write(control, cursor_of(cell_of(topic), 0))
    allow_bob(control, {control.queue: AclOperation.ALL, closed: AclOperation.DESCRIBE})
    names: AllNames = {
        "markers_topic": control.markers,
        "redeliveries_topic": control.redeliveries,
        "cursors_topic": control.cursors,
        **control.groups,
    }
    bob = servers | login("bob", "of-bob")

    def shown(stats: Stats) -> dict[str, tuple[int | None, int | None]]:
        return {one.topic: (one.backlog, one.oldest_unacked_ms) for one in stats.subscriptions}

    with closing(LiveStats(bob, **names)) as live, TopicMetrics(bob, **names) as metrics:
        expected = {control.queue: (1, FIRST_MS), closed: (1, None)}
        view = live.refresh(budget_ms=None)
        assert shown(view.stats) == expected
        troubles = {one.topic: one.oldest_trouble for one in view.stats.subscriptions}
        assert troubles[control.queue] is None
        assert f"--operation Read --topic {closed}" in str(troubles[closed])
        assert live.refresh().stats == view.stats, "it is not read again at each refresh"
        assert shown(read_stats(bob, **names)) == expected
        told = {one.labels[0] for one in metrics.read() if one.metric is OLDEST_AGE}
        assert told == {control.queue}


def test_a_partition_that_loses_its_leader_during_a_refresh_fails_neither_it_nor_the_statistics(
    filled: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_offsets = ClusterAdmin._list_offsets

    def ends_only(self: ClusterAdmin, partitions: Iterable[Partition], spec: Any, *more: Any) -> Any:
        asked = list(partitions)
        if spec is not admin._LATEST and (filled.queue, 0) in asked:
            raise KafkaUnavailable("list offsets", 5_000, "no leader")
        return list_offsets(self, asked, spec, *more)

    names = {"markers_topic": filled.markers, "cursors_topic": filled.cursors, **filled.groups}
    with closing(live(filled)) as stats:
        before = stats.refresh(budget_ms=None)
        monkeypatch.setattr(ClusterAdmin, "_list_offsets", ends_only)
        monkeypatch.setattr(stats, "_slow", Pace(0))
        now = stats.refresh(budget_ms=None)
        assert (now.bounds, oldest(now)) == (before.bounds, oldest(before))
    with closing(live(filled)) as stats:
        assert oldest(stats.refresh(budget_ms=None)) == {2}
    found = read_stats(filled.config, **names)
    assert {one.backlog for one in found.subscriptions} == {8}
    assert read_partition_map(filled.config, filled.queue, "s00", cursors_topic=filled.cursors)
    assert read_stuck(filled.config, **names).oldest


def test_a_later_scrape_shows_what_has_changed_and_what_is_gone(filled: Control) -> None:
    def values(metric: Metric) -> dict[str, float]:
        return {
            one.labels[1]: one.value
            for one in topics.read()
            if one.metric is metric and isinstance(one.value, float | int)
        }

    names = {**filled.topics, **filled.groups}
    with TopicMetrics(filled.config, **names) as topics:
        assert set(values(OLDEST_AGE).values()) == {7.0}, "at the time of the newest message"
        assert set(values(CONSUMERS).values()) == {0}
        before = values(CURSOR_BYTES)
        changed = cursor(filled, 0, first=6)
        wide = ((Lease(60_000, 1, "run"), offsets(*((at, at + 1) for at in range(0, 8, 2)))),)
        write(filled, changed, replace(cursor(filled, 1, first=2), leases=wide))
        gone = cell_of(filled.queue, 0, "s02").key
        produce(filled.config, filled.cursors, [{"key": gone, "value": None}])
        wait_until(lambda: values(OLDEST_AGE)["s00"] == 3.0)
        now = values(OLDEST_AGE)
        assert (now["s01"], now["s03"], "s02" in now) == (9.0, 7.0, False)
        assert values(CURSOR_BYTES)["s01"] > before["s01"]


def test_a_cursor_of_a_deleted_topic_counts_no_message_of_the_topic_that_has_its_name(
    filled: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(stats: Stats) -> tuple[dict[str, int | None], set[str]]:
        found = stats.subscriptions[:3]
        return {one.subscription: one.backlog for one in found}, {
            one.subscription for one in found if one.is_deleted
        }

    topics, names = ClusterAdmin(filled.config), {**filled.topics, **filled.groups}
    old = topics.describe([filled.queue])[filled.queue].topic_id
    write(filled, replace(cursor(filled, 0, first=2), topic_id=old))
    with closing(live(filled)) as stats:
        monkeypatch.setattr(stats, "_slow", Pace(0))
        assert told(stats.refresh(budget_ms=None).stats) == ({"s00": 8, "s01": 8, "s02": 8}, set())
        topics.delete(filled.queue)
        topics.create({filled.queue: (1, {})})
        new = topics.describe([filled.queue])[filled.queue].topic_id
        produce(filled.config, filled.queue, [{"value": b"v"}] * 3)
        write(filled, replace(cursor_of(cell_of(filled.queue, 0, "s01"), 0), topic_id=new))
        # A cursor without an id may be of the present topic.
        after = {"s00": None, "s01": 3, "s02": 6}, {"s00"}
        wait_until(lambda: told(stats.refresh(budget_ms=None).stats) == after)
        view = stats.refresh(budget_ms=None)
        assert [one.oldest_unacked_ms is None for one in view.stats.subscriptions[:2]] == [True, False]
        assert view.of_deleted == {cell_of(filled.queue, 0, "s00")}
    assert told(read_stats(filled.config, **names)) == after
    ends = {}
    for name in after[0]:
        (found,) = read_partition_map(filled.config, filled.queue, name, cursors_topic=filled.cursors)
        ends[name] = found.log_end
    assert ends == {"s00": None, "s01": 3, "s02": 3}
    with TopicMetrics(filled.config, **names) as metrics:
        shown = {one.labels[1]: one.value for one in metrics.read() if one.metric is BACKLOG}
    assert {name: shown.get(name) for name in after[0]} == after[0]
