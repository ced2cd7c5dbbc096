"""Who is in a consumer group is told, and a group is deleted, also while its broker restarts."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError

from spark_cursor_source.consumer.this_process import name_member
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import GroupInUse, KafkaRefused, KafkaUnavailable, MemberFenced
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.group_member import GroupMember
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, end_transactions
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def test_members_are_told_with_their_partitions_and_static_ones_by_their_instance(
    config: dict[str, str], topics: ClusterAdmin, group: str
) -> None:
    assert topics.group_members(group) == ()
    topics.create({group: (3, {})})
    both = [
        Consumer({**config, "group.id": group, "client.id": f"client-{number}", **more})
        for number, more in enumerate(({}, {"group.instance.id": "sole-one"}))
    ]
    try:
        for one in both:
            one.subscribe([group])
        wait_until(lambda: sum(map(is_assigned, both)) == 2)
        dynamic, static = sorted(topics.group_members(group), key=lambda one: one.client_id)
        with pytest.raises(GroupInUse):
            topics.delete_group(group)
    finally:
        for one in both:
            one.close()
    assert (dynamic.client_id, dynamic.instance_id) == ("client-0", None)
    assert (static.client_id, static.instance_id) == ("client-1", "sole-one")
    assert dynamic.host == "127.0.0.1"
    assert dynamic.partitions | static.partitions == {(group, number) for number in range(3)}


@contextmanager
def joined(
    config: dict[str, str], topics: ClusterAdmin, group: str, *, session_ms: int = 6_000
) -> Iterator[GroupMember]:
    """A shared member that has the only partition of the topic with the name of its group."""
    topics.create({group: (1, {})})
    member = GroupMember(config, group, name_member(SubscriptionType.SHARED, "one"), session_ms=session_ms)
    try:
        member.subscribe([group])
        wait_until(lambda: bool(member.partitions))
        yield member
    finally:
        member.close()


def is_assigned(consumer: Consumer) -> bool:
    consumer.poll(0.05)  # may tell that the topic is not known yet
    return bool(consumer.assignment())


def test_a_sole_member_is_told_when_another_takes_its_place(
    config: dict[str, str], topics: ClusterAdmin, group: str
) -> None:
    topics.create({group: (2, {})})

    def join(query_id: str) -> GroupMember:
        name = name_member(SubscriptionType.EXCLUSIVE, query_id)
        member = GroupMember(config, group, name, session_ms=6_000, instance_id="sole-one")
        member.subscribe([group])
        return member

    first = join("first")
    try:
        wait_until(lambda: first.partitions is not None)
        second = join("second")
        try:
            with pytest.raises(MemberFenced, match=f"Another query has replaced this one in group '{group}'"):
                wait_until(lambda: first.partitions is None)
        finally:
            second.close()
    finally:
        first.close()


def test_a_sole_member_whose_session_has_expired_does_not_join_again_for_other_topics(
    config: dict[str, str], topics: ClusterAdmin, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # first's session expires ---- a successor joins ---- first gets other topics and would fence it
    topics.create({group: (1, {}), f"{group}-other": (1, {})})
    first, successor = (
        GroupMember(
            config,
            group,
            name_member(SubscriptionType.EXCLUSIVE, name),
            session_ms=6_000,
            instance_id="sole-one",
        )
        for name in ("first", "successor")
    )
    try:
        first.subscribe([group])
        wait_until(lambda: bool(first.partitions))
        # The member thread sends commits, so this runs the callback where librdkafka would.
        monkeypatch.setattr(
            first, "_send", lambda offsets: first._on_lost(first._consumer, first._consumer.assignment())
        )
        assert first.try_commit({(group, 0): 0})
        wait_until(lambda: first.is_given_up)
        successor.subscribe([group])
        wait_until(lambda: bool(successor.partitions))
        joins: list[frozenset[str]] = []
        monkeypatch.setattr(first, "_subscribe", joins.append)
        first.subscribe([group, f"{group}-other"])
        polls = first._heard_at
        wait_until(lambda: first._heard_at > polls + 0.5)
        assert joins == []
        successor.commit({(group, 0): 0}, Deadline.after_ms(60_000))
        with pytest.raises(MemberFenced):
            _ = first.partitions
    finally:
        successor.close()
        first.close()


def test_a_late_refusal_does_not_undo_the_assignment_of_a_member_that_has_joined_again(
    config: dict[str, str], topics: ClusterAdmin, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the answer to a commit of the earlier member ---- joined again ---- this thread reads the answer
    with joined(config, topics, group) as member:
        member.commit({(group, 0): 0}, Deadline.after_ms(60_000))
        wait, waits = member._await_answer, iter(["for an earlier commit", "for this one"])

        def rejoined_meanwhile(deadline: Deadline) -> None:
            wait(deadline)
            if next(waits) == "for this one":
                member._answers = [(group, KafkaError(KafkaError.UNKNOWN_MEMBER_ID))]
                member._rebalances += 1

        monkeypatch.setattr(member, "_await_answer", rejoined_meanwhile)
        assert member.confirm(in_doubt=True)
        assert member.partitions is None, "what was planned before is given up"
        assert member.partitions == {(group, 0)}


def test_a_member_whose_topic_was_deleted_and_created_again_commits(
    config: dict[str, str], topics: ClusterAdmin, group: str
) -> None:
    # no topic is wanted while it does not exist
    with joined(config, topics, group) as member:
        topics.delete(group)
        member.subscribe([])
        time.sleep(1)  # the member thread takes it in
        topics.create({group: (1, {})})
        member.subscribe([group])
        member.commit({(group, 0): 0}, Deadline.after_ms(60_000))
        wait_until(lambda: member.partitions == {(group, 0)})


@pytest.mark.parametrize("instance_id", [None, "sole-one"])
def test_a_member_whose_topics_were_deleted_tells_the_cause(
    config: dict[str, str],
    topics: ClusterAdmin,
    group: str,
    instance_id: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics.create({group: (2, {})})
    name = name_member(SubscriptionType.EXCLUSIVE if instance_id else SubscriptionType.SHARED, "one")
    member = GroupMember(config, group, name, session_ms=6_000, instance_id=instance_id)
    try:
        member.subscribe([group])
        wait_until(lambda: len(member.partitions or ()) == 2)
        topics.delete(group)
        wait_until(lambda: "partitions=2" in caplog.text)
    finally:
        member.close()
    assert f"event=assigned_topics_deleted group={group} topics={group} partitions=2" in caplog.text
    assert "event=session_expired" not in caplog.text


def test_a_member_whose_thread_has_ended_says_so_at_once(
    config: dict[str, str], topics: ClusterAdmin, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined(config, topics, group, session_ms=60_000) as member:
        monkeypatch.setattr(member, "_send", lambda offsets: 1 / 0)
        begun = time.monotonic()
        for ask in (
            lambda: member.commit({(group, 0): 0}, Deadline.after_ms(60_000)),
            lambda: member.confirm(in_doubt=True),
            lambda: member.partitions,
        ):
            with pytest.raises(KafkaRefused, match="ZeroDivisionError"):
                ask()
        assert time.monotonic() - begun < 10


def test_a_member_that_has_left_fences_no_producer(
    config: dict[str, str], topics: ClusterAdmin, group: str
) -> None:
    deadline = Deadline.after_ms(60_000)
    owner = TransactionalProducer(config, group)
    with joined(config, topics, group) as member:
        late = TransactionalProducer(config, group, member=member.metadata)
        owner.open(deadline)
        member.close()
        with pytest.raises(KafkaUnavailable, match="has left the group"):
            late.open(deadline)
        with pytest.raises(KafkaUnavailable, match="has left the group"):
            end_transactions(config, group, deadline, member=member.metadata)
        assert owner.commit([Record(group, 0, None, b"value")], [], deadline)
    owner.discard()


def test_a_member_is_told_once_of_a_partition_that_has_gone_and_come_back(
    config: dict[str, str], topics: ClusterAdmin, group: str
) -> None:
    # first: 0, 1 ---- second joins: 0 or 1 goes ---- second leaves: it comes back
    topics.create({group: (2, {})})
    first, second = (
        GroupMember(config, group, name_member(SubscriptionType.SHARED, name), session_ms=6_000)
        for name in ("one", "two")
    )
    try:
        first.subscribe([group])
        wait_until(lambda: len(first.partitions or ()) == 2)
        assert first.take_revoked() == frozenset()
        second.subscribe([group])
        wait_until(lambda: bool(second.partitions))
        gone = second.partitions
        second.close()
        wait_until(lambda: len(first.partitions or ()) == 2)
        assert first.take_revoked() == gone
        assert first.take_revoked() == frozenset()
    finally:
        second.close()
        first.close()


@pytest.mark.parametrize("code", [KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION])
def test_a_member_whose_commit_is_refused_amid_a_rebalance_knows_its_partitions_after_it(
    config: dict[str, str], topics: ClusterAdmin, group: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    # another joins ---- the commit of the first is refused ---- the first keeps one of its partitions
    topics.create({group: (2, {})})
    both = [
        GroupMember(config, group, name_member(SubscriptionType.SHARED, name), session_ms=6_000)
        for name in ("one", "two")
    ]
    first, second = both
    try:
        first.subscribe([group])
        wait_until(lambda: len(first.partitions or ()) == 2)
        positions = {(group, 0): 0, (group, 1): 0}
        first.commit(positions, Deadline.after_ms(60_000))
        with monkeypatch.context() as refusing:
            refusing.setattr(first, "_send", lambda offsets: first._on_commit(KafkaError(code), offsets))
            assert first.confirm(in_doubt=True)
        second.subscribe([group])
        wait_until(lambda: len(second.partitions or ()) == 1)
        wait_until(lambda: len(first.partitions or ()) == 1)
        assert (first.partitions or frozenset()) | (second.partitions or frozenset()) == positions.keys()
    finally:
        for member in both:
            member.close()


def test_a_group_is_deleted_with_its_offsets_once(
    config: dict[str, str], topics: ClusterAdmin, group: str
) -> None:
    topics.create({group: (1, {})})
    topics.commit(group, {(group, 0): 0})
    assert topics.delete_group(group)
    assert topics.committed(group, [(group, 0)]) == {}
    assert not topics.delete_group(group)


def test_a_broker_that_restarts_is_waited_for_and_ends_nobody(mortal: EmbeddedKafka, group: str) -> None:
    # Requests of an AdminClient about the group would end this process here.
    topics = ClusterAdmin({"bootstrap.servers": mortal.bootstrap_servers})
    topics.create({group: (1, {})})
    topics.commit(group, {(group, 0): 0})
    stopped = threading.Event()
    answers: list[object] = []

    def ask() -> None:
        while not stopped.is_set():
            try:
                answers.append(topics.group_members(group))
            except KafkaUnavailable as away:
                answers.append(away)

    asking = threading.Thread(target=ask)
    asking.start()
    deleting = threading.Thread(target=lambda: answers.append(topics.delete_group(group)))
    mortal.kill()
    deleting.start()
    time.sleep(0.5)
    mortal.start()
    deleting.join(60)
    stopped.set()
    asking.join(60)
    assert True in answers
    assert set(answers) <= {True, ()}
