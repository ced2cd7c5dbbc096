"""Streams of the plain client: made, deleted, and published to, with an ack for each message."""

from __future__ import annotations

import logging
import re
import threading
import uuid
import zlib
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from spark_cursor_source.client import (
    Ack,
    AckPolicy,
    Client,
    RoundRobin,
    Service,
    ServiceConfig,
    StartAt,
    StopAt,
    by_key,
)
from spark_cursor_source.client.streams.expected_offset import ExpectedOffsets
from spark_cursor_source.core.stream_metadata import StreamInfo
from spark_cursor_source.errors import (
    ClientClosed,
    CursorqError,
    InvalidArgument,
    KafkaRefused,
    NoSuchStream,
    StreamExists,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer
from tests.client.conftest import OpenClient
from tests.kafka.control_plane import read_all
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_a_stream_is_a_topic_with_the_settings_that_were_given(
    client: Client, config: dict[str, str]
) -> None:
    name = f"stream-{uuid.uuid4().hex[:12]}"
    client.create_stream(
        name,
        2,
        replication=1,
        retention_bytes=1 << 30,
        retention_ms=86_400_000,
        segment_bytes=1 << 20,
        segment_ms=60_000,
        compaction=True,
        min_insync=1,
    )
    topics = ClusterAdmin(config)
    assert topics.describe([name])[name].partitions == 2
    found = topics.settings(name)
    expected = {
        "retention.bytes": str(1 << 30),
        "retention.ms": "86400000",
        "segment.bytes": str(1 << 20),
        "segment.ms": "60000",
        "cleanup.policy": "compact",
        "min.insync.replicas": "1",
    }
    assert {key: found[key] for key in expected} == expected


def test_a_limit_of_0_is_none_as_in_liftbridge(client: Client, config: dict[str, str]) -> None:
    name = f"stream-{uuid.uuid4().hex[:12]}"
    client.create_stream(name, retention_bytes=0, retention_ms=0, retention_messages=0, segment_ms=0)
    found = ClusterAdmin(config).settings(name)
    assert (found["retention.bytes"], found["retention.ms"]) == ("-1", "-1")
    assert found["segment.ms"] == str(2**63 - 1)


def test_a_stop_before_the_start_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="it is before the start"):
        client.subscribe("any", start=StartAt.offset(7), stop=StopAt.offset(3))


def test_a_stream_is_made_once_and_deleted_once(client: Client, stream: str) -> None:
    with pytest.raises(StreamExists, match=f"'{stream}' exists already. Use it"):
        client.create_stream(stream)
    client.delete_stream(stream)
    with pytest.raises(NoSuchStream, match=f"no stream '{stream}'"):
        client.delete_stream(stream)
    client.create_stream(stream)
    assert client.publish(stream, b"again").offset == 0


def test_metadata_is_what_the_brokers_say_now(
    client: Client, open_client: OpenClient, config: dict[str, str], stream: str
) -> None:
    found = client.fetch_metadata()
    (broker,) = found.brokers
    assert f"{broker.host}:{broker.port}" == config["bootstrap.servers"]
    assert found.streams[stream] == StreamInfo(subject=stream, partitions=3)
    assert "__consumer_offsets" not in found.streams
    open_client().create_stream(f"{stream}-2", subject="orders.*")
    assert client.fetch_metadata().streams[f"{stream}-2"].subject == "orders.*"
    before = client.fetch_partition_metadata(stream, 1)
    assert (before.oldest_offset, before.high_watermark, before.newest_offset) == (0, 0, -1)
    assert before.replicas == before.in_sync == (before.leader,) == (broker.id,)
    ack = client.publish(stream, b"", partition=1)
    assert client.fetch_partition_metadata(stream, 1).newest_offset == ack.offset
    with pytest.raises(NoSuchStream, match="partition 3 of"):
        client.fetch_partition_metadata(stream, 3)
    client.delete_stream(stream)
    assert stream not in client.fetch_metadata().streams
    with pytest.raises(NoSuchStream):
        client.fetch_partition_metadata(stream, 1)


def test_what_brokers_cannot_make_is_refused(client: Client) -> None:
    with pytest.raises(KafkaRefused, match="INVALID_REPLICATION_FACTOR"):
        client.create_stream(f"stream-{uuid.uuid4().hex[:12]}", replication=3)
    with pytest.raises(InvalidArgument, match=r"^The argument partitions=0"):
        client.create_stream("orders", 0)
    with pytest.raises(InvalidArgument, match=r"^The argument stream='or ders'"):
        client.create_stream("or ders")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("partitions", 100_001),
        ("replication", 10_001),
        ("replication", "1"),
        ("retention_bytes", -5),
        ("retention_bytes", 1.5),
        ("retention_ms", 2**63),
        ("segment_bytes", 0),
        ("segment_bytes", 2**31),
        ("segment_ms", -1),
        ("min_insync", True),
        ("compaction", "no"),
        ("optimistic_concurrency", "no"),
    ],
)
def test_a_setting_that_no_stream_can_have_creates_no_topic(
    client: Client, argument: str, value: object
) -> None:
    stream = f"stream-{uuid.uuid4().hex[:12]}"
    with pytest.raises(InvalidArgument, match=f"^The argument {argument}={re.escape(repr(value))}"):
        client.create_stream(stream, **{argument: value})  # type: ignore[arg-type]
    assert stream not in client.fetch_metadata().streams


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"value": 5}, "value=5 is invalid: it is not bytes"),
        ({"value": "\udcff"}, "value='.udcff' is invalid: UTF-8 has no bytes"),
        ({"key": "order"}, "key='order' is invalid: it is not bytes; encode a text"),
        ({"headers": None}, "headers=None is invalid: they are not pairs"),
        ({"headers": ["trace"]}, r"headers=\['trace'\] is invalid: they are not pairs"),
        ({"headers": [("trace", 5)]}, "headers=5 is invalid: the value of 'trace' is not bytes"),
        ({"headers": [(5, b"7")]}, "headers=5 is invalid: it is not a text"),
        ({"correlation_id": 7}, "correlation_id=7 is invalid: it is not a text"),
        ({"partition": "1"}, "partition='1' is invalid: it is not a whole number"),
        ({"partitioner": "by key"}, "partitioner='by key' is invalid: it cannot be called"),
        ({"ack_policy": "some"}, "ack_policy='some' is invalid: it is none of"),
        ({"timeout_ms": "5s"}, "timeout_ms='5s' is invalid: it is not a number of milliseconds"),
        ({"timeout_ms": 2**64}, "timeout_ms=.* is invalid: it is longer than a year"),
    ],
)
def test_an_argument_of_another_type_publishes_nothing_and_is_told(
    client: Client, stream: str, config: dict[str, str], arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"^The argument {why}"):
        client.publish(stream, **({"value": b"v"} | arguments))
    assert read_all(config, stream) == []


def test_a_callback_that_cannot_be_called_publishes_nothing_and_is_told(
    client: Client, stream: str, config: dict[str, str]
) -> None:
    unset: Any = None  # its outcomes would be lost
    service = Service(ServiceConfig(bootstrap_servers=config["bootstrap.servers"], message_topic=stream))
    why = "^The argument on_ack=None is invalid: it cannot be called"
    with service.queue(subscription="s").producer() as producer:
        with pytest.raises(InvalidArgument, match=why):
            producer.send_async(b"v", on_ack=unset)
        with pytest.raises(InvalidArgument, match=why):
            client.publish_async(stream, b"v", on_ack=unset)
    assert read_all(config, stream) == []


def test_names_and_positions_of_another_type_are_told(client: Client, stream: str) -> None:
    nothing: Any = None
    for argument, call in (
        ("stream", lambda: client.delete_stream(nothing)),
        ("subject", lambda: client.publish_to_subject(nothing, b"v")),
        ("cursor_id", lambda: client.set_cursor(nothing, stream, 0, 1)),
        ("cursor_id", lambda: client.fetch_cursor(nothing, stream, 0)),
        ("start", lambda: client.subscribe(stream, start="earliest")),  # type: ignore[arg-type]
        ("stop", lambda: client.subscribe(stream, stop=5)),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidArgument, match=f"^The argument {argument}="):
            call()
    assert client.publish(stream, b"v", ack_policy="leader").ack_policy is AckPolicy.LEADER  # type: ignore[arg-type]


def test_a_text_is_no_truth(client: Client, stream: str) -> None:
    # Each text but the empty one would count as True.
    with pytest.raises(InvalidArgument, match=r"^The argument readonly='no' .* not True or False"):
        client.set_stream_readonly(stream, readonly="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^The argument resume_all='no'"):
        client.pause_stream(stream, resume_all="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^The argument resume='no'"):
        client.subscribe(stream, resume="no")  # type: ignore[arg-type]
    metadata = client.fetch_partition_metadata(stream, 0)
    assert not metadata.readonly
    assert not metadata.paused


def test_an_ack_says_where_the_message_is(client: Client, config: dict[str, str], stream: str) -> None:
    first = client.publish(
        stream, b"value", b"key", headers=[("trace", b"\x00")], correlation_id="order 7", partition=2
    )
    assert first == Ack(
        stream=stream,
        partition=2,
        offset=0,
        correlation_id="order 7",
        ack_policy=AckPolicy.ALL,
        received_at_ms=None,
    )
    assert client.publish(stream, None, b"key", partition=2).offset == 1
    message, tombstone = read_all(config, stream)
    assert (message.key(), message.value()) == (b"key", b"value")
    assert message.headers() == [("trace", b"\x00"), ("cursorq-correlation-id", b"order 7")]
    assert (tombstone.value(), tombstone.headers()) == (None, None)


def test_a_stream_that_stamps_messages_says_when_it_received_them(
    client: Client, config: dict[str, str]
) -> None:
    name = f"stream-{uuid.uuid4().hex[:12]}"
    ClusterAdmin(config).create({name: (1, {"message.timestamp.type": "LogAppendTime"})})
    ack = client.publish(name, b"")
    (message,) = read_all(config, name)
    assert ack.received_at_ms == message.timestamp()[1]


def test_the_partition_follows_from_the_key_the_turn_or_a_function(client: Client, stream: str) -> None:
    keys = [b"key %d" % number for number in range(6)]
    chosen = [client.publish(stream, b"", key).partition for key in keys]
    assert chosen == [zlib.crc32(key) % 3 for key in keys]
    turns = RoundRobin()
    assert [client.publish(stream, b"", b"k", partitioner=turns).partition for _ in range(4)] == [0, 1, 2, 0]
    assert sorted(client.publish(stream, b"").partition for _ in range(3)) == [0, 1, 2]
    assert client.publish(stream, b"", b"k", partitioner=by_key).partition == zlib.crc32(b"k") % 3
    assert client.publish(stream, b"ab", partitioner=lambda _, value, __: len(value or b"")).partition == 2
    with pytest.raises(
        InvalidArgument, match=r"^The argument partitioner=3 is invalid: the stream has partitions 0 to 2"
    ):
        client.publish(stream, b"", partitioner=lambda _, __, count: count)


@pytest.mark.parametrize("policy", AckPolicy)
def test_each_ack_policy_publishes(
    client: Client, config: dict[str, str], stream: str, policy: AckPolicy
) -> None:
    # A broker drops what needs no ack while it takes over a new partition: one that it confirms goes first.
    assert client.publish(stream, b"", partition=1).offset == 0
    acks = [client.publish(stream, b"x", partition=1, ack_policy=policy) for _ in range(3)]
    assert [ack.ack_policy for ack in acks] == [policy] * 3
    assert [ack.offset for ack in acks] == ([None] * 3 if policy is AckPolicy.NONE else [1, 2, 3])
    wait_until(lambda: len(read_all(config, stream)) == 4)  # NONE is acked before it is there


def test_a_stream_that_is_not_there_is_named(client: Client, stream: str) -> None:
    with pytest.raises(NoSuchStream, match="no stream 'not-here'"):
        client.publish("not-here", b"")
    with pytest.raises(NoSuchStream, match=f"partition 3 of stream '{stream}'"):
        client.publish(stream, b"", partition=3)


def test_text_without_bytes_in_utf_8_is_refused_and_does_not_end_the_process(
    client: Client, stream: str
) -> None:
    for wrong in ({"headers": [("\ud800", b"v")]}, {"correlation_id": "\ud800"}):
        with pytest.raises(InvalidArgument, match="lone surrogate"):
            client.publish(stream, b"v", **wrong)  # type: ignore[arg-type]
    ack = client.publish(stream, b"v", headers=[("é", b"v")], correlation_id="✓", partition=1)
    (message,) = client.subscribe(stream, 1, start=StartAt.earliest(), stop=StopAt.latest())
    assert (ack.correlation_id, message.correlation_id) == ("✓", "✓")
    assert message.headers[0] == ("é", b"v")


def test_a_publisher_learns_that_another_client_made_a_stream_again_with_fewer_partitions(
    open_client: OpenClient, client: Client, stream: str
) -> None:
    other = open_client()
    assert [client.publish(stream, b"v", partition=number).partition for number in range(3)] == [0, 1, 2]
    other.delete_stream(stream)
    other.create_stream(stream, 1)
    with pytest.raises(NoSuchStream):
        client.publish(stream, b"v", partition=2)
    assert [client.publish(stream, b"v").partition for _ in range(3)] == [0, 0, 0]


def test_a_publisher_finds_a_partition_that_was_added_since_its_last_message(
    client: Client, config: dict[str, str], stream: str
) -> None:
    client.publish(stream, b"v", partition=2)
    with pytest.raises(NoSuchStream):
        client.publish(stream, b"v", partition=3)
    admin, topics = AdminClient(config), ClusterAdmin(config)
    admin.create_partitions([NewPartitions(stream, 4)])[stream].result(20)
    wait_until(lambda: topics.describe([stream])[stream].partitions == 4)
    assert client.publish(stream, b"v", partition=3).partition == 3


def test_acks_of_messages_that_nobody_waits_for_come_once_each_and_before_the_close(
    config: dict[str, str], stream: str
) -> None:
    acks: list[Ack | CursorqError] = []
    with Client({"kafka.bootstrap.servers": config["bootstrap.servers"]}) as client:
        for number in range(2_000):
            client.publish_async(stream, b"%d" % number, on_ack=acks.append, partition=number % 3)
    places = {(ack.partition, ack.offset) for ack in acks if isinstance(ack, Ack)}
    assert (len(acks), len(places)) == (2_000, 2_000)
    in_order = [message.value() for message in read_all(config, stream) if message.partition() == 1]
    assert in_order == [b"%d" % number for number in range(1, 2_000, 3)]
    with pytest.raises(ClientClosed):
        client.publish_async(stream, b"", on_ack=acks.append)


def test_an_error_in_a_callback_is_logged_and_later_messages_are_acked(
    open_client: OpenClient, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    def on_ack(_: Ack | CursorqError) -> None:
        raise ValueError("the caller's own")

    client = open_client()
    with caplog.at_level(logging.ERROR):
        client.publish_async(stream, b"", on_ack=on_ack)
        assert client.publish(stream, b"").offset == 0
        client.close()
    assert "the caller's own" in caplog.text


@pytest.mark.parametrize(("part", "call"), [(ConfirmedProducer, "flush"), (ExpectedOffsets, "close")])
def test_a_close_ends_every_thread_although_it_is_interrupted(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, stream: str, part: type, call: str
) -> None:
    def running() -> int:
        names = ("cursorq-streams", "cursorq-publisher", "cursorq-expected")
        return sum(thread.name.startswith(names) for thread in threading.enumerate())

    before, one = running(), open_client()
    one.publish(stream, b"1")
    one.set_cursor("reader", stream, 0, 1)
    assert running() >= before + 2

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(part, call, interrupt)
    with pytest.raises(KeyboardInterrupt):
        one.close()
    monkeypatch.undo()
    one.close()
    wait_until(lambda: running() == before, timeout_s=20)
