"""A subscription belongs to one queue id: a member would end the messages of another one unread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from spark_cursor_source.consumer import membership
from spark_cursor_source.consumer.membership import GroupConfig, Membership
from spark_cursor_source.consumer.this_process import name_member
from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import QueueIdConflict
from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

Join = Callable[..., Membership]
EXCLUSIVE, FAILOVER, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER, SubscriptionType.SHARED


@pytest.fixture
def topic(create_topic: Callable[..., str]) -> str:
    return create_topic(2)


@pytest.fixture
def topics(broker: EmbeddedKafka) -> ClusterAdmin:
    return ClusterAdmin({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def join(broker: EmbeddedKafka, topics: ClusterAdmin, topic: str) -> Iterator[Join]:
    """Joins the group of one subscription, and commits positions as a query does."""
    config = {"bootstrap.servers": broker.bootstrap_servers}
    partitions = [(topic, 0), (topic, 1)]
    with ExitStack() as members:

        def make(queue_id: str | None, type: SubscriptionType, *, query_id: str = "run") -> Membership:
            group = GroupConfig(
                group=f"group-{topic}",
                queue=topic,
                type=type,
                session_ms=6_000,
                query_id=query_id,
                queue_id=queue_id,
            )
            member = Membership(config, topics, group)
            members.callback(member.close)
            try:
                assigned = member.wait_for_assignment(partitions)
            except QueueIdConflict:
                member.close()
                raise
            assert member.commit(dict.fromkeys(assigned, 5))
            return member

        yield make


@pytest.mark.parametrize(
    ("type", "first", "second", "said"),
    [
        (EXCLUSIVE, "mails", "all mails", "reads queueId=all%20mails, .* has read queueId=mails\\."),
        (EXCLUSIVE, "mails", None, "reads all messages, .* has read queueId=mails\\."),
        (SHARED, None, "mails", "reads queueId=mails, .* has read all messages\\."),
    ],
)
def test_a_later_member_with_another_queue_id_is_refused(
    join: Join, type: SubscriptionType, first: str | None, second: str | None, said: str
) -> None:
    join(first, type).close()
    with pytest.raises(QueueIdConflict, match=said):
        join(second, type)
    join(first, type)


def test_of_two_members_at_once_the_later_one_is_refused(join: Join) -> None:
    join("mails", SHARED)
    join("mails", SHARED, query_id="second")
    with pytest.raises(QueueIdConflict, match=r"in its group 'group-.* query (run|second) "):
        join("orders", SHARED)


def test_a_member_that_gets_no_partition_is_refused(join: Join, topic: str) -> None:
    partitions = [(topic, 0), (topic, 1)]
    members = join("mails", SHARED), join("mails", SHARED, query_id="second")

    def each_reads_one() -> bool:
        return [len(member.assigned_partitions(partitions)) for member in members] == [1, 1]

    wait_until(each_reads_one, "each member reads a partition")
    with pytest.raises(QueueIdConflict, match=r"in its group 'group-.* query (run|second) "):
        join("orders", SHARED)
    assert each_reads_one()


def test_a_standby_with_another_queue_id_is_refused_before_it_takes_over(join: Join) -> None:
    join("mails", FAILOVER)
    with pytest.raises(QueueIdConflict):
        join("orders", FAILOVER)


def test_a_name_of_an_earlier_version_says_nothing_of_its_queue_id(
    join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(membership, "name_member", _without_word)
        join("mails", EXCLUSIVE).close()
    join("orders", EXCLUSIVE)


def _without_word(type: SubscriptionType, query_id: str, queue_id: str | None) -> MemberName:
    return replace(name_member(type, query_id, queue_id), reads=None)
