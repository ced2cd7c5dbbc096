"""Ctrl-C, amid the callbacks of a client, is Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.interruptible import _with_interruptible_calls
from tests.conftest import ROOT, CreateTopic
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Ctrl-C does what it does in a terminal, wherever the tests run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Interrupted:
    """A callback in which the user presses Ctrl-C, once."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object) -> None:
        self.calls += 1
        if self.calls == 1:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda producer: producer.flush(20), id="flush"),
        pytest.param(lambda producer: producer.poll(20), id="poll"),
    ],
)
def test_a_producer_that_is_interrupted_says_so_and_delivers_on(
    broker: EmbeddedKafka, create_topic: CreateTopic, call: Callable[[Producer], object]
) -> None:
    topic, interrupted = create_topic(), Interrupted()
    producer = open_client(Producer, {"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(10):
        producer.produce(topic, b"x", on_delivery=interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(producer)
    assert producer.flush(20) == 0
    assert interrupted.calls == 10


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_a_transaction_that_is_interrupted_says_so(
    broker: EmbeddedKafka, create_topic: CreateTopic, end: str
) -> None:
    topic = create_topic()
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    producer = open_client(Producer, config)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"x", on_delivery=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        getattr(producer, end)(20)


@pytest.mark.parametrize(
    ("first", "told"), [(KeyboardInterrupt, KeyboardInterrupt), (ValueError, SystemError)]
)
def test_an_interrupt_may_be_the_cause_of_a_cause(
    first: type[BaseException], told: type[BaseException]
) -> None:
    # as confluent-kafka 2.11 raises it from consume()
    class Client:
        def call(self) -> None:
            try:
                raise SystemError("returned a result with an exception set") from first()
            except SystemError as failed:
                raise SystemError("returned a result with an exception set") from failed

    with pytest.raises(told):
        _with_interruptible_calls(Client)().call()


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_consumer_that_is_interrupted_says_so(call: str) -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "tests", "error_cb": Interrupted()}
    consumer = open_client(Consumer, config)
    consumer.assign([TopicPartition("any", 0, 0)])
    with pytest.raises(KeyboardInterrupt):
        # The call may end before the client has tried to connect.
        wait_until(lambda: (consumer.poll(2) if call == "poll" else consumer.consume(1, 2)) and False)
    consumer.close()


# The signal comes at another moment of a call each time. In a process of its own, because where it comes amid
# a clean-up of Python's, as a few do, it is reported and lost.
ADMIN = """
import signal
from confluent_kafka.admin import AdminClient
from spark_cursor_source.kafka.config import open_client

admin = open_client(AdminClient, {"bootstrap.servers": "127.0.0.1:1"})
signal.signal(signal.SIGALRM, signal.default_int_handler)
for attempt in range(50):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001 + attempt * 0.000005)
        for _ in range(1_000):
            admin.describe_cluster(request_timeout=1)
    except BaseException as ended:
        print(type(ended).__name__)
"""


def test_an_admin_client_that_is_interrupted_says_so() -> None:
    told = subprocess.run(
        [sys.executable, "-c", ADMIN], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    ends = told.stdout.split()
    assert set(ends) == {"KeyboardInterrupt"}
    assert len(ends) > 25
