"""What streams are beyond their topics: paused, readonly, listening to subjects, trimmed."""

from __future__ import annotations

import logging
import time
import uuid

import pytest

from spark_cursor_source.client import Ack, Client, StartAt, StopAt
from spark_cursor_source.errors import (
    CursorqError,
    InvalidArgument,
    NoSuchStream,
    ReadonlyPartition,
    StreamsTopicUnfit,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.streams import StreamStates
from tests.client.conftest import OpenClient
from tests.conftest import CreateTopic
from tests.kafka.control_plane import produce, read_all
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def new_name(prefix: str = "stream") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def paused(client: Client, stream: str) -> list[bool]:
    return [client.fetch_partition_metadata(stream, number).paused for number in range(3)]


@pytest.fixture(scope="module")
def other(open_client: OpenClient) -> Client:
    """A second client, which hears of the first one through the streams topic alone."""
    return open_client()


def test_all_partitions_are_paused_or_some_and_publishing_to_one_resumes_that_one(
    client: Client, other: Client, stream: str
) -> None:
    client.pause_stream(stream)
    assert paused(other, stream) == [True] * 3
    client.publish(stream, b"", partition=1)
    assert paused(other, stream) == [True, False, True]
    client.pause_stream(stream, partitions=[1])
    assert paused(other, stream) == [True] * 3
    with pytest.raises(NoSuchStream, match="partition 3 of"):
        client.pause_stream(stream, partitions=[2, 3])
    with pytest.raises(InvalidArgument, match=r"^The argument partitions=\[\] is invalid: it names none"):
        client.pause_stream(stream, partitions=[])


def test_with_resume_all_a_message_to_any_partition_resumes_all(
    client: Client, other: Client, stream: str
) -> None:
    client.pause_stream(stream, partitions=[0, 2], resume_all=True)
    assert paused(other, stream) == [True, False, True]
    client.publish(stream, b"", partition=1)
    assert paused(other, stream) == [False] * 3


def test_a_pause_that_the_publisher_has_not_heard_of_ends_all_the_same(
    client: Client, other: Client, stream: str
) -> None:
    # other's last look ---- client pauses ---- other publishes ---- other's next look: it was paused
    other.publish(stream, b"", partition=0)
    time.sleep(1.2)
    client.pause_stream(stream)
    other.publish(stream, b"", partition=0)
    wait_until(lambda: paused(client, stream) == [False, True, True])


def test_a_readonly_partition_takes_nothing_until_it_is_writable_again(
    client: Client, other: Client, config: dict[str, str], stream: str
) -> None:
    other.publish(stream, b"before", partition=1)
    client.set_stream_readonly(stream, partitions=[1])
    outcomes: list[Ack | CursorqError] = []
    with pytest.raises(ReadonlyPartition, match=f"Partition 1 of stream '{stream}' is readonly"):
        client.publish(stream, b"", partition=1)
    with pytest.raises(ReadonlyPartition):
        client.publish_async(stream, b"", partition=1, on_ack=outcomes.append)

    def is_refused() -> bool:
        try:
            other.publish_to_subject(f"{stream}.1", b"late")
        except ReadonlyPartition:
            return True
        return False

    wait_until(is_refused)
    assert client.publish(stream, b"", partition=0).offset == 0
    states = [client.fetch_partition_metadata(stream, number).readonly for number in range(3)]
    assert states == [False, True, False]
    client.set_stream_readonly(stream, readonly=False)
    client.publish(stream, b"after", partition=1)
    assert [m.value() for m in read_all(config, stream) if m.value() in (b"before", b"after")] == [
        b"before",
        b"after",
    ]
    assert outcomes == []


def test_metadata_says_when_something_last_happened(client: Client, stream: str) -> None:
    fresh = client.fetch_partition_metadata(stream, 0)
    assert (fresh.last_message_ms, fresh.last_pause_change_ms, fresh.last_readonly_change_ms) == (None,) * 3
    client.pause_stream(stream, partitions=[0])
    first = client.fetch_partition_metadata(stream, 0)
    client.publish(stream, b"", partition=0)
    client.set_stream_readonly(stream)
    then = client.fetch_partition_metadata(stream, 0)
    assert (first.paused, then.paused, then.readonly) == (True, False, True)
    assert first.last_pause_change_ms is not None
    assert then.last_pause_change_ms is not None
    assert then.last_readonly_change_ms is not None
    assert then.last_message_ms is not None
    assert first.last_pause_change_ms <= then.last_pause_change_ms <= then.last_readonly_change_ms
    untouched = client.fetch_partition_metadata(stream, 1)
    assert (untouched.last_message_ms, untouched.last_pause_change_ms) == (None, None)


def test_a_stream_that_is_made_again_is_neither_paused_nor_readonly(
    client: Client, other: Client, stream: str
) -> None:
    client.pause_stream(stream)
    client.set_stream_readonly(stream)
    client.delete_stream(stream)
    client.create_stream(stream)
    assert client.publish(stream, b"").offset == 0
    found = other.fetch_partition_metadata(stream, 0)
    assert (found.paused, found.readonly, found.last_pause_change_ms) == (False, False, None)


def test_a_message_to_a_subject_goes_to_every_stream_that_listens(client: Client, other: Client) -> None:
    area = new_name("area")
    by_word, by_tail, deaf = new_name("word"), new_name("tail"), new_name("deaf")
    client.create_stream(by_word, 3, subject=f"{area}.*")
    client.create_stream(by_tail, subject=f"{area}.>")
    client.create_stream(deaf, subject="elsewhere")
    client.create_stream(f"{area}.eu")

    def came_to(subject: str) -> set[tuple[str, int]]:
        acks = client.publish_to_subject(subject, b"v", b"k", correlation_id="order 7")
        assert {ack.correlation_id for ack in acks} <= {"order 7"}
        return {(ack.stream, ack.partition) for ack in acks}

    assert came_to(f"{area}.eu") == {(by_word, 0), (by_tail, 0), (f"{area}.eu", 0)}
    assert came_to(f"{area}.us.2") == {(by_word, 2), (by_tail, 0)}
    assert came_to(area) == came_to(deaf) == set()
    assert came_to("elsewhere") == {(deaf, 0)}
    (message,) = client.subscribe(by_word, 2, start=StartAt.earliest(), stop=StopAt.latest())
    assert (message.subject, message.value, message.key) == (f"{area}.us.2", b"v", b"k")
    assert message.correlation_id == "order 7"
    wait_until(lambda: len(other.publish_to_subject(f"{area}.eu", b"")) == 3)
    with pytest.raises(InvalidArgument, match="nothing is published to wildcards"):
        client.publish_to_subject(f"{area}.*", b"")
    with pytest.raises(InvalidArgument, match="'>' can only be the last word"):
        client.create_stream(new_name(), subject="a.>.b")


def test_a_stream_keeps_the_number_of_messages_it_was_told_to(open_client: OpenClient) -> None:
    name = new_name()
    with open_client() as client:
        client.create_stream(name, 2, retention_messages=10)
        for number in range(25):
            client.publish_async(name, b"%d" % number, partition=0, on_ack=lambda _: None)
        client.publish(name, b"alone", partition=1)
        wait_until(lambda: client.fetch_partition_metadata(name, 0).oldest_offset == 15)
        client.publish(name, b"25", partition=0)
    with open_client() as client:  # the close of the one before has trimmed once more
        kept = client.subscribe(name, start=StartAt.earliest(), stop=StopAt.latest())
        assert [message.value for message in kept] == [b"%d" % n for n in range(16, 26)]
        assert client.fetch_partition_metadata(name, 1).oldest_offset == 0
        with pytest.raises(
            InvalidArgument, match=r"^The argument retention_messages=5 is invalid: a compacted stream"
        ):
            client.create_stream(name, retention_messages=5, compaction=True)


def test_without_a_streams_topic_every_stream_is_an_ordinary_one(
    open_client: OpenClient, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    client = open_client(streamsTopic=new_name("never"))
    assert client.publish(topic, b"v").offset == 0
    assert [ack.stream for ack in client.publish_to_subject(topic, b"v")] == [topic]
    assert len(list(client.subscribe(topic, start=StartAt.earliest(), stop=StopAt.latest()))) == 2
    assert not [name for name in client.fetch_metadata().streams if name.startswith("never-")]


@pytest.mark.parametrize(
    ("settings", "setting"),
    [({"message_timestamp_type": "LogAppendTime"}, "cleanup.policy"), ({"cleanup_policy": "compact"}, "")],
)
def test_a_streams_topic_that_is_unfit_is_refused(
    open_client: OpenClient,
    create_topic: CreateTopic,
    settings: dict[str, str],
    setting: str,
    stream: str,
) -> None:
    client = open_client(streamsTopic=create_topic(**settings))
    with pytest.raises(StreamsTopicUnfit, match=setting or r"Set message\.timestamp\.type=LogAppendTime"):
        client.pause_stream(stream)


def test_a_record_that_is_none_is_passed_over(
    config: dict[str, str], create_topic: CreateTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(cleanup_policy="compact", message_timestamp_type="LogAppendTime")
    states = StreamStates(config, topic, ClusterAdmin(config), timeout_ms=20_000)
    states.pause("orders", [3], resume_all=False)
    produce(config, topic, [{"key": b"orders,3,paused", "value": b"\xff"}, {"key": b"x,y", "value": b""}])
    states.set_readonly("orders", [3], readonly=True)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        fresh = StreamStates(config, topic, ClusterAdmin(config), timeout_ms=20_000)
        view = fresh.refresh()
    assert (view.state(("orders", 3)).paused, view.state(("orders", 3)).readonly) == (True, True)
    assert caplog.text.count("is skipped") == 2
    assert fresh.paused({("orders", 3), ("orders", 4)}) == {("orders", 3)}
    states.close()
    fresh.close()


def test_a_streams_topic_that_was_made_again_has_no_old_pauses(open_client: OpenClient, stream: str) -> None:
    topic = new_name("streams")
    client = open_client(streamsTopic=topic)
    client.pause_stream(stream)
    client.set_stream_readonly(stream, partitions=[1])
    client.delete_stream(topic)
    assert paused(client, stream) == [False] * 3
    client.pause_stream(stream, partitions=[2])
    assert paused(client, stream) == [False, False, True]
