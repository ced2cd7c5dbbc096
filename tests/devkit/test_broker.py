"""The embedded broker, on real processes; whatever is started is ended by its process id."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from spark_cursor_source.devkit import process, runtime
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.ports import BrokerPorts
from spark_cursor_source.devkit.settings import write_settings
from spark_cursor_source.errors import (
    BrokerError,
    BrokerNotReady,
    BrokerNotRunning,
    JarsNotResolved,
    JavaNotFound,
    PortTaken,
)
from tests.kafka import control_plane
from tests.kafka.control_plane import login
from tests.late_signal import late_signal
from tests.waiting import wait_until

pytestmark = pytest.mark.broker
ROOT = Path(__file__).resolve().parents[2]


def write(broker: EmbeddedKafka, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": 120_000})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(120) == 0  # an election may come first, which takes 10 s on an idle machine


def read_all(broker: EmbeddedKafka, topic: str) -> list[bytes | None]:
    """The values of a topic's records."""
    records = control_plane.read_all({"bootstrap.servers": broker.bootstrap_servers}, topic)
    return [record.value() for record in records]


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie that its new parent has yet to reap."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.strip().startswith("Z")


def identity(broker: EmbeddedKafka) -> dict[str, str]:
    lines = (broker.data_dir / "logs" / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedKafka]:
    """The broker of this file, with settings of its own."""
    with EmbeddedKafka(properties={"auto.create.topics.enable": True, "num.partitions": 7}) as running:
        yield running


@pytest.fixture
def own(own_broker: EmbeddedKafka) -> EmbeddedKafka:
    """A broker that tests may stop, kill and pause; the next one finds it running."""
    return own_broker.start()


def test_a_started_broker_answers_beside_another_and_is_gone_with_its_files_after_the_block(
    own: EmbeddedKafka,
) -> None:
    with EmbeddedKafka() as other:
        assert other.bootstrap_servers != own.bootstrap_servers
        assert other.bootstrap_servers.startswith("127.0.0.1:")
        pid, directory = other.pid, other.data_dir
        metadata = AdminClient({"bootstrap.servers": other.bootstrap_servers, "log_level": 0}).list_topics(
            timeout=60
        )
        assert list(metadata.brokers) == [1]
        # The storage of both is a copy of the same one, but for the ids.
        for name in ("cluster.id", "directory.id"):
            assert identity(other)[name] != identity(own)[name]
        assert identity(other).keys() == identity(own).keys()
        assert other.running
        assert directory.is_dir()
    assert not alive(pid)
    assert not directory.exists()
    assert not other.running


def test_settings_can_be_given_and_win_over_ours(own: EmbeddedKafka) -> None:
    write(own, "seven", b"1")
    metadata = AdminClient({"bootstrap.servers": own.bootstrap_servers, "log_level": 0}).list_topics(
        "seven", timeout=60
    )
    assert len(metadata.topics["seven"].partitions) == 7


def test_a_restart_keeps_the_port_every_message_and_the_log(own: EmbeddedKafka) -> None:
    address, pid = own.bootstrap_servers, own.pid
    write(own, "kept", b"1", b"2")
    own.restart()
    assert own.bootstrap_servers == address
    assert own.pid != pid
    assert read_all(own, "kept") == [b"1", b"2"]
    assert own.log_path.read_text().count("Performing controller activation") == 2
    assert own.log_tail().count("Performing controller activation") == 1


def test_a_killed_broker_starts_again_with_what_it_had_acknowledged(own: EmbeddedKafka) -> None:
    address, pid = own.bootstrap_servers, own.pid
    write(own, "survives", b"1")
    own.kill()
    assert not alive(pid)
    assert not own.running
    own.start()
    assert own.bootstrap_servers == address
    assert read_all(own, "survives") == [b"1"]


def test_a_broker_that_ended_by_itself_is_noticed_and_can_be_started_again(own: EmbeddedKafka) -> None:
    os.kill(own.pid, signal.SIGKILL)
    assert own.wait(timeout_s=60)
    assert not own.running
    assert own.wait()  # it has ended before
    own.start()
    assert own.running


def test_a_wait_for_the_end_is_interrupted_by_a_signal_that_comes_just_before_it(own: EmbeddedKafka) -> None:
    with late_signal(), pytest.raises(KeyboardInterrupt):
        own.wait()
    assert own.running


def test_a_paused_broker_answers_nothing_until_it_is_resumed(own: EmbeddedKafka) -> None:
    admin = AdminClient({"bootstrap.servers": own.bootstrap_servers, "log_level": 0})
    own.pause()
    assert own.running
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)
    own.resume()
    assert admin.list_topics(timeout=60).brokers


def test_a_client_that_keeps_asking_does_not_keep_a_paused_broker_that_was_stopped_from_its_port(
    own: EmbeddedKafka,
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": own.bootstrap_servers,
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 5,
            "log_level": 0,
        }
    )
    producer.produce("patient", b"before", partition=0)
    assert producer.flush(120) == 0
    pid = own.pid
    own.pause()
    own.stop()
    assert not alive(pid)
    producer.produce("patient", b"while it was away", partition=0)
    producer.poll(1.0)
    own.start()
    assert producer.flush(120) == 0
    assert len(read_all(own, "patient")) == 2


def test_a_stopped_broker_has_no_process_id_and_says_how_to_get_one() -> None:
    broker = EmbeddedKafka()
    for use in (
        lambda: broker.pid,
        lambda: broker.bootstrap_servers,
        broker.kill,
        broker.pause,
        broker.resume,
    ):
        with pytest.raises(BrokerNotRunning, match=r"Call start\(\)"):
            use()
    broker.stop()
    broker.close()


def test_the_controller_never_gets_the_port_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    # Chance, in which the same free port comes first each time.
    monkeypatch.setattr(process.random, "sample", lambda ports, count: ports[:count])
    ports = BrokerPorts([1], None)
    ports.choose()
    assert ports.controller[1] != ports.client[1]


def test_a_broker_that_asks_for_a_password_lets_in_who_knows_it(guarded_broker: EmbeddedKafka) -> None:
    assert (guarded_broker.data_dir / "server.properties").stat().st_mode & 0o077 == 0
    assert "of-admin" not in repr(guarded_broker)
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": 0}
    assert AdminClient(servers | login("admin", "of-admin")).list_topics(timeout=60).brokers
    with pytest.raises(KafkaException):
        AdminClient(servers).list_topics(timeout=1)


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
    admin.incremental_alter_configs([resource])[resource].result(timeout=60)
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    try:
        consumer.subscribe([topic])
        got: list[bytes | None] = []

        def all_came() -> bool:
            got.extend(message.value() for message in consumer.poll(timeout=1.0))
            return len(got) >= 3

        wait_until(all_came)
        assert sorted(filter(None, got)) == [b"a", b"b", b"c"]
    finally:
        consumer.close()


PARENT = """
import sys, time
from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.devkit.test_broker import write
broker = EmbeddedKafka(data_dir=sys.argv[1] or None, brokers=int(sys.argv[2])).start()
{before}
print(broker._nodes[1].process._keeper.pid, broker.data_dir, *broker.pids.values(), flush=True)
time.sleep(600)
"""


FORK = """
import os
if (forked := os.fork()) == 0:
    time.sleep(600)
    os._exit(0)
print(forked, flush=True)
"""


@dataclass
class Parent:
    """A process with a Kafka: its keeper, its data, its brokers, and what it has printed before."""

    process: subprocess.Popen[str]
    keeper: int
    directory: Path
    brokers: list[int]
    printed: str

    def gone(self) -> bool:
        return not any(alive(pid) for pid in (self.keeper, *self.brokers))


@contextmanager
def parent_of(
    data_dir: Path | str = "", *, brokers: int = 1, before: str = "", prints: bool = False
) -> Iterator[Parent]:
    """A process that has started a Kafka and lives until it is killed."""
    command = [sys.executable, "-c", PARENT.format(before=before), str(data_dir), str(brokers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            printed = process.stdout.readline() if prints else ""
            keeper, directory, *pids = process.stdout.readline().split()
            yield Parent(process, int(keeper), Path(directory), [int(pid) for pid in pids], printed)
        finally:
            process.kill()


@pytest.mark.e2e
def test_a_broker_ends_with_its_killed_parent_though_a_fork_holds_the_lifeline_and_leaves_no_files() -> None:
    with parent_of(before=FORK, prints=True) as parent:
        assert all(alive(pid) for pid in parent.brokers)
        forked = int(parent.printed)
        parent.process.kill()
        try:
            wait_until(parent.gone)
            wait_until(lambda: not parent.directory.exists())
            assert alive(forked)
        finally:
            os.kill(forked, signal.SIGKILL)


@pytest.mark.e2e
def test_a_cluster_ends_with_its_sigkilled_parent_though_a_broker_is_paused() -> None:
    with parent_of(brokers=3, before="broker.pause(2)") as parent:
        assert len(parent.brokers) == 3
        parent.process.kill()
    wait_until(lambda: parent.gone() and not parent.directory.exists())


@pytest.mark.e2e
def test_a_kept_data_directory_outlives_a_crash_of_the_parent_is_formatted_once_and_serves_a_later_broker(
    tmp_path: Path,
) -> None:
    with parent_of(tmp_path / "kept", before='write(broker, "orders", b"1")') as parent:
        identity = (parent.directory / "logs" / "meta.properties").read_bytes()
        parent.process.kill()
    wait_until(parent.gone)
    with EmbeddedKafka(data_dir=parent.directory) as again:
        assert read_all(again, "orders") == [b"1"]
    assert (parent.directory / "logs" / "meta.properties").read_bytes() == identity


@pytest.mark.e2e
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's help is Linux's")
def test_a_broker_ends_when_even_its_keeper_is_sigkilled(tmp_path: Path) -> None:
    with parent_of(tmp_path) as parent:
        os.kill(parent.keeper, signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in parent.brokers))


def test_a_taken_port_is_an_error_that_names_it(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(PortTaken, match=f"port {port} .* choose another port") as caught:
        EmbeddedKafka(port=port).start()
    assert caught.value.port == port


def test_a_wrong_setting_is_an_error_with_the_end_of_the_log_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    broker = EmbeddedKafka(data_dir=tmp_path / "a", properties={"log.retention.hours": 0})
    with pytest.raises(BrokerNotReady, match="Check `properties`"):
        broker.start()
    assert not broker.running
    dies_late = EmbeddedKafka(data_dir=tmp_path / "b", properties={"metric.reporters": "no.such.Reporter"})
    with pytest.raises(BrokerNotReady, match=r"(?s)ended while it was starting.*no\.such\.Reporter"):
        dies_late.start()
    assert not dies_late.running


@pytest.mark.parametrize(
    "arguments",
    [
        {"brokers": "3"},
        {"brokers": None},
        {"brokers": 10**12},
        {"port": "9092"},
        {"port": 1.5},
        {"heap_mb": "512m"},
        {"data_dir": ""},
    ],
)
def test_an_argument_that_cannot_be_is_refused_by_its_name(arguments: dict[str, Any]) -> None:
    ((name, value),) = arguments.items()
    with pytest.raises(BrokerError, match=re.escape(f"{name}={value!r}: ")):
        EmbeddedKafka(**arguments)


def test_a_broker_that_is_too_slow_is_ended_and_reported() -> None:
    with pytest.raises(BrokerNotReady, match=r"no metadata request in 0\.1 s.* ready_timeout_s"):
        EmbeddedKafka(ready_timeout_s=0.1).start()


def test_without_java_the_error_says_which_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFound, match=r"but there is no java on PATH. Install Java 17"):
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
    with pytest.raises(JavaNotFound, match=r"is version 1\.8\.0_392\. "):
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


def test_a_remembered_classpath_is_used_only_while_every_jar_exists(
    unreachable_repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    def resolve(coordinate: str, what: str, progress: Callable[[str], None]) -> list[Path]:
        raise JarsNotResolved(coordinate, "nothing is there")

    monkeypatch.setattr(runtime, "_resolve", resolve)
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
