"""A cluster of three: its brokers one by one, and what the library makes and finds on it."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from spark_cursor_source.admin.doctor import examine
from spark_cursor_source.admin.due import read_due
from spark_cursor_source.admin.live_stats import LiveStats
from spark_cursor_source.admin.stats import read_stats
from spark_cursor_source.admin.topic_metrics import TopicMetrics
from spark_cursor_source.client import Client, Message, StartAt, StopAt
from spark_cursor_source.consumer.planner import Planner
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.control_names import AllNames
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.stats import Stats
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.runtime import find_runtime
from spark_cursor_source.errors import BrokerError, KafkaUnavailable, QueueTopicEndsEarlier
from spark_cursor_source.interop.lease_table import END, START
from spark_cursor_source.interop.reappend import Reappender
from spark_cursor_source.kafka.admin import ClusterAdmin, epochs_of
from spark_cursor_source.kafka.control_topics import MARKERS
from spark_cursor_source.kafka.tail_consumer import TailConsumer
from spark_cursor_source.metrics.table import BACKLOG, END_UNKNOWN
from spark_cursor_source.options.reappend import MarkerFormat, ReappendOptions
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.topics.dead_letter_topics import DeadLetterTopics
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire.offset_json import decode, encode
from tests.devkit.test_broker import alive, read_all, write
from tests.interop.test_reappend import due, rows_of
from tests.kafka_version import KAFKA
from tests.replicas import await_replicas
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    # One replica by default, as in a cluster of which nobody said more.
    lax = {"default.replication.factor": 1, "min.insync.replicas": 1}
    with EmbeddedKafka(brokers=3, properties=lax) as running:
        yield running


@pytest.fixture(autouse=True)
def whole(cluster: EmbeddedKafka) -> None:
    """Each test finds all three at work, known to each other and with every record.

    A broker that was killed comes back without the latest records. If the only broker that has them is killed
    before it has caught up, their partitions stay without a leader.
    """
    cluster.start()
    await_replicas(cluster)


def in_sync(cluster: EmbeddedKafka, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return sorted(admin.list_topics(topic, timeout=20).topics[topic].partitions[0].isrs)


def make(cluster: EmbeddedKafka, topic: str) -> None:
    """A topic of which an acknowledged record outlives a broker."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(timeout=20)


def test_a_cluster_keeps_what_its_coordinators_know_in_three_replicas(cluster: EmbeddedKafka) -> None:
    make(cluster, "thrice")
    with_transactions(cluster, "thrice")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics("__transaction_state", timeout=20)
    assert list(found.brokers) == [1, 2, 3]
    parts = found.topics["__transaction_state"].partitions.values()
    assert all(sorted(part.replicas) == [1, 2, 3] for part in parts)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "__transaction_state")
    settings = admin.describe_configs([resource])[resource].result(timeout=20)
    assert settings["min.insync.replicas"].value == "2"


def with_transactions(cluster: EmbeddedKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "tx"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", partition=0)
    producer.commit_transaction(30)


def test_a_cluster_goes_on_without_its_leader_which_comes_back(cluster: EmbeddedKafka) -> None:
    make(cluster, "failover")
    write(cluster, "failover", b"1")
    leader = cluster.leader("failover", 0)
    assert leader in cluster.pids
    cluster.kill(leader)
    assert leader not in cluster.pids
    assert len(cluster.pids) == 2
    write(cluster, "failover", b"2")
    wait_until(lambda: cluster.leader("failover", 0) not in (leader, None))
    cluster.start(leader)
    wait_until(lambda: in_sync(cluster, "failover") == [1, 2, 3])
    assert read_all(cluster, "failover") == [b"1", b"2"]


def test_a_cluster_elects_another_controller_while_one_stands_still(cluster: EmbeddedKafka) -> None:
    paused = cluster.controller()
    assert paused in cluster.pids
    cluster.pause(paused)
    try:
        wait_until(lambda: cluster.controller() not in (paused, None))
        assert paused in cluster.pids
    finally:
        cluster.resume(paused)


def test_the_coordinators_of_a_group_and_of_a_transaction_are_those_that_the_brokers_name(
    cluster: EmbeddedKafka,
) -> None:
    make(cluster, "coordinated")
    with_transactions(cluster, "coordinated")
    assert cluster.transaction_coordinator("tx") in cluster.pids
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for group in ("cursorq-orders", "a group with a \u00fcmlaut", "polygenelubricants"):
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition("coordinated", 0, 1)], asynchronous=False)
        consumer.close()
        told = admin.describe_consumer_groups([group])[group].result(timeout=30).coordinator
        assert cluster.coordinator(group) == told.id


def test_one_broker_of_a_cluster_stops_and_starts_on_its_port(cluster: EmbeddedKafka) -> None:
    servers, pid = cluster.bootstrap_servers, cluster.pids[2]
    cluster.stop(2)
    assert not alive(pid)
    assert sorted(cluster.pids) == [1, 3]
    cluster.start(2)
    assert cluster.pids[2] != pid
    assert cluster.bootstrap_servers == servers


def test_a_broker_that_a_cluster_has_not_is_an_error_that_names_the_ids(cluster: EmbeddedKafka) -> None:
    with pytest.raises(BrokerError, match="no broker 4; their ids are 1 to 3"):
        cluster.kill(4)
    with pytest.raises(BrokerError, match="one broker at least"):
        EmbeddedKafka(brokers=0)


# ---- an administrator's client


@pytest.mark.parametrize("stands_still", [False, True], ids=["killed", "paused"])
def test_an_administrator_whose_controller_is_gone_asks_another_broker(
    cluster: EmbeddedKafka, stands_still: bool
) -> None:
    # describe ---- SIGKILL or SIGSTOP of the broker that the client takes for the controller ---- describe
    topics = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers}, timeout_ms=60_000)
    topics.create({"described": (1, {})})
    controller = topics._calls.client.describe_cluster().result(timeout=30).controller.id
    if stands_still:
        cluster.pause(controller)
    else:
        cluster.kill(controller)
    try:
        assert topics.describe(["described"])
    finally:
        if stands_still:
            cluster.resume(controller)


def test_the_members_of_a_group_are_known_soon_after_the_death_of_another_broker(
    cluster: EmbeddedKafka,
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": "0"}
    make(cluster, "grouped")
    topics = ClusterAdmin(config, timeout_ms=20_000)
    topics.commit("readers", {("grouped", 0): 0})
    assert topics.group_members("readers") == ()
    cluster.kill(1)
    assert topics.group_members("readers") == ()
    assert topics.members_by_group(["readers"]) == {"readers": ()}


def test_the_settings_of_each_broker_are_read(cluster: EmbeddedKafka) -> None:
    settings = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers}).broker_settings()
    assert {number: found["node.id"] for number, found in settings.items()} == {1: "1", 2: "2", 3: "3"}


def test_the_end_of_a_log_is_known_soon_after_the_death_of_its_leader(cluster: EmbeddedKafka) -> None:
    # end ---- SIGKILL of the leader, an election ---- end, from a client that knows the earlier leader only
    config = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": "0"}
    topics = ClusterAdmin(config, timeout_ms=8_000)
    make(cluster, "elected")
    write(cluster, "elected", b"1")
    assert topics.end_offsets([("elected", 0)], committed=True) == {("elected", 0): 1}
    leader = cluster.leader("elected", 0)
    cluster.kill(leader)
    wait_until(lambda: cluster.leader("elected", 0) not in (leader, None))
    assert topics.end_offsets([("elected", 0)], committed=True) == {("elected", 0): 1}


# ---- what the library makes


def settings_of(topics: ClusterAdmin, topic: str) -> tuple[set[tuple[int, ...]], str | None]:
    """The replicas of the partitions, sorted, and how many of them acknowledge."""
    placed = {tuple(sorted(replicas)) for _, replicas, _ in topics.placements(topic).values()}
    return placed, topics.settings(topic)["min.insync.replicas"]


def test_topics_of_ours_have_three_replicas_of_which_two_acknowledge(cluster: EmbeddedKafka) -> None:
    # the brokers' own defaults are one replica, and one that acknowledges
    kafka = {"bootstrap.servers": cluster.bootstrap_servers}
    topics = ClusterAdmin(kafka)
    topics.ensure_control(markers="m3", redeliveries="r3", cursors="c3", partitions=2)
    topics.ensure_streams("s3")
    topics.create({"orders": (1, {})})
    DeadLetterTopics(topics).ensure(["orders-s-DLQ"], like="orders")
    with Client({"kafka.bootstrap.servers": kafka["bootstrap.servers"], "streamsTopic": "s3"}) as client:
        client.create_stream("stream", 1)
        client.create_stream("as-said", 1, replication=2, min_insync=1)
    for topic in ("m3", "r3", "c3", "s3", "orders-s-DLQ", "stream"):
        assert settings_of(topics, topic) == ({(1, 2, 3)}, "2"), topic
    (replicas,), acknowledging = settings_of(topics, "as-said")
    assert (len(replicas), acknowledging) == (2, "1")


def test_a_weak_control_topic_is_told_once_in_the_log_and_by_stats(
    cluster: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = {"bootstrap.servers": cluster.bootstrap_servers}
    topics = ClusterAdmin(kafka)
    for name, replication, settings in [("m1", 1, MARKERS.settings), ("r1", 3, {}), ("c1", None, COMPACTED)]:
        topics.create_new(name, 1, settings, replication=replication)
    for _ in range(2):
        topics.ensure_control(markers="m1", redeliveries="r1", cursors="c1")
    told = [record.getMessage() for record in caplog.records if "event=weak_topic" in record.getMessage()]
    assert len(told) == 2
    assert told[0].startswith("topic m1 has replication 1 and min.insync.replicas 1 on 3 brokers")
    assert "kafka-reassign-partitions.sh" in told[0]
    assert told[1].startswith("topic r1 has replication 3 and min.insync.replicas 1 on 3 brokers")
    assert "kafka-configs.sh" in told[1]
    stats = read_stats(kafka, markers_topic="m1", redeliveries_topic="r1", cursors_topic="c1")
    assert [weak["topic"] for weak in json.loads(stats.to_json())["weak_control_topics"]] == ["m1", "r1"]
    assert [line[:17] for line in stats.to_text().splitlines()] == ["warning: topic m1", "warning: topic r1"]


def test_the_command_that_is_told_with_a_lax_control_topic_cures_it(
    cluster: EmbeddedKafka, tmp_path: Path
) -> None:
    topics = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers})
    topics.create_new("lax", 1, {"min.insync.replicas": 1}, replication=3)
    # A broker that was restarted for this test may not be known to each of the others yet.
    wait_until(lambda: len(topics.weak(["lax"])) == 1)
    (weak,) = topics.weak(["lax"])
    run_kafka_script(weak.cure, "kafka-configs.sh", "kafka.admin.ConfigCommand", tmp_path)
    wait_until(lambda: topics.weak(["lax"]) == ())  # each broker learns of it in its own time


def run_kafka_script(command: str, script: str, tool: str, directory: Path) -> None:
    """Run a command line with one of Kafka's scripts, whose program is in the jars of the broker."""
    runtime = find_runtime(print)
    quick = ["-XX:TieredStopAtLevel=1", f"-XX:SharedArchiveFile={runtime.archive}"]
    program = shlex.join([runtime.java, *quick, "-cp", runtime.classpath, tool])
    found = directory / script
    found.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    found.chmod(0o755)
    subprocess.run(
        ["/bin/sh", "-c", f"PATH={directory}:$PATH; {command}"], cwd=directory, check=True, timeout=90
    )


# ---- a partition without a leader


def test_a_message_in_a_partition_without_a_leader_stays_open_and_holds_up_no_other(
    cluster: EmbeddedKafka,
) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": "0"}
    topics = ClusterAdmin(config, timeout_ms=60_000)
    topics.create_new("leaderless", 2, {"min.insync.replicas": 1}, replication=1)
    leaders = {number: leader for number, (leader, _) in led(topics, "leaderless", partitions=2).items()}
    assert leaders[0] != leaders[1]
    for partition in leaders:
        write(cluster, "leaderless", b"x", partition=partition)
    options = ReappendOptions(
        queue_topic="leaderless",
        marker_format=MarkerFormat.KMQ,
        max_deliveries=None,
        dead_letter_topic="leaderless-dead",
    )
    tracker = Reappender(config, topics, options, markers_topic="markers", patience_ms=20_000)
    cluster.kill(leaders[0])
    wait_until(lambda: cluster.leader("leaderless", 0) is None)
    asked = [("leaderless", 0), ("leaderless", 1), ("nowhere", 0)]
    wait_until(lambda: topics.without_leader(asked) == {("leaderless", 0)})
    with closing(tracker):
        again, end = rows_of(tracker.reappend(due((0, 0, 40), (1, 0, 41))), MarkerFormat.KMQ)
        assert (again[:3], end[:3]) == ((START, 0, 0), (END, 1, 0))
        why, messages = tracker.trouble(1)
        assert (why, messages) == ("partition 0 of topic 'leaderless' has no leader", 1)
        hasty = ClusterAdmin(config, timeout_ms=8_000)
        with pytest.raises(
            KafkaUnavailable, match=r"list offsets.* partition 0 of topic 'leaderless' has no leader"
        ):
            hasty.end_offsets([("leaderless", 0), ("leaderless", 1)], committed=True)
        cluster.start(leaders[0])
        wait_until(lambda: cluster.leader("leaderless", 0) == leaders[0])
        # Its pause lasts 2 s or longer, as a Start says; nobody asks before it is over.
        # A topic that answered late is left alone for some seconds.
        wait_until(lambda: rows_of(tracker.reappend(due((0, 0, 42))), MarkerFormat.KMQ)[0][:3] == (END, 0, 0))


def test_a_queue_without_a_leader_hides_no_other_from_an_operator(cluster: EmbeddedKafka) -> None:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": "0"}
    topics = ClusterAdmin(config, timeout_ms=60_000)
    topics.ensure_control(markers="seen-m", redeliveries="seen-r", cursors="seen-c", partitions=1)
    new = [
        NewTopic(name, 1, replica_assignment=[[broker]], config={"min.insync.replicas": "1"})
        for name, broker in (("lost", 2), ("kept", 3))
    ]
    admin = AdminClient(config)
    for made in admin.create_topics(new).values():
        made.result(timeout=20)
    producer = Producer(config)
    for topic in ("lost", "kept"):
        led(topics, topic, partitions=1)
        write(cluster, topic, b"x", b"y")
        cell = Cell(subscription=f"readers-of-{topic}", topic=topic, partition=0)
        cursor = CursorSnapshot(cell=cell, read_position=1, next_marker=0)
        producer.produce("seen-c", cursor_wire.encode(cursor), cell.key)
    assert producer.flush(20) == 0
    names: AllNames = {
        "markers_topic": "seen-m",
        "redeliveries_topic": "seen-r",
        "cursors_topic": "seen-c",
        "group_id_prefix": "seen",
    }

    def shown(stats: Stats) -> dict[str, tuple[int | None, str | None]]:
        return {one.topic: (one.backlog, one.end_trouble) for one in stats.subscriptions}

    with closing(LiveStats(config, **names)) as live, TopicMetrics(config, **names) as metrics:
        assert shown(live.refresh().stats) == {"lost": (1, None), "kept": (1, None)}
        cluster.kill(2)
        wait_until(lambda: topics.without_leader([("lost", 0), ("kept", 0)]) == {("lost", 0)})
        why = "partition 0 of topic 'lost' has no leader"
        write(cluster, "kept", b"z")
        assert shown(live.refresh(budget_ms=None).stats) == {"lost": (1, why), "kept": (2, None)}
        assert shown(read_stats(config, **names)) == {"lost": (None, why), "kept": (2, None)}
        told = {(one.metric, one.labels[0]): one.value for one in metrics.read() if one.labels}
        assert (told[BACKLOG, "kept"], told[END_UNKNOWN, "kept"], told[END_UNKNOWN, "lost"]) == (2, 0, 1)
        assert (BACKLOG, "lost") not in told
        found = {one.what: one.evidence for one in examine(config, tracker_wait_ms=0, **names)}
        assert found["The log of readers-of-lost of lost cannot be read"] == why
        assert not any("does not exist" in what for what in found)
        assert [(one.topic, one.ready) for one in read_due(config, cursors_topic="seen-c")] == [
            ("kept", 2),
            ("lost", 0),
        ]


def led(topics: ClusterAdmin, topic: str, *, partitions: int) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Leader and replicas of each partition of a new topic, once the broker that is asked knows them all."""
    found: dict[int, tuple[int, tuple[int, ...]]] = {}

    def all_led() -> bool:
        for number, (leader, replicas, _) in topics.placements(topic).items():
            if leader is not None:
                found[number] = leader, replicas
        return len(found) == partitions

    wait_until(all_led)
    return found


# ---- an unclean election

#: the settings of a topic that is to go on at any price
AT_ANY_PRICE = {"min.insync.replicas": 1, "unclean.leader.election.enable": "true"}

has_unclean_elections = pytest.mark.skipif(KAFKA < (4, 0), reason="KRaft has none yet for such a topic")


def ask_on(planner: Planner, start: SourceOffset) -> None:
    """Ask for the next batch until there is an error; a group may have to form anew before."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        planner.latest_offset(start, max_offsets=None)
        time.sleep(0.1)


def query_options(cluster: EmbeddedKafka, topic: str, **more: str) -> SourceOptions:
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": topic,
        # A query that leaves while its coordinator is away stays in its group for a whole session.
        "subscription": f"{topic}-readers",
        "startingOffsets": "earliest",
        # No tracker runs here, and a query that the group gave up while brokers were away would ask for one.
        "sessionTimeout": "5m",
    }
    return SourceOptions.parse(options | more)


def lose_five_of_ten(cluster: EmbeddedKafka, topic: str, read: Callable[[], object]) -> None:
    """Write 5 and 5 records, and lose the last 5 of them by an unclean election.

    ``read`` is called after each write.
    """
    # 5 on both replicas ---- the follower dies ---- 5 on the leader ---- the leader dies, the follower leads
    topics = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers}, timeout_ms=60_000)
    ((leader, replicas),) = led(topics, topic, partitions=1).values()
    (follower,) = {*replicas} - {leader}
    for _ in range(2):
        write(cluster, topic, *[b"x"] * 5)
        read()
        if follower in cluster.pids:
            cluster.kill(follower)
    cluster.kill(leader)
    cluster.start(follower)
    wait_until(lambda: cluster.leader(topic, 0) == follower)


class Run:
    """A query that reads a topic, without a tracker."""

    def __init__(self, options: SourceOptions) -> None:
        self.planner = Planner(options)
        self.end = self.planner.initial_offset()

    def read(self) -> None:
        end = self.planner.latest_offset(self.end, max_offsets=None)
        self.planner.plan(self.end, end)
        self.end = end

    def close(self) -> None:
        self.planner.close()


def look(
    view: SourceTopics, topics: ClusterAdmin, positions: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Check the ends as a query does at each trigger. Returns the leader epochs."""
    ends = topics.log_ends(view.partitions, committed=True)
    view.watch_ends(positions, {tp: end.offset for tp, end in ends.items()}, epochs_of(ends))
    return epochs_of(ends)


@has_unclean_elections
def test_a_query_is_told_of_records_that_an_unclean_election_has_lost(cluster: EmbeddedKafka) -> None:
    topics = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers}, timeout_ms=60_000)
    topics.create_new("unclean", 1, AT_ANY_PRICE, replication=2)
    with closing(Run(query_options(cluster, "unclean"))) as run:
        lose_five_of_ten(cluster, "unclean", run.read)
        assert run.end.queue == {("unclean", 0): 10}
        with pytest.raises(
            QueueTopicEndsEarlier,
            match=r"Topic 'unclean' partition 0 ends at offset 5, before the position 10 .* lost",
        ):
            ask_on(run.planner, run.end)


@has_unclean_elections
def test_a_subscriber_of_a_stream_goes_on_after_an_unclean_election_and_says_so(
    cluster: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    # 10 read ---- the last 5 are lost, and 3 others are written with their offsets: they come
    stream = "unclean-stream"
    topics = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers}, timeout_ms=60_000)
    topics.create_new(stream, 1, AT_ANY_PRICE, replication=2)
    with (
        Client({"kafka.bootstrap.servers": cluster.bootstrap_servers}) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        messages = client.subscribe(stream, start=StartAt.earliest())

        def read(count: int) -> list[tuple[int, bytes | None]]:
            reading = pool.submit(lambda: [next(messages) for _ in range(count)])
            try:
                return [(one.offset, one.value) for one in reading.result(90)]
            except TimeoutError:
                client.close()  # ends the read
                raise

        lose_five_of_ten(cluster, stream, lambda: read(5))
        write(cluster, stream, b"new-5", b"new-6", b"new-7")
        assert read(3) == [(5, b"new-5"), (6, b"new-6"), (7, b"new-7")]
        messages.close()
    assert f"event=stream_truncated stream=('{stream}', 0) position=10 end=5" in caplog.text


@has_unclean_elections
def test_a_subscription_up_to_the_latest_message_ends_if_an_unclean_election_has_lost_it(
    cluster: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    # 10 are there, the stop is behind the last one ---- the last 5 are lost: the first 5 come, and the end
    stream = "unclean-latest"
    topics = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers}, timeout_ms=60_000)
    topics.create_new(stream, 1, AT_ANY_PRICE, replication=2)
    opened: list[Iterator[Message]] = []
    with (
        Client({"kafka.bootstrap.servers": cluster.bootstrap_servers}) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        lose_five_of_ten(
            cluster,
            stream,
            lambda: opened.append(client.subscribe(stream, start=StartAt.earliest(), stop=StopAt.latest())),
        )
        reading = pool.submit(lambda: [one.offset for one in opened[-1]])
        try:
            assert reading.result(60) == [0, 1, 2, 3, 4]
        finally:
            client.close()  # ends the read
    assert f"event=stream_stop_lost stream=('{stream}', 0) stop=10 end=5" in caplog.text


@has_unclean_elections
def test_new_records_with_the_offsets_of_lost_ones_are_told_from_the_lost_ones(
    cluster: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    # 10 read ---- the last 5 are lost, and 8 others are written: the log ends at 13, above the position
    topics = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers}, timeout_ms=60_000)
    topics.create_new("grown", 1, AT_ANY_PRICE, replication=2)
    lost = r"Topic 'grown' partition 0 ends at offset 5, before the position 10 .* lost"
    kafka = {"bootstrap.servers": cluster.bootstrap_servers}
    tail = TailConsumer(kafka, "grown", isolation="read_committed", on_removed=lambda *_: None)
    tail.follow({0: 0})
    stops: list[int] = []

    def read_on() -> None:
        run.read()
        past = run.end.queue["grown", 0]
        wait_until(lambda: past in stops or stops.extend(one.stop for one in tail.read(10, 0.2)))
        look(running, topics, run.end.queue)

    with (
        closing(Run(query_options(cluster, "grown"))) as run,
        closing(SourceTopics(query_options(cluster, "grown"), topics)) as running,
        closing(tail),
    ):
        running.refresh()
        lose_five_of_ten(cluster, "grown", read_on)
        write(cluster, "grown", *[b"y"] * 8)
        with pytest.raises(QueueTopicEndsEarlier, match=lost):
            look(running, topics, run.end.queue)
        with pytest.raises(QueueTopicEndsEarlier, match=lost):
            wait_until(lambda: tail.read(10, 0.2) and False)
    checkpoint = decode(encode(run.end))
    assert checkpoint.epochs.keys() == {("grown", 0)}
    with (
        closing(SourceTopics(query_options(cluster, "grown"), topics)) as view,
        pytest.raises(QueueTopicEndsEarlier, match=lost),
    ):
        view.resume(checkpoint)
    with closing(SourceTopics(query_options(cluster, "grown", failOnDataLoss="false"), topics)) as view:
        view.resume(checkpoint)
        assert caplog.text.count("event=queue_ends_earlier") == 1
        for _ in range(2):
            look(view, topics, checkpoint.queue)
        assert caplog.text.count("event=queue_ends_earlier") == 1, "a leader is checked once"


def test_a_change_of_the_leader_that_loses_nothing_is_no_trouble(cluster: EmbeddedKafka) -> None:
    make(cluster, "clean")
    topics = ClusterAdmin({"bootstrap.servers": cluster.bootstrap_servers}, timeout_ms=60_000)
    write(cluster, "clean", *[b"x"] * 5)
    with closing(SourceTopics(query_options(cluster, "clean"), topics)) as view:
        view.refresh()

        first = look(view, topics, {("clean", 0): 5})["clean", 0]
        leader = cluster.leader("clean", 0)
        assert leader is not None
        cluster.kill(leader)
        write(cluster, "clean", *[b"x"] * 5)
        # The position is above the end that was seen under the first leader: another member has read on.
        wait_until(lambda: look(view, topics, {("clean", 0): 10})["clean", 0] > first)
        write(cluster, "clean", *[b"x"] * 5)
        assert look(view, topics, {("clean", 0): 15})["clean", 0] > first
