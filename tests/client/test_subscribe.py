"""Subscriptions of the plain client: where they begin and end, and what they live through."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice

import pytest

from spark_cursor_source.client import Client, Message, StartAt, StopAt
from spark_cursor_source.errors import (
    ClientClosed,
    EndOfReadonlyPartition,
    InvalidArgument,
    NoSuchStream,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.client.conftest import OpenClient
from tests.kafka.control_plane import produce, transaction

pytestmark = pytest.mark.broker

EARLIEST = StartAt.earliest()


def values(messages: Iterator[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def take(messages: Generator[Message], count: int) -> list[bytes | None]:
    """The next messages, and the end of the subscription."""
    with closing(messages):
        return values(islice(messages, count))


@pytest.fixture
def ten(client: Client, config: dict[str, str], stream: str) -> str:
    """A stream with the values 0 to 9 in partition 0, of the times 1000, 2000 and so on."""
    records = [{"value": b"%d" % n, "timestamp": 1_000 * (n + 1)} for n in range(10)]
    produce(config, stream, records)
    return stream


def test_a_message_is_as_it_was_published(client: Client, stream: str) -> None:
    client.publish(stream, b"v", b"k", headers=[("trace", b"\x00")], correlation_id="order 7", partition=2)
    client.publish(stream, None, partition=2)
    first, second = client.subscribe(stream, 2, start=EARLIEST, stop=StopAt.latest())
    assert (first.stream, first.partition, first.offset) == (stream, 2, 0)
    assert (first.key, first.value, first.correlation_id) == (b"k", b"v", "order 7")
    assert first.headers == (("trace", b"\x00"), ("cursorq-correlation-id", b"order 7"))
    assert second.timestamp_ms == client.fetch_partition_metadata(stream, 2).last_message_ms
    assert (second.key, second.value, second.headers, second.subject) == (None, None, (), None)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (StartAt.earliest(), 0),
        (StartAt.latest(), 9),
        (StartAt.offset(0), 0),
        (StartAt.offset(4), 4),
        (StartAt.time_ms(0), 0),
        (StartAt.time_ms(4_000), 3),
        (StartAt.time_ms(4_001), 4),
        (StartAt.time_ms(99_000), 10),
        (StartAt.ago_ms(60_000), 10),
        (StartAt.new_only(), 10),
    ],
    ids=lambda value: value.where.value + str(value.value) if isinstance(value, StartAt) else "",
)
def test_it_starts_where_it_is_told(client: Client, ten: str, start: StartAt, first: int) -> None:
    messages = client.subscribe(ten, start=start)
    client.publish(ten, b"10", partition=0)
    assert take(messages, 1) == [b"%d" % first]


def test_it_starts_a_time_before_the_brokers_now(client: Client, stream: str) -> None:
    client.publish(stream, b"just now", partition=0)
    assert take(client.subscribe(stream, start=StartAt.ago_ms(60_000)), 1) == [b"just now"]


def test_an_offset_that_is_yet_to_come_is_waited_for(client: Client, ten: str) -> None:
    messages = client.subscribe(ten, start=StartAt.offset(11), stop=StopAt.offset(12))
    for number in range(10, 14):
        client.publish(ten, b"%d" % number, partition=0)
    assert values(messages) == [b"11", b"12"]


@pytest.mark.parametrize(
    ("stop", "last"),
    [
        (StopAt.latest(), 9),
        (StopAt.offset(4), 4),
        (StopAt.time_ms(4_000), 3),
        (StopAt.time_ms(3_999), 2),
        (StopAt.time_ms(99_000), 9),
        (StopAt.time_ms(0), -1),
    ],
    ids=lambda value: value.where.value + str(value.value) if isinstance(value, StopAt) else "",
)
def test_it_stops_where_it_is_told(client: Client, ten: str, stop: StopAt, last: int) -> None:
    messages = client.subscribe(ten, start=EARLIEST, stop=stop)
    client.publish(ten, b"10", partition=0)
    assert values(messages) == [b"%d" % n for n in range(last + 1)]


def test_an_empty_partition_ends_at_its_latest_at_once(client: Client, stream: str) -> None:
    assert values(client.subscribe(stream, start=EARLIEST, stop=StopAt.latest())) == []
    assert values(client.subscribe(stream, start=StartAt.latest(), stop=StopAt.latest())) == []


def test_only_what_was_committed_is_delivered_and_the_newest_is_found_behind_it(
    client: Client, config: dict[str, str], stream: str
) -> None:
    # 0 committed | 1 its mark | 2 to 101 taken back | 102 their mark
    transaction(config, [(stream, {"value": b"committed"})])
    transaction(config, [(stream, {"value": b"taken back"})] * 100, commit=False)
    whole = client.subscribe(stream, start=EARLIEST, stop=StopAt.latest())
    assert values(whole) == [b"committed"]
    assert values(client.subscribe(stream, start=StartAt.latest(), stop=StopAt.latest())) == [b"committed"]
    assert values(client.subscribe(stream, start=EARLIEST, stop=StopAt.offset(102))) == [b"committed"]


def test_what_retention_has_removed_is_passed_over(client: Client, config: dict[str, str], ten: str) -> None:
    with closing(client.subscribe(ten, start=StartAt.offset(2))) as early:
        assert next(early).value == b"2"
        ClusterAdmin(config).delete_records({(ten, 0): 7})
        assert take(client.subscribe(ten, start=StartAt.offset(2)), 1) == [b"7"]


def test_a_paused_partition_is_delivered_once_it_is_published_to(
    client: Client, open_client: OpenClient, ten: str
) -> None:
    # 0 1 ---- paused [nothing] ---- another client publishes ---- 2 to 10
    other = open_client()
    with closing(client.subscribe(ten, start=EARLIEST)) as messages:
        assert values(islice(messages, 2)) == [b"0", b"1"]
        client.pause_stream(ten, partitions=[0])
        came: list[bytes | None] = []
        reader = threading.Thread(target=lambda: came.extend(values(islice(messages, 9))))
        reader.start()
        time.sleep(0.5)
        assert came == []
        other.publish(ten, b"elsewhere", partition=1)
        time.sleep(1.0)
        assert came == []
        other.publish(ten, b"10", partition=0)
        reader.join(120)
        assert came == [b"%d" % n for n in range(2, 11)]


def test_a_subscriber_may_end_the_pause(client: Client, ten: str) -> None:
    client.pause_stream(ten)
    assert take(client.subscribe(ten, start=EARLIEST, resume=True), 1) == [b"0"]
    assert [client.fetch_partition_metadata(ten, n).paused for n in range(3)] == [False, True, True]


def test_a_readonly_partition_is_read_to_its_end_and_then_it_says_so(client: Client, ten: str) -> None:
    client.set_stream_readonly(ten, partitions=[0])
    messages = client.subscribe(ten, start=StartAt.offset(7))
    assert values(islice(messages, 3)) == [b"7", b"8", b"9"]
    with pytest.raises(
        EndOfReadonlyPartition,
        match=r"to its end at offset 10 were delivered. Subscribe again from that offset",
    ):
        next(messages)
    assert values(client.subscribe(ten, start=StartAt.offset(7), stop=StopAt.offset(8))) == [b"7", b"8"]


def test_a_partition_that_becomes_readonly_ends_who_waits_for_more(client: Client, ten: str) -> None:
    setting = threading.Timer(0.5, client.set_stream_readonly, (ten,))
    setting.start()
    with pytest.raises(EndOfReadonlyPartition):
        values(client.subscribe(ten, start=StartAt.latest()))
    setting.join()


def test_a_stream_that_is_not_there_is_named_by_the_call(client: Client, stream: str) -> None:
    with pytest.raises(NoSuchStream, match="no stream 'not-here'"):
        client.subscribe("not-here")
    with pytest.raises(NoSuchStream, match="partition 3 of"):
        client.subscribe(stream, 3)
    with pytest.raises(InvalidArgument, match=r"^The argument offset=-1"):
        client.subscribe(stream, start=StartAt.offset(-1))


def test_a_stream_that_is_deleted_ends_its_subscriptions(client: Client, ten: str) -> None:
    with closing(client.subscribe(ten, start=StartAt.latest())) as messages:
        assert next(messages).value == b"9"
        client.delete_stream(ten)
        with pytest.raises(NoSuchStream):
            next(messages)


def test_a_stream_that_was_made_again_is_another_one(client: Client, ten: str) -> None:
    with closing(client.subscribe(ten, start=StartAt.latest())) as messages:
        assert next(messages).value == b"9"
        client.delete_stream(ten)
        client.create_stream(ten)
        with pytest.raises(NoSuchStream):
            next(messages)


@pytest.mark.parametrize("read", [0, 10])
def test_no_message_of_a_stream_that_was_made_again_comes_to_a_subscriber_of_the_earlier_one(
    open_client: OpenClient, client: Client, ten: str, read: int
) -> None:
    subscription = client.subscribe(ten, start=EARLIEST)
    assert values(islice(subscription, read)) == [b"%d" % number for number in range(read)]
    other = open_client()
    other.delete_stream(ten)
    other.create_stream(ten)
    for number in range(12):
        other.publish(ten, b"another %d" % number)
    with pytest.raises(NoSuchStream):
        next(subscription)


@pytest.mark.parametrize("at", [2**31, 2**62, 2**63 - 1])
def test_times_and_offsets_that_never_come_are_beyond_the_end(client: Client, ten: str, at: int) -> None:
    for start in (StartAt.time_ms(at), StartAt.offset(at)):
        assert values(client.subscribe(ten, start=start, stop=StopAt.latest())) == []
    assert len(values(client.subscribe(ten, start=EARLIEST, stop=StopAt.time_ms(at)))) == 10


def test_the_end_of_the_client_ends_who_waits(open_client: OpenClient, ten: str) -> None:
    client = open_client()
    messages = client.subscribe(ten)
    closing_it = threading.Timer(0.5, client.close)
    closing_it.start()
    with pytest.raises(ClientClosed):
        next(messages)
    closing_it.join()
    with pytest.raises(ClientClosed):
        client.subscribe(ten)
