"""Optimistic concurrency: a message is published only where its publisher knew the last one."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, Message, Producer

from spark_cursor_source.client import Ack, AckPolicy, Client, StartAt, StopAt
from spark_cursor_source.client.streams.expected_offset import ExpectedOffsets
from spark_cursor_source.errors import (
    AckTimeout,
    CursorqError,
    IncorrectOffset,
    InvalidArgument,
    KafkaUnavailable,
    TransactionStaysOpen,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain
from tests.client.conftest import OpenClient
from tests.kafka.control_plane import produce, read_all
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def ledger(client: Client) -> str:
    """A stream of one partition whose publishers may say which offset they expect."""
    name = f"ledger-{uuid.uuid4().hex[:12]}"
    client.create_stream(name, optimistic_concurrency=True)
    return name


def messages_of(config: dict[str, str], stream: str) -> list[bytes | None]:
    return [message.value() for message in read_all(config, stream)]


def test_what_was_expected_is_published_and_what_was_not_is_refused(
    client: Client, open_client: OpenClient, config: dict[str, str], ledger: str
) -> None:
    first = client.publish(ledger, b"1", expected_offset=0)
    assert first.offset == 0
    with pytest.raises(IncorrectOffset, match=r"it expected offset 0, .* Read the messages in between"):
        open_client().publish(ledger, b"0 again", expected_offset=0)
    with pytest.raises(IncorrectOffset):
        client.publish(ledger, b"too early", expected_offset=100)
    assert first.offset is not None
    second = client.publish(ledger, b"2", b"key", expected_offset=first.offset + 1, correlation_id="two")
    assert (second.correlation_id, second.ack_policy) == ("two", AckPolicy.ALL)
    client.publish(ledger, b"3", expected_offset=client.fetch_partition_metadata(ledger, 0).high_watermark)
    client.publish(ledger, b"4")
    assert second.offset is not None
    with pytest.raises(IncorrectOffset):
        client.publish(ledger, b"5", expected_offset=second.offset + 1)
    assert messages_of(config, ledger) == [b"1", b"2", b"3", b"4"]
    seen = list(client.subscribe(ledger, start=StartAt.latest(), stop=StopAt.latest()))
    client.publish(ledger, b"5", expected_offset=seen[-1].offset + 1)


def test_callbacks_of_expected_messages_come_in_their_order(
    open_client: OpenClient, config: dict[str, str], ledger: str
) -> None:
    outcomes: list[Ack | CursorqError] = []
    with open_client() as client:
        for expected in (0, 0, 1):
            client.publish_async(ledger, b"%d" % expected, expected_offset=expected, on_ack=outcomes.append)
    assert [type(outcome) for outcome in outcomes] == [Ack, IncorrectOffset, Ack]
    assert messages_of(config, ledger) == [b"0", b"1"]


def test_only_streams_made_for_it_take_an_expected_offset(client: Client, stream: str, ledger: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"^The argument expected_offset=0 is invalid: the stream was not created with"
    ):
        client.publish(stream, b"", partition=0, expected_offset=0)
    with pytest.raises(
        InvalidArgument, match=r"^The argument ack_policy='none' is invalid: a message at an expected offset"
    ):
        client.publish(ledger, b"", expected_offset=0, ack_policy=AckPolicy.NONE)
    with pytest.raises(InvalidArgument, match=r"^The argument expected_offset=-1"):
        client.publish(ledger, b"", expected_offset=-1)


def test_who_writes_without_asking_is_seen_even_in_the_last_moment(
    config: dict[str, str], client: Client, ledger: str
) -> None:
    # look: the end is 0 ---- [a plain producer writes at 0] ---- ours lands at 1 ---- it is taken back
    class Racing(ClusterAdmin):
        def end_offsets(self, partitions, *, committed):  # type: ignore[no-untyped-def]
            found = super().end_offsets(partitions, committed=committed)
            if committed and not racing.is_set():
                racing.set()
                produce(config, ledger, [{"value": b"plain"}])
            return found

    racing = threading.Event()
    expected = ExpectedOffsets(config, Racing(config), timeout_ms=20_000)
    with pytest.raises(IncorrectOffset, match="the next offset is 3"):
        expected.publish(Record(ledger, 0, None, b"ours"), 0, Deadline.after_ms(20_000))
    landed = expected.publish(Record(ledger, 0, None, b"ours"), 3, Deadline.after_ms(20_000))
    assert landed.offset() == 3
    expected.close()
    assert messages_of(config, ledger) == [b"plain", b"ours"]


def test_a_transaction_that_is_open_is_waited_for(
    open_client: OpenClient, client: Client, config: dict[str, str], stream: str, ledger: str
) -> None:
    hasty = open_client(clientTimeout="2s")

    def is_connected() -> bool:
        try:
            return hasty.fetch_partition_metadata(ledger, 0).high_watermark == 0 and bool(
                hasty.publish(stream, b"")
            )
        except (AckTimeout, KafkaUnavailable):
            return False

    wait_until(is_connected)  # its first call may take more than 2 s
    producer = Producer({**config, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(ledger, b"undecided", partition=0)
    assert producer.flush(30) == 0
    with pytest.raises(AckTimeout):
        hasty.publish(ledger, b"hasty", expected_offset=0)
    aborting = threading.Timer(0.3, producer.abort_transaction, (30,))
    aborting.start()
    client.publish(ledger, b"patient", expected_offset=0)
    aborting.join()
    assert messages_of(config, ledger) == [b"patient"]


def test_a_commit_whose_answer_was_lost_is_found_and_not_doubled(config: dict[str, str], ledger: str) -> None:
    # committed ---- the answer is that it may be or not ---- it is there: no second one
    class Forgetful(TransactionalProducer):
        def commit(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            super().commit(*args, **kwargs)
            self.discard()
            raise Uncertain("commit a transaction", KafkaError(KafkaError._TIMED_OUT))

    expected = ExpectedOffsets(config, ClusterAdmin(config), timeout_ms=20_000)
    expected._producer.__class__ = Forgetful
    landed = expected.publish(Record(ledger, 0, None, b"once"), 0, Deadline.after_ms(20_000))
    expected.close()
    assert landed.offset() == 0
    assert messages_of(config, ledger) == [b"once"]


def test_a_commit_whose_marker_is_missing_is_waited_for_until_the_deadline_and_told(
    config: dict[str, str], ledger: str
) -> None:
    # written ---- its outcome is unknown ---- a new producer opens ---- the partition still has it open
    class Unmarked(TransactionalProducer):
        def commit(self, records, positions, deadline, *, inspect):  # type: ignore[no-untyped-def]
            stored: list[Message] = []
            for record in records:
                lasting.produce(
                    record.topic,
                    record.value,
                    partition=record.partition,
                    on_delivery=lambda _, message: stored.append(message),
                )
            assert lasting.flush(30) == 0
            assert inspect(stored)
            raise Uncertain("commit a transaction", KafkaError(KafkaError._TIMED_OUT))

    lasting = Producer({**config, "transactional.id": uuid.uuid4().hex})
    lasting.init_transactions(30)
    lasting.begin_transaction()
    expected = ExpectedOffsets(config, ClusterAdmin(config), timeout_ms=60_000)
    expected._producer.__class__ = Unmarked
    expected._producer.open(Deadline.after_ms(60_000))
    began = time.monotonic()
    with pytest.raises(TransactionStaysOpen, match=rf"'{ledger}', partition 0: a transaction is open"):
        expected.publish(Record(ledger, 0, None, b"unmarked"), 0, Deadline.after_ms(5_000))
    assert time.monotonic() - began < 40.0
    lasting.abort_transaction(30)
    expected.close()
    assert messages_of(config, ledger) == []


COUNTER = """
import sys
from spark_cursor_source.client import Client, StartAt, StopAt
from spark_cursor_source.errors import IncorrectOffset
servers, streams, ledger, name = sys.argv[1:]
with Client({"kafka.bootstrap.servers": servers, "streamsTopic": streams}) as client:
    added, refused, others, position, last = 0, 0, 0, 0, 0
    while added < 25 or others < 25:  # else one may end before the other has started
        for message in client.subscribe(ledger, start=StartAt.offset(position), stop=StopAt.latest()):
            position, last, others = message.offset + 1, int(message.value.split()[0]), others + 1
        try:
            ack = client.publish(ledger, b"%d %s" % (last + 1, name.encode()), expected_offset=position)
        except IncorrectOffset:
            refused += 1
            continue
        added, position, last = added + 1, ack.offset + 1, last + 1
    print(refused)
"""


def test_two_processes_that_race_count_without_a_gap_or_a_repeat(
    config: dict[str, str], streams_topic: str, ledger: str
) -> None:
    def count(name: str) -> int:
        command = [sys.executable, "-c", COUNTER, config["bootstrap.servers"], streams_topic, ledger, name]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert ran.returncode == 0, ran.stderr
        return int(ran.stdout)

    with ThreadPoolExecutor(2) as pool:
        refused = list(pool.map(count, ("one", "two")))
    counted = [value.split() for value in messages_of(config, ledger) if value is not None]
    assert [int(number) for number, _ in counted] == list(range(1, len(counted) + 1))
    assert min(Counter(name for _, name in counted)[name] for name in (b"one", b"two")) >= 25
    assert sum(refused) > 0, "they did not meet"
