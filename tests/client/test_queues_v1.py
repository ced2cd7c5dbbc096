"""Queues of the plain client with kafka-mq-go's markers: one for each message, and copies that come back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from spark_cursor_source.client import QueueConsumer
from spark_cursor_source.errors import InvalidArgument, QueueIdConflict, RejectRefused
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, decode
from tests.client.conftest import OpenClient, Rig, counts, ids, receive, unique, until_paused
from tests.conftest import ROOT
from tests.kafka.control_plane import read_all
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def markers(rig: Rig, kind: int) -> Counter[tuple[int, int]]:
    """(partition, offset) of the markers of a kind."""
    decoded = [decode(one.key(), one.value()) for one in read_all(rig.control.config, rig.control.markers)]
    return Counter((m.partition, m.offset) for m in decoded if isinstance(m, MarkerV1) if m.type == kind)


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """A queue of two partitions whose tracker appends messages again."""
    made = make_rig(2)
    made.tracker(redelivery="reappend", queueTopic=made.topic)
    return made


def open_consumer(rig: Rig, **more: object) -> QueueConsumer:
    return rig.consumer("q", "q", marker_format="v1", **more)


def test_each_message_has_its_start_before_it_is_received_and_its_end_when_it_is_acked(rig: Rig) -> None:
    others = rig.send(b"other", id="others")
    sent = rig.send(*(b"%d" % number for number in range(20)), id="q")
    consumer = open_consumer(rig)
    messages = receive(consumer, 20)
    assert ids(messages) == sorted(sent)
    assert counts(messages) == {1: 20}
    starts = markers(rig, MarkerType.START)
    assert set(ids(messages)) <= starts.keys()
    messages[0].ack()
    for message in messages[1:]:
        message.ack_async()
    consumer.flush()
    assert markers(rig, MarkerType.END) == Counter(sent)
    assert others[0] not in markers(rig, MarkerType.START)
    committed = rig.topics.committed("kafka-mq-q", [(rig.topic, 0), (rig.topic, 1)])
    assert sum(committed.values()) == 21


@pytest.mark.parametrize("first_is_gone", [False, True])
def test_a_consumer_with_another_queue_id_is_refused_and_skips_nothing(rig: Rig, first_is_gone: bool) -> None:
    mails = open_consumer(rig)
    rig.send(b"x", id="q")
    for message in receive(mails, 1):
        message.ack()
    if first_is_gone:
        mails.close()
        rig.send(b"y", id="q")
    committed = rig.topics.committed("kafka-mq-q", [(rig.topic, 0), (rig.topic, 1)])
    with pytest.raises(QueueIdConflict, match=r"reads queueId=other, .* queueId=q\."):
        receive(rig.consumer("other", "q", marker_format="v1"), 1)
    assert rig.topics.committed("kafka-mq-q", [(rig.topic, 0), (rig.topic, 1)]) == committed
    if first_is_gone:
        assert len(receive(open_consumer(rig), 1)) == 1


def test_what_is_given_back_or_left_comes_again_as_a_copy(rig: Rig) -> None:
    rig.send(b"now", b"later", b"left", id="q")
    consumer = open_consumer(rig, redelivery_timeout_ms=5_000)
    for message in receive(consumer, 3):
        match message.payload:
            case b"now":
                message.nack(0)
            case b"later":
                message.nack(1_000)
            case _:
                message.nack()
    copies = []
    for _ in range(3):
        copies += receive(consumer, 1)
        copies[-1].ack()
    assert sorted(message.payload or b"" for message in copies) == [b"later", b"left", b"now"]
    assert counts(copies) == {2: 3}
    assert consumer.receive(1_000) is None


def test_a_held_message_is_kept_and_a_rejected_one_is_refused(rig: Rig) -> None:
    # 0 S(4s) K K K K K 7 ack
    rig.send(b"slow", id="q")
    consumer = open_consumer(rig, redelivery_timeout_ms=4_000)
    (message,) = receive(consumer, 1)
    with pytest.raises(RejectRefused):
        message.reject()
    message.extend(5_000)
    assert consumer.receive(7_000) is None
    wait_until(lambda: markers(rig, MarkerType.KEEP_ALIVE).total() > 3)
    message.ack()
    assert consumer.receive(1_500) is None
    with pytest.raises(InvalidArgument, match=r"^The argument id=None is invalid: v1 markers"):
        rig.service(marker_format="v1").queue(subscription="s").consumer()


def test_consumers_share_a_group_and_what_nobody_received_is_handed_over(rig: Rig) -> None:
    first = open_consumer(rig)
    sent = rig.send(*(b"%d" % number for number in range(8)), id="q")
    begun = receive(first, 2)
    second = open_consumer(rig)
    first.close()
    rest = receive(second, 8 - len(begun))
    payloads = {message.payload for message in [*begun, *rest]}
    assert payloads == {b"%d" % number for number in range(len(sent))}
    for message in rest:
        message.ack()


_KILLED = """
import sys, time
from spark_cursor_source.client import Service, ServiceConfig
config = ServiceConfig(
    bootstrap_servers=sys.argv[1], message_topic=sys.argv[2], marker_topic=sys.argv[3], marker_format="v1",
    redelivery_timeout_ms=5_000, session_timeout_ms=6_000)
consumer = Service(config).queue("q").consumer()
while consumer.receive() is None:
    pass
print("received", flush=True)
time.sleep(600)
"""


def test_what_a_killed_process_held_comes_back_as_a_copy(rig: Rig) -> None:
    rig.send(b"held", id="q")
    arguments = (rig.control.config["bootstrap.servers"], rig.topic, rig.control.markers)
    command = [sys.executable, "-c", _KILLED, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "received\n"
        process.kill()
    (copy,) = receive(open_consumer(rig), 1)
    assert (copy.payload, copy.delivery_count) == (b"held", 2)
    copy.ack()


def test_a_full_buffer_leaves_the_rest_in_the_queue_and_the_consumer_in_its_group(rig: Rig) -> None:
    sent = rig.send(*(b"%d" % number for number in range(12)), id="q")
    slow = open_consumer(rig, consumer_receive_buffer_capacity=2)
    found = receive(slow, 1)
    wait_until(lambda: markers(rig, MarkerType.START).total() == 3)
    time.sleep(0.5)  # long enough for what must not come
    assert markers(rig, MarkerType.START).total() == 3
    found += receive(slow, 11)
    assert ids(found) == sorted(sent)
    for message in found:
        message.ack_async()
    slow.flush()
    wait_until(lambda: markers(rig, MarkerType.END) == Counter(sent))


def test_a_paused_partition_rests_and_publishing_to_it_wakes_it(rig: Rig, open_client: OpenClient) -> None:
    streams = unique("streams")
    client = open_client(streamsTopic=streams)
    consumer = open_consumer(rig, streams_topic=streams)
    client.publish(rig.topic, b"before", b"q", partition=0)
    receive(consumer, 1)[0].ack()
    client.pause_stream(rig.topic)
    until_paused(consumer, rig.topic, 0, 1)
    with rig.service().queue("q").producer() as unaware:  # of this streams topic, and of the pause
        for _ in range(10):
            unaware.send(b"held")
    assert consumer.receive(1_000) is None
    for partition in (0, 1):
        client.publish(rig.topic, b"wake", b"q", partition=partition)
    woken = receive(consumer, 12)
    assert Counter(message.payload for message in woken) == {b"held": 10, b"wake": 2}
    assert counts(woken) == {1: 12}
