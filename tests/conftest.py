"""What the whole suite shares: one broker, one Spark session, topics with names of their own."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests import kafka_version, scratch
from tests.class_archive import use_archive
from tests.forked import forked_planners
from tests.one_broker import BrokerDesk, BrokerOfAll
from tests.schedule import (  # noqa: F401 - hooks of pytest
    pytest_collection_modifyitems,
    pytest_terminal_summary,
    pytest_xdist_make_scheduler,
)
from tests.waiting import wait_until

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.stuck", "tests.kafka.fixtures", "tests.kafka.short_queue", "tests.kafka.ways"]
collect_ignore = ["benchmarks"]  # `make bench`; looking for doctests would import and so run them

# How long an example takes says more of the machine than of the code.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent.parent

# Before any JVM starts: stream planners are otherwise started as plain `python3`, and Python workers find the
# package only on the path they inherit. In tests/warm is a module that shortens their start.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
_PATH = [str(ROOT), str(ROOT / "tests" / "warm"), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATH))
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else each Python process that imports numpy spins for 0.1 s of CPU
if not kafka_version.IS_OTHER:  # an older broker has no archive, and cannot make one with that of Spark
    use_archive()

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USERS = f'{_PLAIN} required username="admin" password="of-admin" user_admin="of-admin" user_bob="of-bob";'

# A client that still asks for a deleted topic must not bring it back; and messages of 1970 are kept.
_PROPERTIES = {"auto.create.topics.enable": False, "log.retention.hours": 100 * 365 * 24}

_MUCH_GARBAGE = 50_000  # objects that were made and not freed
_LONG_S = 3.0  # a test that takes longer may have opened clients

READY_S = 240.0  #: for a broker's start; a busy machine takes a minute

#: brokers that rest while no file needs them, by the name of their fixture
RESTING = pytest.StashKey[dict[str, EmbeddedKafka]]()

DESK = pytest.StashKey[BrokerDesk]()  #: of the process that directs the workers
BROKER_DESK = "broker_desk"  #: what a worker is told: where it asks for the broker


def as_in_a_terminal() -> None:
    """Let Ctrl-C end this process, as ``preexec_fn``: what a shell starts in the background ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


CreateTopic = Callable[..., str]
DeleteTopic = Callable[[str], None]


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    """The broker of the session and of all workers, which nobody stops: see ``mortal``."""
    told: Mapping[str, Any] = getattr(request.config, "workerinput", {})
    if BROKER_DESK in told:
        yield BrokerOfAll(told[BROKER_DESK])
    else:
        with EmbeddedKafka(properties=_PROPERTIES, ready_timeout_s=READY_S) as running:
            yield running
            end_clients()


def end_clients() -> None:
    """End clients that only garbage refers to: they would complain about the end of their broker."""
    gc.collect()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker where it asks for the broker of all."""
    stash = node.config.stash
    if DESK not in stash:
        stash[DESK] = BrokerDesk(
            EmbeddedKafka(properties=_PROPERTIES, heap_mb=1024, long_lived=True, ready_timeout_s=READY_S)
        )
    node.workerinput[BROKER_DESK] = stash[DESK].address


def pytest_unconfigure(config: pytest.Config) -> None:
    if DESK in config.stash:
        config.stash[DESK].close()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        scratch.use_memory()
    config.stash[RESTING] = {}
    # A collection may run in a thread of librdkafka, where it aborts the process if it finds a client of that
    # thread. A frame in a traceback keeps such a client in a cycle. So garbage is collected between tests.
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave out of each collection what lives as long as the process: modules and tests."""
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Collect garbage here, in the main thread, if there may be much of it, or clients among it."""
    began = time.monotonic()
    try:
        return (yield)
    finally:
        if gc.get_count()[0] > _MUCH_GARBAGE or time.monotonic() - began > _LONG_S:
            gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Wake the brokers that the test needs."""
    for name, broker in item.config.stash[RESTING].items():
        if name in getattr(item, "fixturenames", ()):
            broker.start()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """At the end of a file, stop the brokers that the next test does not need."""
    if nextitem is None or nextitem.path == item.path:
        return
    for name, broker in item.config.stash[RESTING].items():
        if name not in getattr(nextitem, "fixturenames", ()) and broker.running:
            end_clients()
            broker.stop()


@pytest.fixture(scope="session")
def mortal_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(
        properties={**_PROPERTIES, "log.cleaner.backoff.ms": 1_000}, ready_timeout_s=READY_S
    ) as running:
        request.config.stash[RESTING]["mortal_broker"] = running
        yield running


@pytest.fixture
def mortal(mortal_broker: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """A broker that tests may stop, kill and pause; the next one finds it running, and without topics.

    A broker that was killed looks through all partitions when it starts again.
    """
    from confluent_kafka.admin import AdminClient

    yield mortal_broker.start()
    admin = AdminClient({"bootstrap.servers": mortal_broker.start().bootstrap_servers, "log_level": 0})
    topics = [name for name in admin.list_topics(timeout=READY_S).topics if not name.startswith("__")]
    for deleted in (admin.delete_topics(topics) if topics else {}).values():
        deleted.result(timeout=READY_S)


@pytest.fixture(scope="session")
def guarded_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedKafka]:
    """A broker with passwords, where only ``admin`` may do anything."""
    from tests.kafka.control_plane import login

    properties = {
        "auto.create.topics.enable": False,
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": _USERS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with EmbeddedKafka(
        properties=properties, client_config=login("admin", "of-admin"), ready_timeout_s=READY_S
    ) as running:
        request.config.stash[RESTING]["guarded_broker"] = running
        yield running


@pytest.fixture(scope="session")
def admin(broker: EmbeddedKafka) -> Iterator[AdminClient]:
    """A client that ends before its broker does, whoever still refers to it."""
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    with client if hasattr(client, "__exit__") else nullcontext(client):  # not with confluent-kafka 2.11
        yield client


@pytest.fixture
def create_topic(admin: AdminClient, request: pytest.FixtureRequest) -> CreateTopic:
    """``create_topic(partitions=1, name=None, **config)``: the name of a new topic, unique unless given.

    Config names are Kafka's with underscores for dots: ``create_topic(cleanup_policy="compact")``.
    """

    def create(partitions: int = 1, name: str | None = None, **config: object) -> str:
        from confluent_kafka.admin import NewTopic

        if name is None:
            test = re.sub(r"\W+", "-", request.node.name)[:60].strip("-")
            name = f"{test}-{uuid.uuid4().hex[:8]}"
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([topic])[name].result(timeout=20)
        # The broker answers before its metadata has the topic.
        wait_until(lambda: admin.list_topics(name, timeout=20).topics[name].error is None)
        return name

    return create


@pytest.fixture
def delete_topic(admin: AdminClient) -> DeleteTopic:
    """Deletes a topic and waits until the broker knows: it serves one for a moment after it has agreed."""

    def delete(name: str) -> None:
        admin.delete_topics([name])[name].result(timeout=20)
        while name in admin.list_topics(timeout=20).topics:
            time.sleep(0.02)

    return delete


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of the suite: two local cores, loopback only, its files in pytest's directory."""
    from spark_cursor_source.devkit.spark_session import local_session

    scratch = tmp_path_factory.mktemp("spark")
    with (
        forked_planners(scratch) as only_of_the_jvm,
        local_session("spark_cursor_source tests", scratch, memory_mb=2048) as session,
    ):
        del os.environ[only_of_the_jvm]
        session.sparkContext.setLogLevel("ERROR")
        yield session
        for query in session.streams.active:
            query.stop()
