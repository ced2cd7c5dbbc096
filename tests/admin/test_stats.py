"""A snapshot of subscriptions, of cursors that are there and of members that are in their groups."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from spark_cursor_source.admin.stats import read_stats
from spark_cursor_source.core.cursor import CursorSnapshot, Lease, Totals
from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.core.stats import ConsumerStats, Stats
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import TopicNotFound, UnknownQueueTopic, UnknownSubscription
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.group_member import SOLE, GroupMember
from spark_cursor_source.wire import cursor as cursor_wire
from tests.kafka.control_plane import Control, cell_of, cursor_of, offsets, produce
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

FIRST_MS = 1_700_000_000_000
SINCE = "2026-01-31T08:30:00Z"


@pytest.fixture
def known(control: Control) -> Control:
    """A queue of two partitions with ten messages in the first; a cursor of one run, and one of nobody's."""
    ClusterAdmin(control.config).create({control.queue: (2, {})})
    produce(
        control.config,
        control.queue,
        [{"value": b"%d" % at, "timestamp": FIRST_MS + 1_000 * at} for at in range(10)],
    )
    read = CursorSnapshot(
        cell=cell_of(control.queue),
        read_position=8,
        next_marker=7,
        leases=((Lease(FIRST_MS, 1, "run"), offsets((3, 5), (7, 8))),),
        owner="run",
        owner_seen_ms=FIRST_MS + 500,
        totals=Totals(delivered=8, acked=5),
    )
    cursors = [
        read,
        cursor_of(cell_of(control.queue, 1), 0),
        cursor_of(cell_of(control.queue, 0, "shipping"), 2),
    ]
    records = [{"key": one.cell.key, "value": cursor_wire.encode(one)} for one in cursors]
    produce(control.config, control.cursors, records)
    return control


def stats(control: Control, **of: str) -> Stats:
    names = control.topics
    return read_stats(control.config, **names, **control.groups, **of)


def test_stats_tell_where_each_subscription_stands(known: Control) -> None:
    billing, shipping = stats(known).subscriptions
    assert (billing.topic, billing.subscription, billing.consumers) == (known.queue, "billing", ())
    assert (billing.backlog, billing.total("outstanding"), billing.total("leased")) == (3 + 2, 3, 3)
    assert (billing.total("ack_holes"), billing.total("acked")) == (1, 5)
    assert (billing.oldest_unacked_ms, billing.oldest_unacked_age_ms) == (FIRST_MS + 3_000, 6_000)
    assert [(part.mark_delete, part.read_position, part.log_end) for part in billing.partitions] == [
        (2, 8, 10),
        (-1, 0, 0),
    ]
    assert (shipping.backlog, shipping.oldest_unacked_ms) == (8, FIRST_MS + 2_000)
    assert [one.subscription for one in stats(known, subscription="shipping").subscriptions] == ["shipping"]


def test_the_age_of_the_oldest_message_grows_with_the_markers_too(known: Control) -> None:
    produce(known.config, known.markers, [{"key": b"k", "value": b"no marker"}])
    ages = [one.oldest_unacked_age_ms for one in stats(known).subscriptions]
    assert all(age is not None and age > 10**10 for age in ages), "years, by the clock of the broker"


def test_consumers_are_the_members_of_the_group_ours_with_what_they_say_of_themselves(known: Control) -> None:
    name = MemberName(
        type=SubscriptionType.EXCLUSIVE, host="web-7", process="41@7", query_id="run", since=SINCE
    )
    member = GroupMember(known.config, known.group("billing"), name, session_ms=6_000)
    foreign = Consumer({**known.config, "group.id": known.group("shipping"), "client.id": "kcat"})
    try:
        member.subscribe({known.queue})
        foreign.subscribe([known.queue])
        wait_until(lambda: bool(member.partitions))
        member.commit({(known.queue, 0): 8}, Deadline.after_ms(10_000))
        wait_until(lambda: foreign.poll(0.1) is not None or bool(foreign.assignment()))
        billing, shipping = stats(known).subscriptions
    finally:
        member.close()
        foreign.close()
    assert billing.consumers == (
        ConsumerStats(
            client_id=str(name),
            query_id="run",
            type="exclusive",
            host="web-7",
            since=SINCE,
            partitions=(0, 1),
            last_seen_ms=FIRST_MS + 500,
        ),
    )
    (stranger,) = shipping.consumers
    assert (stranger.client_id, stranger.query_id, stranger.partitions) == ("kcat", None, (0, 1))


def test_after_a_take_over_the_consumer_is_the_query_that_reads_now(known: Control) -> None:
    # The group shows a static member that took the place of another with the client.id of that one.
    members = [
        GroupMember(
            known.config,
            known.group("billing"),
            MemberName(
                type=SubscriptionType.EXCLUSIVE, host="web-7", process=process, query_id=query, since=SINCE
            ),
            session_ms=6_000,
            instance_id=f"{SOLE}-7",
        )
        for query, process in (("first", "41@7"), ("second", "42@7"))
    ]
    try:
        for member in members:
            member.subscribe({known.queue})
            wait_until(lambda member=member: bool(member.partitions))
        members[1].commit({(known.queue, 0): 8}, Deadline.after_ms(10_000))
        (consumer,) = stats(known, subscription="billing").subscriptions[0].consumers
    finally:
        for member in members:
            member.close()
    assert consumer.query_id == "second"


def test_members_of_the_group_that_read_another_topic_are_no_consumers_of_this_one(
    known: Control, topics: ClusterAdmin
) -> None:
    other = f"{known.queue}-other"
    topics.create({other: (1, {})})
    reader = Consumer({**known.config, "group.id": known.group("billing")})
    try:
        reader.subscribe([other])
        wait_until(lambda: reader.poll(0.1) is not None or bool(reader.assignment()))
        assert stats(known, subscription="billing").subscriptions[0].consumers == ()
    finally:
        reader.close()


def test_the_stats_of_a_topic_that_is_gone_tell_what_the_cursor_knows(known: Control) -> None:
    gone = CursorSnapshot(cell=cell_of("never-there"), read_position=8, next_marker=7)
    records = [{"key": gone.cell.key, "value": cursor_wire.encode(gone)}]
    produce(known.config, known.cursors, records)
    (one,) = stats(known, topic="never-there").subscriptions
    assert (one.backlog, one.oldest_unacked_ms, one.partitions[0].mark_delete) == (None, None, 7)


@pytest.mark.parametrize(
    ("of", "error", "told"),
    [
        (
            {"subscription": "biling"},
            UnknownSubscription,
            "'biling'. Its subscriptions are: billing, shipping",
        ),
        ({"topic": "ordes"}, UnknownQueueTopic, "of queue topic 'ordes'. Its topics are: queue-"),
        (
            {"subscription": "billing", "topic": "ordes"},
            UnknownSubscription,
            "Its subscriptions are: billing of queue-",
        ),
    ],
)
def test_stats_of_a_misspelled_name_are_an_error_with_the_names_that_there_are(
    known: Control, of: dict[str, str], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        stats(known, **of)


def test_without_control_topics_stats_say_so(config: dict[str, str]) -> None:
    with pytest.raises(TopicNotFound, match="no-such-cursors"):
        read_stats(config, cursors_topic="no-such-cursors")
