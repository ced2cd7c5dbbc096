"""Control topics, positions and group offsets, asked of a real broker."""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import (
    CursorsTopicNotCompacted,
    GroupInUse,
    InvalidOption,
    KafkaFailure,
    KafkaRefused,
    KafkaUnavailable,
    MarkersTopicNotLogAppendTime,
    NotAuthorized,
    TopicGone,
    TopicNotFound,
    TransactionStaysOpen,
)
from spark_cursor_source.kafka import admin, control_topics
from spark_cursor_source.kafka.admin import ClusterAdmin, ControlTopics
from spark_cursor_source.kafka.control_topics import describe_topics
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.group_offsets import GroupOffsets
from spark_cursor_source.kafka.rights import DESCRIBE
from tests.conftest import CreateTopic, DeleteTopic
from tests.kafka.control_plane import PARTITIONS, Control, allow_bob, login, produce
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def names() -> dict[str, str]:
    unique = uuid.uuid4().hex[:10]
    return {kind: f"{kind}-{unique}" for kind in ("markers", "redeliveries", "cursors")}


# -- control topics --------------------------------------------------------------------------------------


def test_missing_control_topics_are_made_as_the_design_says(topics: ClusterAdmin) -> None:
    named = names()
    assert topics.ensure_control(**named) == ControlTopics(markers=8, redeliveries=8, cursors=8)
    markers = topics.settings(named["markers"])
    assert markers["message.timestamp.type"] == "LogAppendTime"
    assert markers["cleanup.policy"] == "delete"
    assert markers["retention.ms"] == str(7 * 86_400_000)
    assert topics.settings(named["redeliveries"])["cleanup.policy"] == "delete"
    assert topics.settings(named["cursors"])["cleanup.policy"] == "compact"


def test_control_topics_can_be_used_as_soon_as_they_are_ensured(topics: ClusterAdmin) -> None:
    for _ in range(5):
        named = names()
        topics.ensure_control(**named, partitions=4)
        partitions = [(topic, number) for topic in named.values() for number in range(4)]
        assert topics.end_offsets(partitions, committed=True) == dict.fromkeys(partitions, 0)


def test_control_topics_that_are_there_keep_their_partitions(
    topics: ClusterAdmin, create_topic: CreateTopic
) -> None:
    markers = create_topic(3, message_timestamp_type="LogAppendTime")
    cursors = create_topic(1, cleanup_policy="compact")
    found = topics.ensure_control(markers=markers, redeliveries=names()["redeliveries"], cursors=cursors)
    assert found == ControlTopics(markers=3, redeliveries=8, cursors=1)


def test_many_may_make_the_control_topics_at_the_same_time(config: dict[str, str]) -> None:
    named = names()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ClusterAdmin(config).ensure_control(**named), range(4)))
    assert found == [ControlTopics(markers=8, redeliveries=8, cursors=8)] * 4


def test_a_markers_topic_without_append_time_is_refused_and_the_error_says_how_to_fix_it(
    topics: ClusterAdmin, create_topic: CreateTopic
) -> None:
    markers = create_topic(8, message_timestamp_type="CreateTime")
    with pytest.raises(MarkersTopicNotLogAppendTime, match="--bootstrap-server 127") as refused:
        topics.ensure_control(**(names() | {"markers": markers}))
    assert f"Markers topic '{markers}' uses CreateTime" in str(refused.value)
    assert "Set message.timestamp.type=LogAppendTime" in str(refused.value)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_cursors_topic_that_forgets_is_refused(
    topics: ClusterAdmin, create_topic: CreateTopic, policy: str
) -> None:
    cursors = create_topic(1, cleanup_policy=policy)
    with pytest.raises(CursorsTopicNotCompacted, match=r"Set cleanup\.policy=compact"):
        topics.ensure_control(**(names() | {"cursors": cursors}))


def test_a_topic_that_no_cluster_can_have_is_refused(topics: ClusterAdmin) -> None:
    with pytest.raises(KafkaRefused, match="create topic on 'or ders'"):
        topics.create({"or ders": (1, {})})


# -- topics ----------------------------------------------------------------------------------------------


def test_a_topic_that_is_made_again_has_another_id(
    topics: ClusterAdmin, create_topic: CreateTopic, delete_topic: DeleteTopic
) -> None:
    name = create_topic(2)
    before = topics.describe([name])[name]
    assert (before.name, before.partitions) == (name, 2)
    delete_topic(name)
    topics.create({name: (2, {})})
    assert topics.describe([name])[name].topic_id != before.topic_id


def test_a_deleted_topic_is_no_longer_shown_when_the_deletion_returns(
    topics: ClusterAdmin, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first three answers after the deletion are of a broker that has not heard of it.
    name = create_topic()
    stale = describe_topics(topics._calls, [name], deadline=Deadline.after_ms(60_000))
    answers = [stale] * 3

    def describe(*asked: Any, **more: Any) -> Any:
        return answers.pop() if answers and deletes.called else describe_topics(*asked, **more)

    deletes = Mock(wraps=control_topics.delete_topics)
    monkeypatch.setattr(admin, "delete_topics", deletes)
    for module in (admin, control_topics):
        monkeypatch.setattr(module, "describe_topics", describe)
    assert topics.delete(name)
    assert topics.existing([name]) == {}
    assert not topics.delete(name)


def test_a_topic_is_deleted_also_if_no_broker_answers_afterwards(
    mortal: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"bootstrap.servers": mortal.bootstrap_servers}
    ClusterAdmin(config).create({"gone": (1, {})})
    topics = ClusterAdmin(config, timeout_ms=20_000)

    def describe(*asked: Any, **more: Any) -> Any:
        if not paused:
            mortal.pause()
            paused.append(True)
        return describe_topics(*asked, **more)

    paused: list[bool] = []
    monkeypatch.setattr(control_topics, "describe_topics", describe)
    try:
        assert topics.delete("gone")
    finally:
        mortal.resume()
    assert paused
    monkeypatch.undo()
    assert topics.existing(["gone"]) == {}


def test_all_topics_that_are_missing_are_named(topics: ClusterAdmin, create_topic: CreateTopic) -> None:
    with pytest.raises(TopicNotFound) as missing:
        topics.describe([create_topic(), "not-here", "nor-here"])
    assert missing.value.topics == ("nor-here", "not-here")


def test_a_pattern_is_java_s_and_matches_whole_names_that_are_not_the_brokers_own(
    topics: ClusterAdmin, create_topic: CreateTopic, config: dict[str, str]
) -> None:
    unique = uuid.uuid4().hex[:8]
    for name in (f"{unique}.eu", f"{unique}.us", f"{unique}Xeu", f"my-{unique}.eu"):
        create_topic(name=name)
    assert topics.matching(rf"\Q{unique}.\E(?<region>eu|us)") == [f"{unique}.eu", f"{unique}.us"]
    topics.commit("some-group", {(f"{unique}.eu", 0): 0})  # so that __consumer_offsets is there
    assert not [name for name in topics.matching(".*") if name.startswith("__consumer")]


def test_a_pattern_that_only_java_knows_is_refused(topics: ClusterAdmin) -> None:
    with pytest.raises(InvalidOption, match="subscribePattern"):
        topics.matching(r"\p{Alpha}+")


# -- positions -------------------------------------------------------------------------------------------


def test_an_open_transaction_holds_back_the_committed_end_only(
    topics: ClusterAdmin, create_topic: CreateTopic, config: dict[str, str]
) -> None:
    topic = create_topic(2)
    produce(config, topic, [{"value": b"before"}])
    producer = Producer({**config, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    partitions = [(topic, 0), (topic, 1)]
    assert topics.end_offsets(partitions, committed=True) == {(topic, 0): 1, (topic, 1): 0}
    assert topics.end_offsets(partitions, committed=False) == {(topic, 0): 2, (topic, 1): 0}
    producer.abort_transaction(30)


def test_the_beginning_is_the_first_record_that_is_left(
    topics: ClusterAdmin, create_topic: CreateTopic, config: dict[str, str], admin: AdminClient
) -> None:
    topic = create_topic(2)
    produce(config, topic, [{"value": b"x"}] * 5)
    removed = admin.delete_records([TopicPartition(topic, 0, 3)])
    next(iter(removed.values())).result(timeout=20)
    assert topics.beginning_offsets([(topic, 0), (topic, 1)]) == {(topic, 0): 3, (topic, 1): 0}


def test_a_time_is_found_as_the_first_record_of_it_and_a_later_one_as_the_end(
    topics: ClusterAdmin, create_topic: CreateTopic, config: dict[str, str]
) -> None:
    topic = create_topic(2)
    produce(config, topic, [{"value": b"x", "timestamp": 1_000 * n} for n in range(1, 6)])
    partitions = [(topic, 0), (topic, 1)]
    assert topics.offsets_for_time(partitions, 2_500) == {(topic, 0): 2, (topic, 1): 0}
    assert topics.offsets_for_time(partitions, 0) == {(topic, 0): 0, (topic, 1): 0}
    assert topics.offsets_for_time(partitions, 5_001) == {(topic, 0): 5, (topic, 1): 0}


def test_the_last_append_time_is_the_broker_s_and_empty_partitions_have_none(
    topics: ClusterAdmin, create_topic: CreateTopic, config: dict[str, str]
) -> None:
    topic = create_topic(3, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    produce(config, topic, [{"value": b"a", "partition": 1}])
    produce(config, topic, [{"value": b"b", "partition": 1}])
    found = topics.last_appends((topic, number) for number in range(3))
    assert list(found) == [(topic, 1)]
    last = found[topic, 1]
    assert last.offset == 1
    assert before <= last.at_ms <= time.time() * 1000
    assert topics.newest_ms([(topic, 1), (topic, 2)]) == {topic: last.at_ms}


def test_positions_of_what_does_not_exist_are_an_error_of_ours(
    topics: ClusterAdmin, create_topic: CreateTopic
) -> None:
    with pytest.raises(TopicNotFound):
        topics.end_offsets([("not-here", 0)], committed=True)
    topic = create_topic(1)
    with pytest.raises(TopicGone) as gone:
        topics.beginning_offsets([(topic, 0), (topic, 5)])
    assert (gone.value.topic, gone.value.partition) == (topic, 5)


def test_no_partitions_are_no_question(topics: ClusterAdmin) -> None:
    assert topics.end_offsets([], committed=True) == {}
    assert topics.offsets_for_time([], 0) == {}


# -- groups ----------------------------------------------------------------------------------------------


def test_a_group_without_members_keeps_the_positions_it_is_given(
    topics: ClusterAdmin, create_topic: CreateTopic
) -> None:
    topic, group = create_topic(3), uuid.uuid4().hex
    everywhere = [(topic, number) for number in range(3)]
    assert topics.committed(group, everywhere) == {}
    topics.commit(group, {(topic, 0): 5, (topic, 2): 0})
    topics.commit(group, {(topic, 0): 9})
    assert topics.committed(group, everywhere) == {(topic, 0): 9, (topic, 2): 0}
    assert topics.committed(group, everywhere[1:]) == {(topic, 2): 0}


def test_the_positions_of_a_group_with_members_are_left_to_them(
    topics: ClusterAdmin, create_topic: CreateTopic, config: dict[str, str]
) -> None:
    topic, group = create_topic(), uuid.uuid4().hex
    member = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    while not member.assignment():
        member.poll(0.1)
    with pytest.raises(GroupInUse, match=group):
        topics.commit(group, {(topic, 0): 1})
    member.close()


def test_the_positions_of_many_groups_are_read_with_few_connections(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    # A page or an exporter asks for a group of each exclusive subscription, as long as it runs.
    topic, groups = create_topic(), [uuid.uuid4().hex for _ in range(40)]
    topics = ClusterAdmin(config)
    topics.commit(groups[0], {(topic, 0): 7})
    before = threads()
    for group in groups[1:]:
        assert topics.committed(group, [(topic, 0)]) == {}
    assert threads() - before < 100  # with 40 consumers there are more than 150
    assert topics.committed(groups[0], [(topic, 0)]) == {(topic, 0): 7}


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_a_position_in_a_topic_that_is_gone_cannot_be_committed(topics: ClusterAdmin) -> None:
    with pytest.raises(TopicNotFound):
        topics.commit(uuid.uuid4().hex, {("not-here", 0): 1})


def test_a_transaction_that_commits_for_a_group_is_waited_for(
    topics: ClusterAdmin, create_topic: CreateTopic, config: dict[str, str]
) -> None:
    # begin ---- send offsets ---- [committed() asks] ---- commit: the answer is the new one
    topic, group = create_topic(), uuid.uuid4().hex
    consumer = Consumer({**config, "group.id": group})
    producer = Producer({**config, "transactional.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 4, "by a transaction")], consumer.consumer_group_metadata(), 30
    )
    timer = threading.Timer(0.5, producer.commit_transaction)
    timer.start()
    found = topics.committed_with_metadata(group, [(topic, 0)])
    timer.join()
    assert (found[topic, 0].position, found[topic, 0].metadata) == (4, "by a transaction")
    consumer.close()


def test_a_transaction_that_stays_open_is_named_as_the_reason(
    topics: ClusterAdmin, create_topic: CreateTopic, config: dict[str, str]
) -> None:
    topic, group = create_topic(), uuid.uuid4().hex
    producer = Producer({**config, "transactional.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    with closing(Consumer({**config, "group.id": group})) as member:
        offsets = [TopicPartition(topic, 0, 4)]
        producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 30)
    asks = topics.within(Deadline.after_ms(1_500))
    with pytest.raises(TransactionStaysOpen, match=rf"of group '{group}': a transaction is open"):
        asks.committed(group, [(topic, 0)])
    assert asks.committed_with_metadata(group, [(topic, 0)], stable=False) == {}
    producer.abort_transaction(30)
    assert topics.committed(group, [(topic, 0)]) == {}


# -- a broker that is away, or that refuses -----------------------------------------------------------------


def test_a_broker_that_restarts_is_waited_for(
    mortal: EmbeddedKafka, make_control: Callable[[dict[str, str]], Control]
) -> None:
    config = {"bootstrap.servers": mortal.bootstrap_servers}
    control = make_control(config)
    topics = ClusterAdmin(config, timeout_ms=120_000)
    assert topics.describe([control.markers])
    mortal.stop()
    back = threading.Timer(0.5, mortal.start)
    back.start()
    assert topics.end_offsets([(control.markers, 0)], committed=True) == {(control.markers, 0): 0}
    back.join()
    assert topics.describe([control.markers])


def test_a_client_that_knew_the_leaders_of_before_a_crash_learns_of_the_new_ones(
    mortal: EmbeddedKafka, make_control: Callable[[dict[str, str]], Control]
) -> None:
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers, "log_level": "0"})
    topics = ClusterAdmin(control.config, timeout_ms=120_000)
    markers = [(control.markers, number) for number in range(PARTITIONS)]
    for _ in range(3):
        assert set(topics.end_offsets(markers, committed=True).values()) == {0}
        mortal.kill()
        mortal.start()
    assert set(topics.end_offsets(markers, committed=True).values()) == {0}


def test_a_broker_that_stays_away_is_an_error_when_the_time_is_over(mortal: EmbeddedKafka) -> None:
    topics = ClusterAdmin({"bootstrap.servers": mortal.bootstrap_servers, "log_level": 0}, timeout_ms=1_000)
    mortal.stop()
    begun = time.monotonic()
    calls: list[Callable[[], object]] = [
        lambda: topics.describe(["any"]),
        lambda: topics.end_offsets([("any", 0)], committed=True),
        lambda: topics.committed("any", [("any", 0)]),
        lambda: topics.commit("any", {("any", 0): 1}),
        lambda: topics.matching("any"),
        lambda: topics.ensure_control(**names()),
    ]
    for call in calls:
        with pytest.raises(KafkaUnavailable) as unavailable:
            call()
        assert unavailable.value.waited_ms >= 1_000
        assert "kafka.bootstrap.servers" in str(unavailable.value)
    assert time.monotonic() - begun < 10 * len(calls)


def test_answers_that_come_after_the_time_is_over_do_no_harm(
    mortal: EmbeddedKafka, make_control: Callable[[dict[str, str]], Control]
) -> None:
    # librdkafka ends the process over some of them: what asks such questions must not be used
    config = {"bootstrap.servers": mortal.bootstrap_servers, "log_level": "0"}
    control = make_control(config)
    patient, hasty = ClusterAdmin(config), ClusterAdmin(config, timeout_ms=300)
    markers, group = (control.markers, 0), uuid.uuid4().hex
    patient.commit(group, {markers: 1})
    calls: list[Callable[[], object]] = [
        lambda: hasty.describe([control.markers]),
        lambda: hasty.end_offsets([markers], committed=True),
        lambda: hasty.last_appends([markers]),
        lambda: hasty.committed(group, [markers]),
        lambda: hasty.commit(group, {markers: 2}),
        lambda: hasty.settings(control.markers),
        lambda: hasty.create({"another": (1, {})}),
    ]
    mortal.pause()
    try:
        for call in calls:
            with pytest.raises(KafkaUnavailable):
                call()
    finally:
        mortal.resume()
    patient.commit(group, {markers: 3})
    time.sleep(2)  # the commit that was abandoned may still arrive in this time
    assert patient.committed(group, [markers])[markers] in (2, 3)  # both were under way
    patient.commit(group, {markers: 4})
    assert patient.committed(group, [markers]) == {markers: 4}


def test_a_client_that_has_lost_its_brokers_is_replaced(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    # a lone broker that was fenced for a moment may be lost to a client; here the client never finds one
    name, topics = create_topic(), ClusterAdmin(config)
    for call in (lambda: topics.describe([name]), lambda: topics.matching(name)):
        topics._calls._living.client = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
        assert call()


def test_a_client_that_loses_its_brokers_between_two_requests_for_offsets_is_replaced(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    # the first request is answered with an old epoch, and the refresh of the metadata has no broker to ask
    class Losing:
        def __init__(self) -> None:
            self.client = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def list_offsets(self, wanted: dict[TopicPartition, Any], **_: object) -> dict[TopicPartition, Any]:
            refused: Future[Any] = Future()
            refused.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
            return dict.fromkeys(wanted, refused)

    name, topics = create_topic(), ClusterAdmin(config)
    topics._calls._living.client = Losing()
    assert topics.end_offsets([(name, 0)], committed=False) == {(name, 0): 0}


def test_a_client_is_not_replaced_while_no_other_one_would_reach_a_broker() -> None:
    topics = ClusterAdmin({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, timeout_ms=4_000)
    client = topics._calls.client
    with pytest.raises(KafkaUnavailable):
        topics.describe(["any"])
    assert topics._calls.client is client


def test_a_client_whose_commit_nobody_answers_ends_where_it_is_dropped(mortal: EmbeddedKafka) -> None:
    # librdkafka keeps a commit that waits for a coordinator, and a processor busy, for a session's time; and
    # what is in a cycle ends in whatever thread the garbage collector runs, and keeps that one waiting
    config = {"bootstrap.servers": mortal.bootstrap_servers, "log_level": 0}
    offsets = GroupOffsets(config, uuid.uuid4().hex)
    mortal.stop()
    with suppress(KafkaUnavailable):
        offsets.commit({("any", 0): 1}, Deadline.after_ms(1_000))
    ended, began = weakref.ref(offsets), time.monotonic()
    del offsets
    assert ended() is None
    assert time.monotonic() - began < 40  # about 1 s


def test_whoever_may_not_is_told_what(guarded_broker: EmbeddedKafka) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    named = names()
    ClusterAdmin(servers | login("admin", "of-admin")).ensure_control(**named)
    topics = ClusterAdmin(servers | login("bob", "of-bob") | {"log_level": "0"})
    markers = named["markers"]
    calls: dict[tuple[str, str], Callable[[], object]] = {
        (markers, "describe topic"): lambda: topics.describe([markers]),
        ("bobs", "create topic"): lambda: topics.create({"bobs": (1, {})}),
        ("bobs-group", "read offsets of group"): lambda: topics.committed("bobs-group", [(markers, 0)]),
        ("bobs-group", "commit offsets of group"): lambda: topics.commit("bobs-group", {(markers, 0): 1}),
    }
    for (resource, operation), call in calls.items():
        with pytest.raises(NotAuthorized) as refused:
            call()
        assert (refused.value.resource, refused.value.operation) == (resource, operation)
    with pytest.raises(NotAuthorized, match=rf"--operation Describe --topic {markers}\.") as refused:
        topics.end_offsets([(markers, 0)], committed=True)
    assert refused.value.resource == markers


def test_a_topic_that_may_not_be_described_hides_the_ends_of_no_other(
    guarded_broker: EmbeddedKafka,
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    administrator = Control(servers | login("admin", "of-admin"))
    topics = ClusterAdmin(administrator.config)
    topics.create({administrator.queue: (2, {}), f"{administrator.queue}-closed": (1, {})})
    allow_bob(administrator, {administrator.queue: AclOperation.DESCRIBE})
    bob = ClusterAdmin(servers | login("bob", "of-bob"))
    wait_until(lambda: not bob.missing_rights({administrator.queue: [DESCRIBE]}))
    asked = [(administrator.queue, 1), (administrator.queue, 2), (f"{administrator.queue}-closed", 0)]
    ends, unknown = bob.known_ends(asked, committed=True)
    assert (ends, unknown.keys()) == ({asked[0]: 0}, {asked[2]})
    assert "did not authorize describe topic" in unknown[asked[2]]


def test_a_leader_that_does_not_answer_hides_the_ends_of_its_own_partitions_only(
    topics: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_offsets(_: ClusterAdmin, partitions: list[tuple[str, int]], **__: object) -> Any:
        if ("b", 0) in partitions:
            raise KafkaUnavailable("list offsets", 5_000, "timed out")
        return dict.fromkeys(partitions, 7)

    leaders = {("a", 0): 1, ("b", 0): 2, ("a", 1): 3}
    monkeypatch.setattr(admin, "leaders_of", lambda *_, **__: (leaders, {}))
    monkeypatch.setattr(ClusterAdmin, "end_offsets", end_offsets)
    ends, unknown = topics.known_ends([*leaders, ("gone", 0)], committed=True)
    assert (ends, unknown.keys()) == ({("a", 0): 7, ("a", 1): 7}, {("b", 0)})
    assert "timed out" in unknown["b", 0]


def test_a_wrong_password_is_named_as_the_cause_and_is_not_told(guarded_broker: EmbeddedKafka) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    topics = ClusterAdmin(servers | login("bob", "hunter2"), timeout_ms=6_000)
    with pytest.raises(KafkaFailure) as refused:
        topics.describe(["any"])
    assert "Invalid username or password" in str(refused.value)
    assert "hunter2" not in str(refused.value) + repr(refused.value)
