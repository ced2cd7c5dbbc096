"""Every operation and option of Liftbridge's client guide, and the call of this client that does it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice

import pytest

from spark_cursor_source.client import AckPolicy, Client, RoundRobin, StartAt, StopAt, by_key
from spark_cursor_source.errors import (
    EndOfReadonlyPartition,
    IncorrectOffset,
    ReadonlyPartition,
    StreamExists,
)

pytestmark = pytest.mark.broker

Do = Callable[[Client, str], object]
LATEST = StopAt.latest()


def made(**options: object) -> Do:
    return lambda client, _: client.create_stream(f"guide-{uuid.uuid4().hex[:12]}", **options)  # type: ignore[arg-type]


def published(**options: object) -> Do:
    return lambda client, stream: client.publish(stream, b"v", **options)  # type: ignore[arg-type]


def subscribed(**options: object) -> Do:
    def do(client: Client, stream: str) -> object:
        return list(client.subscribe(stream, stop=LATEST, **options))  # type: ignore[arg-type]

    return do


def fails_with(error: type[Exception], do: Do) -> Do:
    def expect(client: Client, stream: str) -> None:
        with pytest.raises(error):
            do(client, stream)

    return expect


def publish_async(client: Client, stream: str) -> None:
    acks: list[object] = []
    client.publish_async(stream, b"v", on_ack=acks.append)
    until = time.monotonic() + 60
    while not acks:
        assert time.monotonic() < until
        time.sleep(0.01)


def delete_stream(client: Client, _: str) -> None:
    client.create_stream(name := f"guide-{uuid.uuid4().hex[:12]}")
    client.delete_stream(name)


def read_readonly(client: Client, stream: str) -> None:
    client.set_stream_readonly(stream, partitions=[2])
    fails_with(ReadonlyPartition, published(partition=2))(client, stream)
    with pytest.raises(EndOfReadonlyPartition):
        list(client.subscribe(stream, 2))
    client.set_stream_readonly(stream, partitions=[2], readonly=False)


def concurrency(client: Client, _: str) -> None:
    client.create_stream(name := f"guide-{uuid.uuid4().hex[:12]}", optimistic_concurrency=True)
    client.publish(name, b"v", expected_offset=0)
    fails_with(IncorrectOffset, published(expected_offset=0))(client, name)


def wait_for_new(client: Client, stream: str) -> None:
    with closing(client.subscribe(stream)) as messages:
        client.publish(stream, b"new", partition=0)
        assert [message.value for message in islice(messages, 1)] == [b"new"]


def cursor(client: Client, stream: str) -> None:
    client.set_cursor("guide", stream, 0, 5)
    assert client.fetch_cursor("guide", stream, 0) == 5
    assert client.fetch_cursor("nobody", stream, 0) == -1


def closed_twice(client: Client, stream: str) -> None:
    # Of a client of its own; the one at hand is everybody's.
    other = Client({"kafka.bootstrap.servers": "127.0.0.1:1"})
    other.close()
    other.close()


GUIDE: dict[str, Do] = {
    "CreateStream": made(),
    "CreateStream: ErrStreamExists": fails_with(StreamExists, lambda client, s: client.create_stream(s)),
    "CreateStream: Subject": made(subject="guide.*"),
    "CreateStream: Partitions": made(partitions=2),
    "CreateStream: ReplicationFactor": made(replication=1),
    "CreateStream: MaxReplication": made(replication=-1),
    "CreateStream: RetentionMaxBytes": made(retention_bytes=1 << 20),
    "CreateStream: RetentionMaxMessages": made(retention_messages=100),
    "CreateStream: RetentionMaxAge": made(retention_ms=60_000),
    "CreateStream: SegmentMaxBytes": made(segment_bytes=1 << 20),
    "CreateStream: SegmentMaxAge": made(segment_ms=60_000),
    "CreateStream: CompactEnabled": made(compaction=True),
    "CreateStream: MinISR": made(min_insync=1),
    "CreateStream: OptimisticConcurrencyControl, ExpectedOffset": concurrency,
    "DeleteStream": delete_stream,
    "PauseStream": lambda client, stream: client.pause_stream(stream),
    "PauseStream: PausePartitions": lambda client, stream: client.pause_stream(stream, partitions=[1]),
    "PauseStream: ResumeAll": lambda client, stream: client.pause_stream(stream, resume_all=True),
    "SetStreamReadonly: ReadonlyPartitions, Readonly, ErrReadonlyPartition": read_readonly,
    "Subscribe: StartAtNewOnly": wait_for_new,
    "Subscribe: Partition": subscribed(partition=1),
    "Subscribe: StartAtEarliestReceived": subscribed(start=StartAt.earliest()),
    "Subscribe: StartAtLatestReceived": subscribed(start=StartAt.latest()),
    "Subscribe: StartAtOffset": subscribed(start=StartAt.offset(0)),
    "Subscribe: StartAtTime": subscribed(start=StartAt.time_ms(0)),
    "Subscribe: StartAtTimeDelta": subscribed(start=StartAt.ago_ms(60_000)),
    "Subscribe: StopAtOffset": lambda client, s: list(
        client.subscribe(s, start=StartAt.offset(0), stop=StopAt.offset(0))
    ),
    "Subscribe: StopAtLatestReceived": subscribed(start=StartAt.earliest()),
    "Subscribe: StopAtTime": lambda client, s: list(
        client.subscribe(s, start=StartAt.earliest(), stop=StopAt.time_ms(2**40))
    ),
    "Subscribe: Resume": subscribed(resume=True),
    "Publish": published(),
    "Publish: CorrelationID": published(correlation_id="7"),
    "Publish: AckPolicyAll": published(ack_policy=AckPolicy.ALL),
    "Publish: AckPolicyLeader": published(ack_policy=AckPolicy.LEADER),
    "Publish: AckPolicyNone": published(ack_policy=AckPolicy.NONE),
    "Publish: Header, Headers": published(headers=[("trace", b"1")]),
    "Publish: Key, PartitionByKey": published(key=b"k", partitioner=by_key),
    "Publish: PartitionByRoundRobin": published(partitioner=RoundRobin()),
    "Publish: PartitionBy": published(partitioner=lambda key, value, count: count - 1),
    "Publish: ToPartition": published(partition=1),
    "Publish: context with a deadline": published(timeout_ms=20_000),
    "PublishAsync": publish_async,
    "PublishToSubject: Key, Headers, CorrelationID, AckPolicyLeader": lambda client, stream: (
        client.publish_to_subject(
            stream, b"v", b"k", headers=[("trace", b"1")], correlation_id="7", ack_policy=AckPolicy.LEADER
        )
    ),
    "FetchMetadata": lambda client, stream: client.fetch_metadata().streams[stream].partitions,
    "FetchPartitionMetadata": lambda client, stream: client.fetch_partition_metadata(stream, 0),
    "SetCursor, FetchCursor": cursor,
    "Close": closed_twice,
}

#: what the guide has and this client has not, and what does it here
ELSEWHERE = {
    "CreateStream: Group": "consumer groups share the messages of a topic (subscriptionType)",
    "CreateStream: AutoPauseTime, AutoPauseDisableIfSubscribers": "an idle partition of Kafka costs nothing",
    "CreateStream: CleanerInterval, CompactMaxGoroutines": "settings of the brokers",
    "CreateStream: Encryption": "encrypt values before they are published",
    "Subscribe: ReadISRReplica": "kafka.client.rack",
    "Publish: AckInbox; NewMessage, UnmarshalMessage, UnmarshalAck": "of NATS; any Kafka producer publishes",
    "CreateConsumer": "Spark queries and the queues of the client share a subscription",
}


@pytest.fixture(scope="module")
def guide_stream(client: Client) -> str:
    """A stream of three partitions with a message in the first two."""
    name = f"guide-{uuid.uuid4().hex[:12]}"
    client.create_stream(name, 3)
    for partition in (0, 1):
        client.publish(name, b"first", partition=partition)
    return name


@pytest.mark.parametrize("operation", GUIDE)
def test_what_the_guide_has_is_a_call_of_the_client(
    client: Client, guide_stream: str, operation: str
) -> None:
    GUIDE[operation](client, guide_stream)
    client.publish(guide_stream, b"resumed", partition=0)
    client.publish(guide_stream, b"resumed", partition=1)


def test_threads_do_what_is_in_the_guide_with_one_client_at_the_same_time(client: Client) -> None:
    def walk(number: int) -> None:
        name = f"guide-{uuid.uuid4().hex[:12]}"
        client.create_stream(name, 3)
        for do in list(GUIDE.values())[number % 2 :: 2]:
            do(client, name)
            for partition in (0, 1):
                client.publish(name, b"resumed", partition=partition)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(walk, range(4)))


def test_every_public_call_of_the_client_is_in_the_guide_or_beside_it() -> None:
    calls = {name for name in dir(Client) if not name.startswith("_")}
    assert calls == {
        "close",
        "create_stream",
        "delete_stream",
        "fetch_cursor",
        "fetch_metadata",
        "fetch_partition_metadata",
        "pause_stream",
        "publish",
        "publish_async",
        "publish_to_subject",
        "set_cursor",
        "set_stream_readonly",
        "subscribe",
    }
    assert not set(GUIDE) & set(ELSEWHERE)
