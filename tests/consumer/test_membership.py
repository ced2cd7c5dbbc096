"""When a member that keeps a query out is given up, and when it is not."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from typing import cast

import pytest
from confluent_kafka import Consumer

from spark_cursor_source.consumer import membership
from spark_cursor_source.consumer.membership import GroupConfig, Membership
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import KafkaUnavailable, SubscriptionInUse
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.group_admin import GroupMemberInfo
from spark_cursor_source.kafka.group_offsets import CommittedOffset
from tests.conftest import CreateTopic
from tests.waiting import wait_until

PARTITION = ("orders", 0)
HOLDER = "cursorq exclusive web-7 41@4026531836 q1 2026-01-31T08:30:00Z"


class Group:
    """A group with a member on another machine, as two coordinators in turn describe it."""

    def __init__(self) -> None:
        self.coordinator = 1

    def group_members(self, group: str) -> tuple[GroupMemberInfo, ...]:
        return (
            GroupMemberInfo(
                client_id=HOLDER,
                host="192.0.2.7",
                instance_id="sole-1",
                partitions=frozenset({PARTITION}),
                coordinator=self.coordinator,
            ),
        )

    def committed_with_metadata(
        self, group: str, partitions: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], CommittedOffset]:
        return {}


CONFIG = GroupConfig(
    group="g",
    queue="orders",
    type=SubscriptionType.EXCLUSIVE,
    session_ms=500,
    query_id="mine",
    queue_id=None,
)


def test_a_new_coordinator_gives_a_dead_member_a_whole_session_again() -> None:
    group = Group()
    mine = Membership({}, cast(ClusterAdmin, group), CONFIG)

    def kept_out(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert mine.assigned_partitions([PARTITION]) == frozenset()
            time.sleep(0.02)

    kept_out(1.2)
    group.coordinator = 2
    kept_out(1.2)
    with pytest.raises(SubscriptionInUse, match=r"query q1 .* on host web-7"):
        kept_out(5)


class EmptyGroup(Group):
    """A group without members, whose coordinator the member that joins it cannot reach."""

    def group_members(self, group: str) -> tuple[GroupMemberInfo, ...]:
        return ()


@pytest.mark.parametrize("type", SubscriptionType)
def test_a_member_that_gets_no_answer_does_not_pass_for_one_without_partitions(
    type: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise a query with Trigger.AvailableNow would end as if there were nothing to read.
    monkeypatch.setattr(membership, "PATIENCE_MS", 1_000)
    monkeypatch.setattr(membership, "_JOIN_MS", 0)
    unreachable = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    mine = Membership(unreachable, cast(ClusterAdmin, EmptyGroup()), replace(CONFIG, type=type))
    with closing(mine), pytest.raises(KafkaUnavailable, match=r"join group 'g'.*Connection refused"):
        mine.wait_for_assignment([PARTITION])


@pytest.mark.broker
def test_a_consumer_of_another_program_keeps_an_exclusive_query_out_and_is_named(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    settings = {**config, "group.id": topic, "client.id": "reports", "session.timeout.ms": 6_000}
    with closing(Consumer(settings)) as stranger:
        stranger.subscribe([topic])
        wait_until(lambda: stranger.poll(0.1) is None and stranger.assignment())
        mine = Membership(config, ClusterAdmin(config), replace(CONFIG, group=topic, queue=topic))
        with (
            closing(mine),
            pytest.raises(SubscriptionInUse, match=r"a consumer 'reports' on host 127\.0\.0\.1"),
        ):
            mine.wait_for_assignment([(topic, 0)])


def test_a_member_without_topics_waits_for_nothing() -> None:
    mine = Membership({}, cast(ClusterAdmin, EmptyGroup()), CONFIG)
    assert mine.wait_for_assignment([]) == frozenset()
