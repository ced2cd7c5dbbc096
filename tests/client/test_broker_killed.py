"""A broker is killed and comes back during calls of each kind: they end well, and what they said is true."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice

import pytest

from spark_cursor_source.client import Ack, Client, StartAt, StopAt
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import (
    AckTimeout,
    CursorqError,
    IncorrectOffset,
    KafkaUnavailable,
)
from tests.forgotten import FAULT, TRIES, is_forgotten
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

EARLIEST = StartAt.earliest()


@pytest.fixture
def mortal() -> Iterator[EmbeddedKafka]:
    """A broker of the test's own, that has no streams yet."""
    with EmbeddedKafka() as running:
        yield running


class Calls:
    """Calls of one kind, one after the other in a thread, until it is told that it is enough."""

    def __init__(self, call: Callable[[int], None]) -> None:
        self._call = call
        self._enough = threading.Event()
        self.error: BaseException | None = None
        self.done = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def enough(self) -> None:
        self._enough.set()

    def end(self) -> None:
        self.enough()
        self._thread.join(180)

    def _run(self) -> None:
        try:
            while not self._enough.is_set():
                self._call(self.done)
                self.done += 1
        except BaseException as raised:  # noqa: BLE001 told to the test
            self.error = raised


def test_calls_of_each_kind_outlive_a_broker_that_is_killed_and_comes_back() -> None:
    # all kinds of calls in a row ---- kill ---- back ---- each kind goes on, and nothing is lost or doubled
    for _ in range(TRIES):
        with EmbeddedKafka() as broker:
            try:
                outlive(broker)
            except (AckTimeout, KafkaUnavailable) as stuck:
                if not is_excused(broker, stuck.__cause__ or stuck):
                    raise
            else:
                return
    pytest.xfail(FAULT)


def is_excused(broker: EmbeddedKafka, stuck: BaseException) -> bool:
    """True if the broker has forgotten the end of the transaction that the call waited for."""
    place = re.search(r"'(\S+)', partition (\d+): a transaction is open", str(stuck))
    return place is not None and is_forgotten(broker, place[1], int(place[2]))


def ended(calls: dict[str, Calls]) -> dict[str, int]:
    """How many calls of each kind were done. A call that only waits for another one does not say why."""
    for each in calls.values():
        each.end()
    errors = [each.error for each in calls.values() if each.error is not None]
    if errors:
        raise next((one for one in errors if "a transaction is open" in str(one)), errors[0])
    return {kind: each.done for kind, each in calls.items()}


def outlive(mortal: EmbeddedKafka) -> None:
    client = Client({"kafka.bootstrap.servers": mortal.bootstrap_servers, "clientTimeout": "120s"})
    client.create_stream("plain", 2)
    client.create_stream("ledger", optimistic_concurrency=True)
    acked: list[Ack | CursorqError] = []
    expected = [0]

    def publish_expected(number: int) -> None:
        ack = client.publish("ledger", b"%d" % number, expected_offset=expected[0])
        assert ack.offset is not None
        expected[0] = ack.offset + 1

    def set_cursor(number: int) -> None:
        client.set_cursor("reader", "plain", 0, number)
        assert client.fetch_cursor("reader", "plain", 0) == number

    def pause(number: int) -> None:
        client.set_stream_readonly("ledger", readonly=False)
        client.pause_stream("plain", partitions=[1])
        assert client.fetch_partition_metadata("plain", 1).paused

    kinds: dict[str, Callable[[int], None]] = {
        "publish": lambda number: acked.append(client.publish("plain", b"%d" % number, partition=0)),
        "expected": publish_expected,
        "set_cursor": set_cursor,
        "fenced": lambda number: client.set_cursor("owner", "plain", 0, number, epoch=1),
        "pause": pause,
        "metadata": lambda _: client.fetch_metadata().streams["plain"],
        "create": lambda number: client.create_stream(f"new-{number}"),
    }
    calls: dict[str, Calls] = {}
    try:
        with closing(client.subscribe("plain", start=EARLIEST)) as messages:
            calls |= {kind: Calls(call) for kind, call in kinds.items()}
            first = [message.value for message in islice(messages, 50)]
            before = {kind: each.done for kind, each in calls.items()}
            mortal.kill()
            mortal.restart()
            found = first + [message.value for message in islice(messages, 200)]
        done = ended(calls)
        assert all(done[kind] > before[kind] for kind in kinds), (before, done)
        assert found == [b"%d" % number for number in range(250)]
        ledger = client.subscribe("ledger", start=EARLIEST, stop=StopAt.latest())
        assert [message.value for message in ledger] == [b"%d" % number for number in range(done["expected"])]
        offsets = [ack.offset for ack in acked if isinstance(ack, Ack)]
        assert offsets == list(range(done["publish"]))
    finally:
        for each in calls.values():
            each.enough()
        client.close()


def test_who_does_not_wait_long_is_told_in_time_by_each_kind_of_call(mortal: EmbeddedKafka) -> None:
    servers = {"kafka.bootstrap.servers": mortal.bootstrap_servers}
    with Client(servers) as patient:  # a new broker makes its own topics first
        patient.create_stream("plain")
        patient.create_stream("ledger", optimistic_concurrency=True)
        patient.publish("plain", b"")
        patient.publish("ledger", b"", expected_offset=0)
        patient.set_cursor("reader", "plain", 0, 1)
    with Client({**servers, "clientTimeout": "5s"}) as client:
        wait_until(lambda: is_connected(client))
        outcomes: list[Ack | CursorqError] = []
        with closing(client.subscribe("plain", start=StartAt.latest())) as messages:
            assert next(messages).value == b""
            mortal.kill()
            with pytest.raises(AckTimeout, match=r"message 'order 7' .* if a duplicate is acceptable"):
                client.publish("plain", b"", correlation_id="order 7", timeout_ms=500)
            with pytest.raises((AckTimeout, IncorrectOffset)):
                client.publish("ledger", b"", expected_offset=1, timeout_ms=500)
            client.publish_async("plain", b"", on_ack=outcomes.append)
            calls: list[Callable[[], object]] = [
                lambda: client.set_cursor("reader", "plain", 0, 2),
                lambda: client.fetch_cursor("reader", "plain", 0),
                lambda: client.pause_stream("plain"),
                lambda: client.set_stream_readonly("plain"),
                lambda: client.fetch_metadata(),
                lambda: client.fetch_partition_metadata("plain", 0),
                lambda: client.create_stream("new"),
                lambda: client.delete_stream("plain"),
                lambda: client.subscribe("plain"),
                lambda: client.publish_to_subject("plain", b""),
                lambda: next(messages),
            ]
            with ThreadPoolExecutor(len(calls)) as pool:
                for failed in [pool.submit(call) for call in calls]:
                    with pytest.raises(KafkaUnavailable, match="Check that the brokers"):
                        failed.result(60)
    assert [type(outcome) for outcome in outcomes] == [AckTimeout]


def is_connected(client: Client) -> bool:
    """True once the client has published: a busy machine may need more than its timeout for the first one."""
    try:
        client.publish("plain", b"")
        client.publish(
            "ledger", b"", expected_offset=client.fetch_partition_metadata("ledger", 0).high_watermark
        )
        return client.fetch_cursor("reader", "plain", 0) == 1
    except (AckTimeout, KafkaUnavailable, IncorrectOffset):
        return False


def test_callers_at_the_same_time_wait_for_their_own_time_each() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.log_level": "0", "clientTimeout": "12s"}
    with Client(options) as client:

        def waited(call: Callable[[], object]) -> float:
            began = time.monotonic()
            with pytest.raises(KafkaUnavailable, match="Kafka did not answer"):
                call()
            return time.monotonic() - began

        hasty = [lambda: client.publish("plain", b"", timeout_ms=300)] * 4
        patient: list[Callable[[], object]] = [
            lambda: client.set_cursor("reader", "plain", 0, 1),
            lambda: client.set_cursor("owner", "plain", 0, 1, epoch=1),
            lambda: client.fetch_cursor("reader", "plain", 0),
            lambda: client.subscribe("plain"),
            lambda: client.publish_to_subject("plain", b""),
            lambda: client.pause_stream("plain"),
        ]
        with ThreadPoolExecutor(len(hasty) + len(patient)) as pool:
            of_hasty, of_patient = pool.map(waited, hasty), pool.map(waited, patient)
        assert max(of_hasty) < 12.0
        assert max(of_patient) < 60.0
