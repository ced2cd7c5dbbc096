"""The embedded broker, on real processes; whatever is started is ended by its process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spark_cursor_source.devkit import process, runtime
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.settings import write_settings
from spark_cursor_source.errors import (
    BrokerError,
    BrokerNotReady,
    BrokerNotRunning,
    JarsNotResolved,
    JavaNotFound,
    PortTaken,
)

pytestmark = pytest.mark.broker
ROOT = Path(__file__).resolve().parents[2]


def write(broker: EmbeddedKafka, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": 20_000})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(20) == 0


def read_all(broker: EmbeddedKafka, topic: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(end, timeout=20)]
    finally:
        consumer.close()


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie that its new parent has yet to reap."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.strip().startswith("Z")


def eventually(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken


def test_a_started_broker_answers_and_is_gone_with_its_files_after_the_block() -> None:
    with EmbeddedKafka() as broker:
        pid, directory = broker.pid, broker.data_dir
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=5)
        assert list(metadata.brokers) == [1]
        assert broker.running
        assert directory.is_dir()
    assert not alive(pid)
    assert not directory.exists()
    assert not broker.running


def test_two_brokers_without_a_port_run_side_by_side_on_loopback(broker: EmbeddedKafka) -> None:
    with EmbeddedKafka() as other:
        assert other.bootstrap_servers != broker.bootstrap_servers
        assert other.bootstrap_servers.startswith("127.0.0.1:")


def test_a_restart_keeps_the_port_and_every_message() -> None:
    with EmbeddedKafka() as broker:
        address, pid = broker.bootstrap_servers, broker.pid
        write(broker, "kept", b"1", b"2")
        broker.restart()
        assert broker.bootstrap_servers == address
        assert broker.pid != pid
        assert read_all(broker, "kept") == [b"1", b"2"]


def test_a_killed_broker_starts_again_with_what_it_had_acknowledged() -> None:
    with EmbeddedKafka() as broker:
        address, pid = broker.bootstrap_servers, broker.pid
        write(broker, "survives", b"1")
        broker.kill()
        assert not alive(pid)
        assert not broker.running
        broker.start()
        assert broker.bootstrap_servers == address
        assert read_all(broker, "survives") == [b"1"]


def test_a_broker_that_ended_by_itself_is_noticed_and_can_be_started_again() -> None:
    with EmbeddedKafka() as broker:
        os.kill(broker.pid, signal.SIGKILL)
        assert broker.wait(timeout_s=10)
        assert not broker.running
        broker.start()
        assert broker.running


def test_a_client_that_keeps_asking_does_not_keep_the_broker_from_its_port() -> None:
    with EmbeddedKafka(properties={"auto.create.topics.enable": True}) as broker:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 5,
            }
        )
        producer.produce("patient", b"before")
        assert producer.flush(20) == 0
        broker.stop()
        producer.produce("patient", b"while it was away")
        producer.poll(1.0)
        broker.start()
        assert producer.flush(20) == 0
        assert len(read_all(broker, "patient")) == 2


def test_a_paused_broker_answers_nothing_until_it_is_resumed() -> None:
    with EmbeddedKafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        broker.pause()
        assert broker.running
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.5)
        broker.resume()
        assert admin.list_topics(timeout=10).brokers


def test_a_paused_broker_can_be_stopped() -> None:
    with EmbeddedKafka() as broker:
        pid = broker.pid
        broker.pause()
        broker.stop()
        assert not alive(pid)


def test_a_kept_data_directory_is_formatted_once_and_serves_a_later_broker(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    with EmbeddedKafka(data_dir=directory) as first:
        write(first, "orders", b"1")
        identity = (directory / "logs" / "meta.properties").read_bytes()
    with EmbeddedKafka(data_dir=directory) as second:
        assert read_all(second, "orders") == [b"1"]
    assert (directory / "logs" / "meta.properties").read_bytes() == identity


def test_a_stopped_broker_has_no_process_id_and_says_how_to_get_one() -> None:
    broker = EmbeddedKafka()
    for use in (
        lambda: broker.pid,
        lambda: broker.bootstrap_servers,
        broker.kill,
        broker.pause,
        broker.resume,
    ):
        with pytest.raises(BrokerNotRunning, match=r"call start\(\)"):
            use()
    broker.stop()
    broker.close()


def test_the_controller_never_gets_the_port_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    # Chance, in which the same free port comes first each time.
    monkeypatch.setattr(process.random, "sample", lambda ports, count: ports[:count])
    with EmbeddedKafka() as broker:
        assert broker.running


def test_settings_can_be_given_and_win_over_ours() -> None:
    with EmbeddedKafka(properties={"auto.create.topics.enable": False, "num.partitions": 7}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("seven")])["seven"].result(timeout=10)
        assert len(admin.list_topics("seven", timeout=5).topics["seven"].partitions) == 7


def test_a_broker_that_asks_for_a_password_lets_in_who_knows_it() -> None:
    secured = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="us" password="tell-nobody" user_us="tell-nobody";'
        ),
    }
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "us",
        "sasl.password": "tell-nobody",
    }
    with EmbeddedKafka(properties=secured, client_config=login) as broker:
        assert (broker.data_dir / "server.properties").stat().st_mode & 0o077 == 0
        assert "tell-nobody" not in repr(broker)
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}).list_topics(
                timeout=1
            )


def test_a_cluster_keeps_a_topic_in_three_replicas_of_which_two_acknowledge(tmp_path: Path) -> None:
    written = write_settings(tmp_path, 2, 9092, {1: 9001, 2: 9002, 3: 9003}, {}).read_text().splitlines()
    assert {"default.replication.factor=3", "min.insync.replicas=2", "node.id=2"} <= set(written)
    assert "controller.quorum.voters=1@127.0.0.1:9001,2@127.0.0.1:9002,3@127.0.0.1:9003" in written


@pytest.mark.parametrize(("brokers", "of"), [(3, "logs"), (1, "broker-1/logs")])
def test_the_data_of_another_number_of_brokers_is_refused(tmp_path: Path, brokers: int, of: str) -> None:
    (tmp_path / of).mkdir(parents=True)
    with pytest.raises(BrokerError, match=r"with 1 broker\(s\), not 3|with 1 broker\(s\), not 1"):
        EmbeddedKafka(brokers=brokers, data_dir=tmp_path).start()


def test_share_groups_hand_out_messages_and_take_acks(
    broker: EmbeddedKafka, create_topic: Callable[..., str]
) -> None:
    from confluent_kafka import ShareConsumer
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    topic = create_topic()
    write(broker, topic, b"a", b"b", b"c")
    group = f"share-{topic}"
    from_the_start = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[from_the_start])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(timeout=10)
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    try:
        consumer.subscribe([topic])
        got: list[bytes | None] = []
        deadline = time.monotonic() + 20
        while len(got) < 3 and time.monotonic() < deadline:
            got += [message.value() for message in consumer.poll(timeout=1.0)]
        assert sorted(filter(None, got)) == [b"a", b"b", b"c"]
    finally:
        consumer.close()


PARENT = """
import sys, time
from spark_cursor_source.devkit.settings import write_settings
from spark_cursor_source.devkit.broker import EmbeddedKafka
broker = EmbeddedKafka(data_dir=sys.argv[1] or None).start()
{before}
print(broker.pid, broker._nodes[1].process._keeper.pid, broker.data_dir, flush=True)
time.sleep(600)
"""


FORK = """
import os
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
    os._exit(0)
time.sleep(1)
"""


def parent_of_a_broker(data_dir: str = "", before: str = "") -> tuple[subprocess.Popen[str], int, int, Path]:
    script = PARENT.format(before=before)
    parent = subprocess.Popen(
        [sys.executable, "-c", script, data_dir], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert parent.stdout is not None
    broker, keeper, directory = parent.stdout.readline().split()
    return parent, int(broker), int(keeper), Path(directory)


@pytest.mark.e2e
def test_a_broker_ends_with_its_sigkilled_parent_and_leaves_no_temporary_files() -> None:
    parent, broker, keeper, directory = parent_of_a_broker()
    with parent:
        assert alive(broker)
        parent.kill()
    assert eventually(lambda: not alive(broker) and not alive(keeper))
    assert not directory.exists()


@pytest.mark.e2e
def test_a_cluster_ends_with_its_sigkilled_parent_too() -> None:
    script = PARENT.replace("EmbeddedKafka(", "EmbeddedKafka(brokers=3, ").format(
        before="broker.pause(2); print(*broker.pids.values(), flush=True)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, ""], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        directory = Path(parent.stdout.readline().split()[2])
        assert len(pids) == 3
        parent.kill()
    assert eventually(lambda: not any(alive(pid) for pid in pids) and not directory.exists())


@pytest.mark.e2e
def test_a_paused_broker_ends_with_its_sigkilled_parent_too() -> None:
    parent, broker, keeper, _ = parent_of_a_broker(before="broker.pause()")
    with parent:
        parent.kill()
    assert eventually(lambda: not alive(broker) and not alive(keeper))


@pytest.mark.e2e
def test_a_broker_ends_with_its_parent_though_a_forked_child_still_holds_the_lifeline() -> None:
    script = PARENT.format(before=FORK)
    parent = subprocess.Popen([sys.executable, "-c", script, ""], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with parent:
        assert parent.stdout is not None
        forked = int(parent.stdout.readline())
        broker, keeper = map(int, parent.stdout.readline().split()[:2])
        parent.kill()
        try:
            assert eventually(lambda: not alive(broker) and not alive(keeper))
            assert alive(forked)
        finally:
            os.kill(forked, signal.SIGKILL)


@pytest.mark.e2e
def test_a_crash_of_the_parent_keeps_a_kept_data_directory(tmp_path: Path) -> None:
    parent, broker, _, directory = parent_of_a_broker(str(tmp_path / "kept"))
    with parent:
        parent.kill()
    assert eventually(lambda: not alive(broker))
    with EmbeddedKafka(data_dir=directory) as again:
        assert again.running


@pytest.mark.e2e
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's help is Linux's")
def test_a_broker_ends_when_even_its_keeper_is_sigkilled(tmp_path: Path) -> None:
    parent, broker, keeper, _ = parent_of_a_broker(str(tmp_path))
    with parent:
        os.kill(keeper, signal.SIGKILL)
        assert eventually(lambda: not alive(broker))
        parent.kill()


def test_a_taken_port_is_an_error_that_names_it(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(PortTaken, match=f"port {port} .* choose another port") as caught:
        EmbeddedKafka(port=port).start()
    assert caught.value.port == port


def test_a_wrong_setting_is_an_error_with_the_end_of_the_log_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    broker = EmbeddedKafka(data_dir=tmp_path / "a", properties={"log.retention.hours": 0})
    with pytest.raises(BrokerNotReady, match="check `properties`"):
        broker.start()
    assert not broker.running
    dies_late = EmbeddedKafka(data_dir=tmp_path / "b", properties={"metric.reporters": "no.such.Reporter"})
    with pytest.raises(BrokerNotReady, match=r"(?s)ended while it was starting.*no\.such\.Reporter"):
        dies_late.start()
    assert not dies_late.running


def test_a_broker_that_is_too_slow_is_ended_and_reported() -> None:
    with pytest.raises(BrokerNotReady, match=r"no metadata request in 0\.1 s.* ready_timeout_s"):
        EmbeddedKafka(ready_timeout_s=0.1).start()


def test_without_java_the_error_says_which_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFound, match=r"no java on PATH; .* needs Java 17 or later: install one"):
        EmbeddedKafka().start()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFound, match="no java of JAVA_HOME"):
        EmbeddedKafka().start()


def test_an_old_java_is_refused_by_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaNotFound, match=r"is version 1\.8\.0_392; "):
        EmbeddedKafka().start()
    old.write_text("#!/bin/sh\necho 'openjdk version \"21\" 2023-09-19' >&2\n")
    assert runtime.find_java() == (str(old), "21")


@pytest.fixture
def unreachable_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Spark whose only repository is an empty directory, and an empty cache; the cache's path."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="nowhere"/><resolvers><filesystem name="nowhere">'
        f'<artifact pattern="{tmp_path}/nothing/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    conf = tmp_path / "conf"
    conf.mkdir()
    defaults = f"spark.jars.ivySettings {settings}\nspark.jars.ivy {tmp_path}/ivy\n"
    (conf / "spark-defaults.conf").write_text(defaults)
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cursorq"


def test_jars_that_cannot_be_had_are_an_error_that_says_to_connect_once(unreachable_repository: Path) -> None:
    said: list[str] = []
    with pytest.raises(JarsNotResolved, match=r"(?s)kafka_2\.13.*first start needs a network") as caught:
        EmbeddedKafka(progress=said.append).start()
    assert caught.value.coordinate.startswith("org.apache.kafka:kafka_2.13:")
    assert "first time only" in said[0]


def test_a_remembered_classpath_is_used_only_while_every_jar_exists(unreachable_repository: Path) -> None:
    import json

    jar = unreachable_repository / "kafka.jar"
    unreachable_repository.mkdir(parents=True)
    jar.write_bytes(b"")
    remembered = unreachable_repository / f"kafka-{runtime.KAFKA_VERSION}-classpath.json"
    remembered.write_text(json.dumps({"version": 1, "jars": [str(jar)]}))
    assert jar in runtime.kafka_jars(progress=pytest.fail)
    jar.unlink()
    with pytest.raises(JarsNotResolved):
        runtime.kafka_jars(progress=lambda _: None)
    remembered.write_text("not ours")
    with pytest.raises(JarsNotResolved):
        runtime.kafka_jars(progress=lambda _: None)


def test_every_broker_error_is_caught_as_one() -> None:
    for kind in (BrokerNotReady, BrokerNotRunning, JarsNotResolved, JavaNotFound, PortTaken):
        assert issubclass(kind, BrokerError)
