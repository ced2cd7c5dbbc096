"""Queues of the plain client on our tracker: receive, and settle each message by itself."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_cursor_source.admin.subscriptions import EARLIEST, Subscriptions
from spark_cursor_source.client import QueueConsumer, QueueMessage, Service, ServiceConfig
from spark_cursor_source.client.queues import feed_v2
from spark_cursor_source.client.queues.feed_v2 import FeedV2
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import (
    AlreadySettled,
    ClientClosed,
    DataLoss,
    InvalidArgument,
    KafkaFailure,
    KafkaUnavailable,
    MarkersNotDurable,
    MissingOption,
    NoSuchStream,
    NothingReceived,
    NotSettled,
    QueueIdConflict,
    TopicNotFound,
)
from spark_cursor_source.kafka.deadline import Deadline
from tests.client.conftest import OpenClient, Rig, counts, ids, in_turn, receive, unique, until_paused
from tests.conftest import ROOT
from tests.kafka.control_plane import produce, read_all
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

MakeRig = Callable[..., Rig]


def test_what_is_received_and_acked_is_gone(rig: Rig) -> None:
    sent = rig.send(*(b"%d" % number for number in range(25)))
    consumer = rig.consumer()
    messages = receive(consumer, 25)
    assert ids(messages) == sorted(sent)
    assert counts(messages) == {1: 25}
    messages[0].ack()
    for message in messages[1:]:
        message.ack_async()
    consumer.flush()
    rig.all_acked(25)
    assert consumer.receive(300) is None


def test_a_consumer_with_another_queue_id_is_refused(rig: Rig) -> None:
    mails = rig.consumer("mails")
    rig.send(b"x", id="mails")
    receive(mails, 1)
    with pytest.raises(QueueIdConflict, match=r"reads queueId=orders, .* queueId=mails"):
        receive(rig.consumer("orders"), 1)


def test_the_messages_of_a_key_are_in_the_partition_that_other_producers_choose(rig: Rig) -> None:
    keys = [random.randbytes(length) for length in range(24)]
    others = Producer({**rig.control.config, "partitioner": "murmur2_random"})
    for key in keys:
        others.produce(rig.topic, b"other", key)
    assert others.flush(30) == 0
    with rig.service().queue(subscription="s").producer() as producer:
        own = {key: producer.send(b"own", key=key).partition for key in keys}
    found = {
        one.key(): one.partition()
        for one in read_all(rig.control.config, rig.topic)
        if one.value() == b"other"
    }
    assert len(set(own.values())) > 1
    assert own == found


def test_a_message_is_what_was_sent(rig: Rig) -> None:
    service = rig.service()
    with service.queue(subscription="s").producer() as producer:
        ack = producer.send(b"payload", key=b"key", headers=[("trace", b"\x00")])
        producer.send(None, key=b"key")
        with pytest.raises(InvalidArgument, match="UTF-8"):
            producer.send(b"other", headers=[("caf\udce9", b"1")])
    by_payload = {message.payload: message for message in receive(rig.consumer(), 2)}
    message = by_payload[b"payload"]
    assert (message.topic, message.partition, message.offset) == (rig.topic, ack.partition, ack.offset)
    assert (message.key, list(message.headers)) == (b"key", [("trace", b"\x00")])
    assert message.timestamp_ms > 10**12
    assert by_payload[None].headers == ()
    assert repr(message) == f"QueueMessage({rig.topic}-{ack.partition} offset {ack.offset})"


def test_a_queue_has_the_messages_of_its_id_and_passes_over_the_others(make_rig: MakeRig) -> None:
    rig = make_rig(1)
    rig.tracker()
    rig.send(*(b"other" for _ in range(40)), id="others")
    mine = rig.send(b"a", b"b", id="mine")
    rig.send(*(b"other" for _ in range(40)), id="others")
    consumer = rig.consumer("mine", "mine")
    messages = receive(consumer, 2)
    assert ids(messages) == mine
    assert {message.key for message in messages} == {b"mine"}
    for message in messages:
        message.ack()
    # What is not of this queue is never outstanding, and does not hold up the cursor.
    wait_until(lambda: (at := rig.cursor(0, "mine")) is not None and at.mark_delete == 81)


def test_a_timeout_that_is_no_number_is_told_and_the_message_is_acked_all_the_same(rig: Rig) -> None:
    rig.send(b"one", b"two")
    timeout: Any = "5s"
    why = "^The argument timeout_ms='5s' is invalid: it is not a number of milliseconds"
    with rig.consumer() as consumer:
        first, second = receive(consumer, 2)
        for call in (first.ack, second.ack, consumer.receive, consumer.flush):
            with pytest.raises(InvalidArgument, match=why):
                call(timeout)
        consumer.flush()
    rig.all_acked(2)
    with (
        rig.service().queue(subscription="s").producer() as producer,
        pytest.raises(InvalidArgument, match=why),
    ):
        producer.send(b"three", timeout_ms=timeout)


def test_a_message_given_back_comes_again_at_once_or_after_its_delay(rig: Rig) -> None:
    # 0 nack, back | 0 nack  3 back
    rig.send(b"at once", b"later")
    consumer = rig.consumer()
    by_payload = {message.payload: message for message in receive(consumer, 2)}
    by_payload[b"at once"].nack(0, reason="not now")
    (first,) = receive(consumer, 1)
    began = time.monotonic()
    by_payload[b"later"].nack(3_000, reason="not now")
    (second,) = receive(consumer, 1)
    assert (first.payload, first.delivery_count) == (b"at once", 2)
    assert (second.payload, second.delivery_count) == (b"later", 2)
    assert time.monotonic() - began > 2.5
    first.ack()
    second.ack()
    rig.all_acked(2)


def test_a_rejected_message_is_a_dead_letter_with_its_reason(rig: Rig) -> None:
    rig.send(b"bad")
    (message,) = receive(rig.consumer(), 1)
    message.reject("no such customer")
    target = f"{rig.topic}-s-DLQ"
    wait_until(lambda: target in rig.topics.existing([target]))
    wait_until(lambda: len(read_all(rig.control.config, target)) == 1)
    (letter,) = read_all(rig.control.config, target)
    assert letter.value() == b"bad"
    assert b"no such customer" in [value for _, value in letter.headers() or []]


def test_a_held_message_keeps_its_lease_and_one_that_is_left_comes_back(make_rig: MakeRig) -> None:
    # 0 S(4s) K K K 6 ack: never a second delivery
    rig = make_rig(1)
    rig.tracker()
    rig.send(b"slow")
    with rig.service(redelivery_timeout_ms=4_000).queue(subscription="s").consumer() as consumer:
        (message,) = receive(consumer, 1)
        assert consumer.receive(6_000) is None
        message.ack()
        rig.all_acked(1)
        rig.send(b"left")
        receive(consumer, 1)
    (again,) = receive(rig.consumer(), 1)
    assert (again.payload, again.delivery_count) == (b"left", 2)


def test_extend_sets_the_deadline_of_one_message(make_rig: MakeRig) -> None:
    # a: S(60s) extend(600s), closed at 1: leased until 600; b: S(60s) extend(1s): back at 2
    rig = make_rig(1)
    rig.tracker()
    rig.send(b"a", b"b")
    consumer = rig.consumer()
    a, b = receive(consumer, 2)
    a.extend(600_000)
    b.extend(1_000)
    consumer.close()
    other = rig.consumer()
    (again,) = receive(other, 1)
    assert (again.payload, again.delivery_count) == (b"b", 2)
    assert other.receive(300) is None


def test_a_message_is_settled_once(rig: Rig) -> None:
    rig.send(b"a", b"b", b"c")
    acked, given_back, rejected = receive(rig.consumer(), 3)
    acked.ack()
    acked.ack()
    with pytest.raises(AlreadySettled, match=r"offset \d+\) was acked already. Call only one"):
        acked.nack()
    given_back.nack(60_000)
    with pytest.raises(AlreadySettled, match="was given back already"):
        given_back.ack()
    rejected.reject()
    with pytest.raises(AlreadySettled, match="was rejected already"):
        rejected.extend()
    with pytest.raises(InvalidArgument, match=r"^The argument delay_ms=-1"):
        rejected.nack(-1)


def test_a_slow_consumer_leases_no_more_than_its_buffer_holds(make_rig: MakeRig) -> None:
    rig = make_rig(1)
    rig.tracker()
    rig.send(*(b"%d" % number for number in range(30)))
    slow = rig.consumer(consumer_receive_buffer_capacity=4)
    (message,) = receive(slow, 1)

    def leased() -> int:
        cursor = rig.cursor()
        return 0 if cursor is None else len(cursor.leased)

    wait_until(lambda: leased() >= 5)  # one received, four that wait
    for _ in range(20):
        time.sleep(0.1)
        assert leased() == 5
    message.ack()
    for message in receive(slow, 29):
        message.ack_async()
    slow.flush()
    rig.all_acked(30)


def test_consumers_share_the_partitions_and_one_that_leaves_hands_over_what_it_has(rig: Rig) -> None:
    first, second = rig.consumer(), rig.consumer()
    seen: dict[int, list[QueueMessage]] = {0: [], 1: []}
    sent: list[tuple[int, int]] = []

    def received_all() -> bool:
        for number, consumer in enumerate((first, second)):
            while (message := consumer.receive(100)) is not None:
                seen[number].append(message)
                message.ack()
        return set(sent) <= set(ids([*seen[0], *seen[1]]))

    def both_work() -> bool:
        sent.extend(rig.send(b"x", b"y", b"z"))
        wait_until(received_all)  # one that comes later would be taken for one of those below
        return all(seen.values()) and all(
            len({message.partition for message in messages[-3:]}) == 1 for messages in seen.values()
        )

    wait_until(both_work)
    sent = rig.send(*(b"%d" % number for number in range(12)))
    wait_until(lambda: first._buffer.messages)  # which nobody receives
    first.close()
    messages = receive(second, len(sent))
    assert ids(messages) == sorted(sent)
    assert counts(messages) == {1: 12}  # what nobody has received was not delivered
    for message in messages:
        message.ack()
    rig.all_acked(len(sent) + sum(map(len, seen.values())))


_KILLED = """
import sys, time
from spark_cursor_source.client import Service, ServiceConfig
config = ServiceConfig(
    bootstrap_servers=sys.argv[1], message_topic=sys.argv[2], marker_topic=sys.argv[3],
    redeliveries_topic=sys.argv[4], cursors_topic=sys.argv[5], consumer_receive_buffer_capacity=10,
    redelivery_timeout_ms=int(sys.argv[6]), session_timeout_ms=6_000, group_id_prefix=sys.argv[7])
consumer = Service(config).queue(subscription="s").consumer()
received = 0
while received < 3:
    message = consumer.receive()
    if message is not None:
        received += 1
        if received == 1:
            message.ack()
print("received", flush=True)
time.sleep(600)
"""


def receive_three_and_die(rig: Rig, *, lease_ms: int) -> None:
    """A process that is killed when it has received three messages, of which it has acked the first."""
    names = (rig.control.markers, rig.control.redeliveries, rig.control.cursors)
    servers = rig.control.config["bootstrap.servers"]
    more = (str(lease_ms), rig.control.group_prefix)
    command = [sys.executable, "-c", _KILLED, servers, rig.topic, *names, *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "received\n"
        process.kill()


def test_what_a_killed_process_held_comes_back_to_another(make_rig: MakeRig) -> None:
    rig = make_rig(1)
    rig.tracker(maxDeliveries=2)
    sent = rig.send(*(b"%d" % number for number in range(6)))
    receive_three_and_die(rig, lease_ms=5_000)  # less than its session
    consumer = rig.consumer()
    messages = receive(consumer, 1)
    # The last delivery of a message that may have killed a process: nothing else is out meanwhile.
    assert consumer.receive(1_000) is None
    messages[0].ack()
    for _ in range(4):
        messages += receive(consumer, 1)
        messages[-1].ack()
    assert ids(messages) == sorted(sent)[1:]
    assert counts(messages) == {2: 5}
    rig.all_acked(6)


def test_what_a_killed_process_held_comes_back_at_once_with_on_member_lost_release(make_rig: MakeRig) -> None:
    rig = make_rig(1)
    rig.tracker()
    sent = rig.send(*(b"%d" % number for number in range(6)))
    receive_three_and_die(rig, lease_ms=600_000)
    consumer = rig.consumer(on_member_lost="release")
    messages = receive(consumer, 5)
    for message in messages:
        message.ack()
    assert ids(messages) == sorted(sent)[1:]
    assert counts(messages) == {2: 5}
    rig.all_acked(6)


def read_position_known_to(consumer: QueueConsumer) -> int | None:
    """The read position of its partition 0 in the cursor that it has read last."""
    feed = consumer._feed
    assert isinstance(feed, FeedV2)
    cursor = feed._cursors.get(feed._assignment.cell_of(0))
    return None if cursor is None else cursor.read_position


def reads_partition_0(consumer: QueueConsumer) -> bool:
    """True if the tracker has told it where to begin."""
    feed = consumer._feed
    assert isinstance(feed, FeedV2)
    return feed._assignment.is_reading


def test_a_consumer_follows_what_an_operator_skips_and_seeks(make_rig: MakeRig) -> None:
    rig = make_rig(1)
    rig.tracker()
    rig.send(*(b"%d" % number for number in range(10)))
    consumer = rig.consumer(consumer_receive_buffer_capacity=2)
    (message,) = receive(consumer, 1)
    message.ack()
    kafka = rig.control.config
    names = rig.control.topics
    with Subscriptions(kafka, **names) as subscriptions:
        wait_until(lambda: len(consumer._buffer.messages) == 2)
        subscriptions.skip_all("s", rig.topic)
        wait_until(lambda: read_position_known_to(consumer) == 10)
        left = [message.offset for message in receive(consumer, 2)]
        assert left == [1, 2]
        assert consumer.receive(1_000) is None
        subscriptions.seek("s", rig.topic, EARLIEST)
    again = receive(consumer, 10)
    assert [message.offset for message in again] == list(range(10))
    assert counts(again) == {1: 10}
    for message in again:
        message.ack_async()
    consumer.flush()
    rig.all_acked(10)


def test_a_paused_partition_rests_and_publishing_to_it_wakes_it(
    make_rig: MakeRig, open_client: OpenClient
) -> None:
    # pause ---- nack(0.5s) [nothing new, nothing back] ---- publish ---- everything
    rig, streams = make_rig(2), unique("streams")
    client = open_client(streamsTopic=streams)
    rig.tracker()
    consumer = rig.consumer(streams_topic=streams)
    client.publish(rig.topic, b"back", partition=0)
    (back,) = receive(consumer, 1)
    client.pause_stream(rig.topic, partitions=[0])
    until_paused(consumer, rig.topic, 0)
    back.nack(500)
    with rig.service().queue("q").producer() as unaware:  # of this streams topic, and of the pause
        for _ in range(10):
            unaware.send(b"held")
    others = rig.topics.end_offsets([(rig.topic, 1)], committed=True)[rig.topic, 1]
    assert all(message.partition == 1 for message in receive(consumer, others))
    wait_until(lambda: (now := rig.cursor(0)) is not None and len(now.available) == 1)
    assert consumer.receive(500) is None
    client.publish(rig.topic, b"wake", partition=0)
    woken = receive(consumer, 12 - others)
    assert {message.partition for message in woken} == {0}
    assert {message.payload: message.delivery_count for message in woken} == {
        b"back": 2,
        **({b"held": 1} if others < 10 else {}),
        b"wake": 1,
    }


def test_threads_share_a_consumer_and_each_message_goes_to_one(rig: Rig) -> None:
    sent = rig.send(*(b"%d" % number for number in range(200)))
    consumer = rig.consumer(consumer_receive_buffer_capacity=50)
    found: list[QueueMessage] = []

    def work() -> None:
        for message in consumer:
            found.append(message)
            message.ack()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    rig.all_acked(200)
    consumer.close()
    for thread in threads:
        thread.join(10)
    assert ids(found) == sorted(sent)


def test_a_closed_consumer_is_closed_for_good(rig: Rig) -> None:
    rig.send(b"a")
    consumer = rig.consumer()
    (message,) = receive(consumer, 1)
    future = message.ack_async()
    consumer.close()
    consumer.close()
    assert future.result(0) is None  # close has written it
    with pytest.raises(ClientClosed):
        consumer.receive()
    with pytest.raises(ClientClosed):
        message.ack()
    assert list(consumer) == []
    producer = rig.service().queue("q").producer()
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send(b"")
    rig.all_acked(1)


def test_sends_that_nobody_waits_for_are_told_and_flushed(rig: Rig) -> None:
    outcomes: list[object] = []
    with rig.service().queue("q").producer() as producer:
        for _ in range(50):
            producer.send_async(b"x", on_ack=outcomes.append)
        producer.flush()
        assert len(outcomes) == 50
        with pytest.raises(
            InvalidArgument,
            match=r"^The argument key=b'k' is invalid: the key of this queue's messages is its id",
        ):
            producer.send(b"", key=b"k")
    assert {message.key() for message in read_all(rig.control.config, rig.topic)} == {b"q"}


def test_without_a_tracker_receive_says_so_and_goes_on_when_one_comes(make_rig: MakeRig) -> None:
    rig = make_rig(1)
    rig.send(b"a")
    consumer = rig.consumer(tracker_timeout_ms=1_000)
    with pytest.raises(NothingReceived, match=r"tracker.*keeps trying"):
        receive(consumer, 1)
    rig.tracker()

    def received() -> bool:
        try:
            return consumer.receive(500) is not None
        except NothingReceived:
            return False

    wait_until(received)


def test_messages_wait_for_the_time_in_their_headers(make_rig: MakeRig) -> None:
    rig = make_rig(1)
    rig.tracker()
    consumer = rig.consumer()
    wait_until(lambda: reads_partition_0(consumer))  # else both may be due when it begins
    began = time.monotonic()
    with rig.service().queue(subscription="s").producer() as producer:
        producer.send(b"later", headers=[("deliverAfter", b"8s")])
        producer.send(b"now")
    first, second = receive(consumer, 2)
    assert (first.payload, second.payload) == (b"now", b"later")
    assert (second.delivery_count, time.monotonic() - began > 7.5) == (1, True)


def test_messages_that_retention_took_are_data_loss_or_passed_over(make_rig: MakeRig) -> None:
    rig = make_rig(1)
    rig.tracker()
    rig.send(b"0", b"1")
    with rig.service().queue(subscription="s").consumer() as consumer:
        for message in receive(consumer, 2):
            message.ack()
    rig.send(b"2", b"3", b"4")
    _delete_below(rig, 4)
    strict = rig.consumer()
    with pytest.raises(DataLoss, match=r"Messages 2 to 3 \(2 of them\)"):
        receive(strict, 1)
    with pytest.raises(DataLoss):
        strict.receive()
    (message,) = receive(rig.consumer(fail_on_data_loss=False), 1)
    assert message.payload == b"4"


def test_redelivered_messages_that_retention_took_are_told_until_the_loss_is_accepted(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    # 0 and 1 are received and given back for later | retention takes 0 | 1 comes again
    rig = make_rig(1)
    rig.tracker()
    rig.send(b"0", b"1")
    with rig.service().queue(subscription="s").consumer() as consumer:
        for message in receive(consumer, 2):
            message.nack(1_000)
    _delete_below(rig, 1)
    for _ in range(2):
        service = rig.service(redelivery_timeout_ms=2_000)
        with (
            service.queue(subscription="s").consumer() as strict,
            pytest.raises(DataLoss, match=r"Messages 0 to 0 \(1 of them\)"),
        ):
            receive(strict, 3)  # 1 may come before the loss is found
    (message,) = receive(rig.consumer(fail_on_data_loss=False), 1)
    message.ack()
    rig.until(lambda cursor: cursor.read_position == 2 and not cursor.outstanding)
    assert message.payload == b"1"
    assert len([one for one in caplog.messages if "event=data_loss" in one]) == 1


def _delete_below(rig: Rig, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(rig.control.config)
    for future in admin.delete_records([TopicPartition(rig.topic, 0, offset)]).values():
        future.result(20)


def test_brokers_that_are_killed_and_come_back_lose_and_invent_nothing(
    mortal: EmbeddedKafka, make_rig: MakeRig
) -> None:
    rig = make_rig(1, {"bootstrap.servers": mortal.bootstrap_servers})
    rig.tracker(maxDeliveries=0)
    sent = rig.send(*(b"%d" % number for number in range(20)))
    consumer = rig.consumer(
        consumer_receive_buffer_capacity=3, timeout_ms=2_000, redelivery_timeout_ms=10_000
    )
    messages = receive(consumer, 5)
    mortal.kill()
    with pytest.raises(NotSettled, match="The consumer keeps trying"):
        messages[0].ack()
    later = messages[1].ack_async()

    def take_what_is_in_the_buffer() -> None:
        if (message := consumer.receive(3_000)) is not None:
            messages.append(message)

    with pytest.raises(NothingReceived, match="is waiting for this reason") as waited:
        wait_until(take_what_is_in_the_buffer)  # it may take longer until the consumer knows
    assert isinstance(waited.value.__cause__, KafkaFailure)
    mortal.start()

    def is_stored(settle: Callable[[int], None]) -> bool:
        try:
            settle(60_000)
        except NotSettled:  # a broker that has just started may need more than the client's 2 s
            return False
        return True

    assert isinstance(later.exception(120), MarkersNotDurable | KafkaUnavailable | None)
    for message in messages[1:]:
        wait_until(lambda message=message: is_stored(message.ack))

    def all_came() -> bool:
        try:
            message = consumer.receive(500)
        except NothingReceived:
            return False
        if message is not None:
            messages.append(message)
            message.ack_async()
        return set(ids(messages)) == set(sent)

    wait_until(all_came)
    wait_until(lambda: is_stored(consumer.flush))
    rig.all_acked(20)


def test_a_partition_whose_redeliveries_cannot_be_read_holds_up_no_other(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(rig.control.config, rig.topic, in_turn(4))
    consumer = rig.consumer()
    messages = receive(consumer, 4)
    is_well, read = threading.Event(), feed_v2.redelivered

    def redelivered(config: Any, piece: Slice, **how: Any) -> Any:
        if piece.partition == 0 and not is_well.is_set():
            raise KafkaUnavailable("read", 1, "no leader")
        return read(config, piece, **how)

    monkeypatch.setattr(feed_v2, "redelivered", redelivered)
    for message in messages:
        message.nack(0)
    assert ids(receive(consumer, 2)) == [(1, 0), (1, 1)]
    produce(rig.control.config, rig.topic, in_turn(2))
    assert ids(receive(consumer, 2)) == [(0, 2), (1, 2)]
    assert consumer.receive(200) is None
    is_well.set()
    rest = receive(consumer, 2)
    assert (ids(rest), counts(rest)) == ([(0, 0), (0, 1)], {2: 2})
    assert consumer.receive(200) is None


def test_a_redelivery_whose_read_gets_no_answer_holds_up_no_other_partition(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the read of partition 0 hangs ---- redeliveries and new messages of 1 come ---- it fails ---- it comes
    produce(rig.control.config, rig.topic, in_turn(4))
    consumer = rig.consumer()
    messages = receive(consumer, 4)
    answers, read = threading.Event(), feed_v2.redelivered
    hung: list[int] = []

    def redelivered(config: Any, piece: Slice, **how: Any) -> Any:
        if piece.partition == 0 and not answers.is_set():
            hung.append(piece.partition)
            answers.wait(60)
            raise KafkaUnavailable("read", 60_000, "no leader")
        return read(config, piece, **how)

    monkeypatch.setattr(feed_v2, "redelivered", redelivered)
    for message in sorted(messages, key=lambda one: one.partition):
        message.nack(0)
    wait_until(lambda: bool(hung))
    assert ids(receive(consumer, 2, seconds=20)) == [(1, 0), (1, 1)]
    produce(rig.control.config, rig.topic, in_turn(2))
    assert ids(receive(consumer, 2, seconds=20)) == [(0, 2), (1, 2)]
    assert hung == [0]
    answers.set()
    rest = receive(consumer, 2)
    assert (ids(rest), counts(rest)) == ([(0, 0), (0, 1)], {2: 2})


def test_a_close_without_brokers_ends_by_the_timeout_of_the_client(
    mortal: EmbeddedKafka, make_rig: MakeRig
) -> None:
    rig = make_rig(1, {"bootstrap.servers": mortal.bootstrap_servers})
    rig.tracker()
    rig.send(b"0", b"1")
    consumer = rig.consumer(timeout_ms=2_000)
    messages = receive(consumer, 2)
    mortal.kill()
    consumer._sender._next_check = Deadline.after_ms(0)  # as after a minute: the next write asks first
    messages[0].ack_async()
    began = time.monotonic()
    with pytest.raises(NotSettled):
        consumer.close()
    assert time.monotonic() - began < 30
    consumer.close()
    mortal.start()


@pytest.mark.parametrize("id", [5, b"mails", "\udcff"])
def test_a_queue_id_that_kafka_cannot_store_is_refused(id: Any) -> None:
    service = Service(ServiceConfig(bootstrap_servers="b:9092", message_topic="jobs"))
    with pytest.raises(InvalidArgument, match=r"^The argument id="):
        service.queue(id, subscription="s")


def test_a_configuration_that_cannot_be_is_refused_at_once(rig: Rig) -> None:
    given = {"bootstrap_servers": "b:9092", "message_topic": "jobs"}
    with pytest.raises(InvalidArgument, match=r"^The argument redelivery_timeout_ms=43200001"):
        ServiceConfig(**given, redelivery_timeout_ms=12 * 3_600_000 + 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^The argument consumer_receive_buffer_capacity=0"):
        ServiceConfig(**given, consumer_receive_buffer_capacity=0)  # type: ignore[arg-type]
    with pytest.raises(
        InvalidArgument, match=r"^The argument marker_format='v3' is invalid: it is none of v1, v2"
    ):
        ServiceConfig(**given, marker_format="v3")  # type: ignore[arg-type]
    with pytest.raises(
        InvalidArgument, match=r"^The argument bootstrap_servers='b:9092' is invalid: kafka has a different"
    ):
        ServiceConfig(
            bootstrap_servers="b:9092", message_topic="jobs", kafka={"Bootstrap.Servers": "other:9092"}
        )
    with pytest.raises(InvalidArgument, match=r"^The argument on_member_lost='release'"):
        ServiceConfig(**given, marker_format="v1", on_member_lost="release")  # type: ignore[arg-type]
    with pytest.raises(
        InvalidArgument, match=r"^The argument marker_topic='jobs' is invalid: message_topic is the same"
    ):
        ServiceConfig(**given, marker_topic="jobs")
    with pytest.raises(MissingOption, match="bootstrap"):
        ServiceConfig(message_topic="jobs")
    service = Service(ServiceConfig(**given, kafka={"sasl.password": "hunter2"}))  # type: ignore[arg-type]
    assert "hunter2" not in repr(service.queue("q").producer().__dict__)
    with pytest.raises(InvalidArgument, match=r"^The argument subscription=None"):
        service.queue()
    with pytest.raises(InvalidArgument, match=r"^The argument id=''"):
        service.queue("")
    with pytest.raises(
        InvalidArgument, match=r"^The argument subscription=.* which the tracker of this mark"
    ):
        service.queue("q", subscription="tracker-__cursorq_markers")
    nowhere = rig.service(message_topic="not-here").queue("q")
    with pytest.raises(TopicNotFound, match="not-here"):
        nowhere.consumer()
    with nowhere.producer() as producer, pytest.raises(NoSuchStream):
        producer.send(b"")


def test_defaults_are_those_of_kafka_mq_go() -> None:
    config = ServiceConfig(bootstrap_servers="b:9092", message_topic="jobs")
    assert config.redelivery_timeout_ms == 60_000
    assert config.consumer_receive_buffer_capacity == 1
    assert config.consumer_next_message_timeout_ms == 1_000
    assert config.consumer_max_messages_per_commit == 1_000


def test_new_messages_do_not_wait_for_as_long_as_a_suspect_is_held(make_rig: MakeRig) -> None:
    # 0 delivered, its consumer is gone -- 0 again, by itself, and nobody settles it -- 1 to 5 all the same
    rig = make_rig(1)
    rig.tracker(maxDeliveries=2)
    rig.send(b"suspect")
    with rig.service(redelivery_timeout_ms=4_000).queue(None, subscription="s").consumer() as leaving:
        receive(leaving, 1)
    consumer = rig.consumer(redelivery_timeout_ms=600_000)
    (suspect,) = receive(consumer, 1, seconds=90)
    assert (suspect.offset, suspect.delivery_count) == (0, 2)
    rig.send(*[b"x"] * 5)
    assert ids(receive(consumer, 5, seconds=90)) == [(0, offset) for offset in range(1, 6)]
