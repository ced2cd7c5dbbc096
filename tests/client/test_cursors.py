"""Cursors of the plain client: durable, seen by all, the last one wins, and an epoch fences."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.client import Client
from spark_cursor_source.core.cell import control_partition
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import (
    ClientClosed,
    CursorFenced,
    CursorOfTracker,
    CursorsTopicNotCompacted,
    InvalidArgument,
    InvalidControlRecord,
    KafkaUnavailable,
    MissingOption,
    TransactionStaysOpen,
)
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop.lease_table import START, LeaseTable, MessageMarkers
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire.control_pb2 import Cursor as CursorPb
from tests.conftest import CreateTopic, DeleteTopic
from tests.kafka.control_plane import (
    PARTITIONS,
    cell_of,
    cursor_of,
    produce,
    read_all,
    transaction,
)

pytestmark = pytest.mark.broker

MakeClient = Callable[..., Client]


@pytest.fixture
def config(broker: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def cursors() -> str:
    """The name of a cursors topic that is not there yet."""
    return f"cursors-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_client(config: dict[str, str], cursors: str) -> Iterator[MakeClient]:
    """``new_client(clientTimeout="1s")``: one more client of the topic."""
    made: list[Client] = []

    def make(**options: str) -> Client:
        servers = {"kafka.bootstrap.servers": config["bootstrap.servers"]}
        made.append(Client({**servers, "cursorsTopic": cursors, **options}))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(new_client: MakeClient) -> Client:
    return new_client()


def test_a_cursor_that_nobody_has_set_is_at_minus_one(client: Client) -> None:
    assert client.fetch_cursor("mailer", "orders", 0) == -1


def test_a_cursor_is_found_under_its_id_stream_and_partition_alone(client: Client) -> None:
    client.set_cursor("mailer", "orders", 0, 41)
    client.set_cursor("mailer", "orders", 0, 42)
    client.set_cursor("mailer, the second", "orders", 0, 7)
    assert client.fetch_cursor("mailer", "orders", 0) == 42
    assert client.fetch_cursor("mailer, the second", "orders", 0) == 7
    for other in (("mailer", "orders", 1), ("mailer", "returns", 0), ("audit", "orders", 0)):
        assert client.fetch_cursor(*other) == -1


def test_what_is_stored_is_what_liftbridge_stores(
    client: Client, config: dict[str, str], cursors: str
) -> None:
    client.set_cursor("mailer", "orders", 3, 41)
    (record,) = read_all(config, cursors)
    key = b"mailer,orders,3"
    assert (record.key(), record.partition()) == (key, control_partition(key, PARTITIONS))
    plain = CursorPb(cursor_id="mailer", stream="orders", partition=3, offset=41)
    assert record.value() == plain.SerializeToString()


def test_a_fetch_sees_what_another_client_has_just_set(new_client: MakeClient) -> None:
    writer, reader = new_client(), new_client()
    for offset in range(30):
        writer.set_cursor("mailer", "orders", offset % 3, offset)
        assert reader.fetch_cursor("mailer", "orders", offset % 3) == offset


SETTER = """
import sys
from spark_cursor_source.client import Client
with Client({"kafka.bootstrap.servers": sys.argv[1], "cursorsTopic": sys.argv[2]}) as client:
    for line in sys.stdin:
        client.set_cursor("mailer", "orders", 0, int(line))
        print(line, end="", flush=True)
"""


def test_a_fetch_sees_what_another_process_has_just_set(
    client: Client, config: dict[str, str], cursors: str
) -> None:
    command = [sys.executable, "-c", SETTER, config["bootstrap.servers"], cursors]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as setter:
        assert setter.stdin is not None
        assert setter.stdout is not None
        for offset in range(20):
            setter.stdin.write(f"{offset}\n")
            assert setter.stdout.readline() == f"{offset}\n"
            assert client.fetch_cursor("mailer", "orders", 0) == offset
        setter.stdin.close()
    assert setter.returncode == 0


@dataclass(frozen=True)
class Call:
    """A set or a fetch of one cursor, from its beginning to its end."""

    is_set: bool
    offset: int  #: that was set, or found
    epoch: int | None
    is_refused: bool
    began: float
    ended: float

    def on(self, offset: int, epoch: int | None) -> tuple[int, int | None] | None:
        """What a dict holds after it, that held this offset and epoch before; None: it says otherwise."""
        if not self.is_set:
            return (offset, epoch) if self.offset == offset else None
        refused = epoch is not None and (self.epoch is None or self.epoch < epoch)
        if refused is not self.is_refused:
            return None
        return (offset, epoch) if refused else (self.offset, self.epoch)


def is_as_of_a_dict(calls: Sequence[Call]) -> bool:
    """Whether a dict says the same in some order, in which none comes before one that had ended by then."""
    seen: set[tuple[frozenset[Call], int, int | None]] = set()
    open_ends: list[tuple[frozenset[Call], int, int | None]] = [(frozenset(calls), -1, None)]
    while open_ends:
        left, *held = at = open_ends.pop()
        if not left:
            return True
        if at in seen:
            continue
        seen.add(at)
        first_end = min(call.ended for call in left)
        for call in left:
            after = call.on(*held) if call.began <= first_end else None
            if after is not None:
                open_ends.append((left - {call}, *after))
    return False


@pytest.fixture(scope="module")
def two_clients(broker: EmbeddedKafka) -> Iterator[list[Client]]:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "cursorsTopic": f"cursors-{uuid.uuid4().hex[:12]}",
    }
    with Client(options) as one, Client(options) as other:
        yield [one, other]


#: of a thread: with which client, which cursor, and the offset to set, or None to fetch it
STEPS = st.tuples(st.integers(0, 1), st.integers(0, 1), st.none() | st.integers(0, 3))


@settings(max_examples=25, deadline=None)
@given(threads=st.lists(st.lists(STEPS, max_size=6), min_size=2, max_size=4), fenced=st.booleans())
def test_setters_at_the_same_time_leave_what_a_dict_could_hold(
    two_clients: list[Client], threads: list[list[tuple[int, int, int | None]]], *, fenced: bool
) -> None:
    name = uuid.uuid4().hex
    calls: dict[int, list[Call]] = {0: [], 1: []}

    def work(number: int) -> None:
        for who, partition, offset in threads[number]:
            epoch, refused, began = number if fenced and offset is not None else None, False, time.monotonic()
            if offset is None:
                found = two_clients[who].fetch_cursor(name, "orders", partition)
            else:
                found = offset
                try:
                    two_clients[who].set_cursor(name, "orders", partition, offset, epoch=epoch)
                except CursorFenced:
                    refused = True
            done = Call(offset is not None, found, epoch, refused, began, time.monotonic())
            calls[partition].append(done)

    with ThreadPoolExecutor(len(threads)) as pool:
        list(pool.map(work, range(len(threads))))
    assert all(map(is_as_of_a_dict, calls.values())), calls


def test_the_judge_of_setters_knows_what_a_dict_would_not_do() -> None:
    # set 1 |----|          set 2 |----|
    #              fetch |-|            fetch |-|
    one, two = Call(True, 1, None, False, 0, 2), Call(True, 2, None, False, 5, 7)
    assert is_as_of_a_dict([one, two, Call(False, 1, None, False, 3, 4), Call(False, 2, None, False, 8, 9)])
    assert is_as_of_a_dict([one, two, Call(False, 1, None, False, 6, 7), Call(False, 2, None, False, 6, 7)])
    assert not is_as_of_a_dict([one, two, Call(False, 2, None, False, 3, 4)])
    assert not is_as_of_a_dict([one, two, Call(False, 1, None, False, 8, 9)])
    assert not is_as_of_a_dict(
        [one, two, Call(False, 2, None, False, 5, 5.5), Call(False, 1, None, False, 6, 6.5)]
    )
    late = Call(True, 3, 1, False, 8, 9)
    assert not is_as_of_a_dict([one, Call(True, 2, 2, False, 5, 7), late])
    assert is_as_of_a_dict([one, Call(True, 2, 2, False, 5, 7), replace(late, is_refused=True)])


def test_a_lower_epoch_or_none_is_refused_and_changes_nothing(client: Client) -> None:
    # epoch 3 ---- 2 and none: refused ---- 3 ---- 4 ---- 3: refused
    client.set_cursor("mailer", "orders", 0, 10)
    client.set_cursor("mailer", "orders", 0, 11, epoch=3)
    with pytest.raises(CursorFenced, match=r"epoch 3, and epoch 2 is lower.* obtain a higher epoch"):
        client.set_cursor("mailer", "orders", 0, 12, epoch=2)
    with pytest.raises(CursorFenced, match="no epoch is lower"):
        client.set_cursor("mailer", "orders", 0, 12)
    assert client.fetch_cursor("mailer", "orders", 0) == 11
    client.set_cursor("mailer", "orders", 0, 13, epoch=3)
    client.set_cursor("mailer", "orders", 0, 9, epoch=4)
    with pytest.raises(CursorFenced):
        client.set_cursor("mailer", "orders", 0, 14, epoch=3)
    assert client.fetch_cursor("mailer", "orders", 0) == 9


def test_owners_that_race_never_write_a_lower_epoch_after_a_higher_one(
    new_client: MakeClient, config: dict[str, str], cursors: str
) -> None:
    set_by: list[int] = []

    def work(epoch: int) -> None:
        client = new_client()
        try:
            for _ in range(3):
                client.set_cursor("mailer", "orders", 0, epoch, epoch=epoch)
                set_by.append(epoch)
        except CursorFenced:
            pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, (2, 4, 1, 3)))
    assert set_by.count(4) == 3
    assert new_client().fetch_cursor("mailer", "orders", 0) == 4
    written = [CursorPb.FromString(record.value() or b"").epoch for record in read_all(config, cursors)]
    assert written == sorted(written)


def test_the_cursor_of_a_subscription_is_fetched_and_not_set(
    client: Client, config: dict[str, str], cursors: str
) -> None:
    assert client.fetch_cursor("billing", "orders", 0) == -1
    tracked, tables = cell_of("orders"), table_wire.table_cell("orders", "orders-markers", 0)
    table = LeaseTable.resume(None).apply(MessageMarkers.of([(7, 0, START, 0, 40, 30_000)]))
    values = {
        tracked: cursor_wire.encode(cursor_of(tracked, 30, (20, 25))),
        tables: table_wire.encode_record(table, tables),
    }
    records = [
        (cursors, {"key": cell.key, "value": value, "partition": cell.control_partition(PARTITIONS)})
        for cell, value in values.items()
    ]
    transaction(config, records)
    for cell, offset in ((tracked, 19), (tables, 6)):
        name = (cell.subscription, cell.topic, cell.partition)
        assert client.fetch_cursor(*name) == offset
        for epoch in (None, 9):
            with pytest.raises(CursorOfTracker, match="Ack messages to move it"):
                client.set_cursor(*name, 100, epoch=epoch)
        assert client.fetch_cursor(*name) == offset


def test_calls_wait_for_what_stands_behind_an_open_transaction(
    new_client: MakeClient, config: dict[str, str], cursors: str
) -> None:
    # set 1 ---- a tracker's transaction begins ---- [set 2 waits, fetch waits] ---- it is committed
    client, hasty = new_client(), new_client(clientTimeout="4s")
    client.set_cursor("mailer", "orders", 0, 1)
    producer = Producer({**config, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    home = control_partition(b"mailer,orders,0", PARTITIONS)
    producer.produce(cursors, b"", b"another", partition=home)
    assert producer.flush(30) == 0
    with pytest.raises(TransactionStaysOpen, match="a transaction is open"):
        hasty.fetch_cursor("mailer", "orders", 0)
    committing = threading.Timer(0.3, producer.commit_transaction, (30,))
    committing.start()
    client.set_cursor("mailer", "orders", 0, 2)
    assert client.fetch_cursor("mailer", "orders", 0) == 2
    committing.join()


def test_a_record_that_is_no_cursor_is_not_taken_for_one(
    client: Client, config: dict[str, str], cursors: str
) -> None:
    client.fetch_cursor("mailer", "orders", 0)
    foreign = CursorPb(cursor_id="audit", stream="orders", partition=1, offset=3).SerializeToString()
    for partition, value in enumerate([b"\xff\x00random", foreign]):
        key = b"mailer,orders,%d" % partition
        home = control_partition(key, PARTITIONS)
        produce(config, cursors, [{"key": key, "value": value, "partition": home}])
        with pytest.raises(InvalidControlRecord, match=f"cursor 'mailer,orders,{partition}'"):
            client.fetch_cursor("mailer", "orders", partition)


def test_a_hundred_thousand_cursors_are_there_in_seconds(
    client: Client, new_client: MakeClient, config: dict[str, str], cursors: str
) -> None:
    client.set_cursor("mailer", "orders", 0, 0)
    producer = Producer({**config, "linger.ms": 20, "queue.buffering.max.messages": 200_000})
    for number in range(100_000):
        key = b"reader,orders,%d" % number
        value = CursorPb(cursor_id="reader", stream="orders", partition=number, offset=number)
        producer.produce(
            cursors, value.SerializeToString(), key, partition=control_partition(key, PARTITIONS)
        )
    assert producer.flush(60) == 0
    fresh, began = new_client(), time.monotonic()
    assert fresh.fetch_cursor("reader", "orders", 99_999) == 99_999
    assert time.monotonic() - began < 60  # under 1 s on an idle machine
    assert [fresh.fetch_cursor("reader", "orders", number) for number in range(0, 100_000, 9_000)] == list(
        range(0, 100_000, 9_000)
    )


def test_a_topic_that_was_made_again_has_no_old_cursors(
    client: Client, new_client: MakeClient, delete_topic: DeleteTopic, cursors: str
) -> None:
    for offset in range(5):
        client.set_cursor("mailer", "orders", 0, offset)
    delete_topic(cursors)
    other = new_client()
    other.set_cursor("audit", "orders", 0, 7)
    assert client.fetch_cursor("mailer", "orders", 0) == -1
    assert client.fetch_cursor("audit", "orders", 0) == 7


def test_a_topic_that_is_not_compacted_is_refused(new_client: MakeClient, create_topic: CreateTopic) -> None:
    with pytest.raises(CursorsTopicNotCompacted):
        new_client(cursorsTopic=create_topic(cleanup_policy="delete")).fetch_cursor("mailer", "orders", 0)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("", "orders", 0, 1), "cursor_id"),
        (("mailer\n", "orders", 0, 1), "cursor_id"),
        (("mailer", "or,ders", 0, 1), "stream"),
        (("mailer", "orders", -1, 1), "partition"),
        (("mailer", "orders", 2**31, 1), "partition"),
        (("mailer", "orders", 0, -2), "offset"),
        (("mailer", "orders", 0, 2**63), "offset"),
    ],
)
def test_an_argument_that_cannot_be_is_named(
    client: Client, arguments: tuple[str, str, int, int], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=rf"^The argument {named}="):
        client.set_cursor(*arguments)
    with pytest.raises(InvalidArgument, match=r"^The argument epoch=-1 is invalid: it is not in 0 to"):
        client.set_cursor("mailer", "orders", 0, 1, epoch=-1)


def test_a_client_that_is_closed_says_so_and_may_be_closed_again(new_client: MakeClient) -> None:
    with new_client() as client:
        client.set_cursor("mailer", "orders", 0, 1)
    client.close()
    with pytest.raises(ClientClosed, match="Open another"):
        client.fetch_cursor("mailer", "orders", 0)


def test_brokers_that_do_not_answer_are_an_error_in_time() -> None:
    began = time.monotonic()
    with (
        Client({"kafka.bootstrap.servers": "127.0.0.1:1", "clientTimeout": "1s"}) as client,
        pytest.raises(KafkaUnavailable),
    ):
        client.set_cursor("mailer", "orders", 0, 1)
    assert time.monotonic() - began < 40


def test_a_client_asks_for_its_brokers_and_tells_no_secret() -> None:
    with pytest.raises(MissingOption, match=r"kafka\.bootstrap\.servers"):
        Client({})
    options = {"kafka.bootstrap.servers": "b:9092", "kafka.sasl.password": "hunter2"}
    assert "hunter2" not in repr(Client(options))
