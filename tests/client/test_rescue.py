"""Rescue before retention, with the plain client: what retention takes before it is acked is delivered."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spark_cursor_source.admin import Subscriptions, examine, read_message_history
from spark_cursor_source.admin.message_history import read_message
from spark_cursor_source.client import QueueMessage
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import DataLoss, KafkaUnavailable, RescueTopicNotCompacted
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.metrics import table
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.tracker import Tracker
from tests.client.conftest import counts, ids, in_turn, receive
from tests.kafka.control_plane import produce, read_all, set_config, transaction
from tests.kafka.short_queue import SETTLE_S, MakeShort, ShortRig
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_a_stopped_subscription_gets_every_message_that_retention_has_taken(make_short: MakeShort) -> None:
    # subscribe, stop | 200 messages | retention takes all | start: 200 messages | acked: the copies are gone
    rig = make_short(2)
    rig.tracker()
    rig.subscribe()
    producer = Producer(rig.control.config)
    for number in range(200):
        producer.produce(
            rig.topic,
            key=b"key-%d" % number,
            value=None if number % 7 == 0 else b"value-%d" % number,
            headers=[("one", b"1"), ("none", None)],
            timestamp=1_000 * round(time.time()) + number,
        )
    producer.flush(30)
    rig.until_removed(200)
    messages = receive(rig.consumer(consumer_receive_buffer_capacity=50), 200)
    assert len(set(ids(messages))) == 200
    by_key = {message.key: message for message in messages}
    assert by_key[b"key-7"].payload is None
    assert by_key[b"key-8"].payload == b"value-8"
    assert list(by_key[b"key-8"].headers) == [("one", b"1"), ("none", None)]
    assert by_key[b"key-8"].timestamp_ms % 1_000 == 8
    assert {message.delivery_count for message in messages} == {1}
    for partition in range(2):
        offsets = [message.offset for message in messages if message.partition == partition]
        assert offsets == sorted(offsets)
    ack_all(rig, messages)
    assert ClusterAdmin(rig.control.config).settings(rig.rescue_topic)["cleanup.policy"] == "compact"


def ack_all(rig: ShortRig, messages: list[QueueMessage]) -> None:
    """Ack the messages, and wait until nothing is left of them."""
    for message in messages[:-1]:
        message.ack_async()
    messages[-1].ack()
    rig.all_acked(len(messages))
    rig.until_freed()


def test_a_slow_consumer_under_load_with_a_retention_of_seconds_loses_nothing(make_short: MakeShort) -> None:
    # 200 messages in 6 s; the consumer is slower than that, and gives every ninth back once
    rig = make_short(2)
    rig.tracker()
    rig.subscribe()
    sent = 200
    load = rig.load(sent, 6.0)
    acked: set[bytes | None] = set()
    consumer = rig.consumer(consumer_receive_buffer_capacity=10)

    def done() -> bool:
        message = consumer.receive(500)
        if message is None:
            return len(acked) == sent
        if message.delivery_count == 1 and message.offset % 9 == 0:
            message.nack(9_000, reason="later")
        else:
            acked.add(message.payload)
            message.ack_async()
        time.sleep(0.06)
        return len(acked) == sent

    wait_until(done, "every message comes", timeout_s=240)
    load.join()
    consumer.flush()
    rig.all_acked(sent)
    wait_until(lambda: any(begin > 0 for begin in rig.begins()), "retention deletes messages meanwhile")
    assert acked == {b"%d" % number for number in range(sent)}
    assert not rig.topics.existing([f"{rig.topic}-s-DLQ"])


def test_a_message_is_copied_once_for_all_subscriptions_and_freed_when_the_last_has_acked(
    make_short: MakeShort,
) -> None:
    rig = make_short()
    rig.tracker()
    rig.subscribe("first")
    rig.subscribe("second")
    rig.produce(20)
    rig.until_removed(20)
    assert len(read_all(rig.control.config, rig.rescue_topic)) == 20
    for message in receive(rig.consumer(None, "first"), 20):
        message.ack()
    rig.all_acked(20, "first")
    time.sleep(10)  # more than the time after which copies are freed
    assert len(rig.copies()) == 20
    for message in receive(rig.consumer(None, "second"), 20):
        message.ack()
    rig.until_freed()


def test_a_rescued_message_comes_again_and_ends_as_a_dead_letter(make_short: MakeShort) -> None:
    # taken | delivered, given back | delivered again, rejected: the copy is the dead letter
    rig = make_short()
    rig.tracker()
    rig.subscribe()
    rig.produce(3, headers=[("trace", b"7")])
    rig.until_removed(3)
    consumer = rig.consumer()
    for message in receive(consumer, 3):
        message.nack(100)
    again = receive(consumer, 3)
    assert counts(again) == {2: 3}
    again[0].ack()
    again[1].reject("bad")
    again[2].ack()
    letters = f"{rig.topic}-s-DLQ"
    wait_until(lambda: letters in rig.topics.existing([letters]))
    wait_until(lambda: len(read_all(rig.control.config, letters)) == 1)
    (letter,) = read_all(rig.control.config, letters)
    assert (letter.value(), letter.key()) == (again[1].payload, again[1].key)
    headers = dict(letter.headers() or [])
    assert (headers["trace"], headers["cursorq-offset"]) == (b"7", b"%d" % again[1].offset)
    rig.until_freed()


def test_offsets_without_a_message_are_no_loss(make_short: MakeShort) -> None:
    # 0-2 committed, 3 control, 4-5 aborted, 6 control, 7-8 plain
    rig = make_short()
    rig.tracker()
    rig.subscribe()
    transaction(rig.control.config, [(rig.topic, {"value": b"%d" % number}) for number in range(3)])
    transaction(rig.control.config, [(rig.topic, {"value": b"no"})] * 2, commit=False)
    rig.produce(2, partition=0)
    rig.until_removed(9)
    consumer = rig.consumer()
    messages = receive(consumer, 5)
    assert [message.offset for message in messages] == [0, 1, 2, 7, 8]
    ack_all(rig, messages)
    assert consumer.receive(500) is None


def test_messages_beyond_the_limit_are_a_loss_that_is_logged_and_counted(
    make_short: MakeShort, caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_short()
    options = {**rig.tracker_options, "rescueMaxBytes": "2000"}
    with Tracker(options) as tracker, caplog.at_level(logging.INFO):
        rig.subscribe()
        rig.produce(10, headers=[("large", b"x" * 500)])
        wait_until(lambda: "event=rescue_full" in caplog.text, timeout_s=SETTLE_S)

        def value() -> float:
            found = {one.metric.name: one.value for one in tracker.metrics()}
            return float(found.get(table.RESCUE_UNSAVED.name, 0))  # type: ignore[arg-type]

        # Not all of them need be due at the same check.
        wait_until(lambda: len(rig.copies()) + value() == 10, timeout_s=SETTLE_S)
        unsaved = value()
        assert 0 < unsaved < 10
        rig.until_removed(10)
        consumer = rig.consumer()
        with pytest.raises(DataLoss):
            receive(consumer, 10)
        again = rig.consumer(fail_on_data_loss=False, consumer_receive_buffer_capacity=10)
        assert len(receive(again, 10 - round(unsaved))) == 10 - unsaved


def test_a_loss_before_a_rescued_message_is_told_before_that_message_is_started(
    make_short: MakeShort, caplog: pytest.LogCaptureFixture
) -> None:
    # 0-4 taken without a rescue | 5-9 rescued: no Start may pass 0-4 in silence
    rig = make_short()
    with Tracker(rig.control.options(trigger="50ms")):
        rig.subscribe()
    rig.produce(5)
    rig.until_removed(5)
    rig.tracker()
    rig.produce(5)
    rig.until_removed(10)
    for _ in range(2):
        with (
            rig.service(consumer_receive_buffer_capacity=1).queue(subscription="s").consumer() as strict,
            pytest.raises(DataLoss, match="0 to 4"),
        ):
            receive(strict, 1)
    with caplog.at_level(logging.WARNING):
        messages = receive(rig.consumer(fail_on_data_loss=False, consumer_receive_buffer_capacity=1), 5)
    assert [message.offset for message in messages] == [5, 6, 7, 8, 9]
    assert len([one for one in caplog.messages if "event=data_loss" in one]) == 1


def test_a_partition_whose_copies_cannot_be_read_holds_up_no_other(
    make_short: MakeShort, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_short(2)
    rig.tracker()
    rig.subscribe()
    produce(rig.control.config, rig.topic, in_turn(4))
    rig.until_removed(4)
    is_well, without_message = threading.Event(), Rescue.without_message

    def asked(rescue: Rescue, topic: str, partition: int, offsets: OffsetSet) -> OffsetSet:
        if partition == 0 and not is_well.is_set():
            raise KafkaUnavailable("read", 1, "no leader")
        return without_message(rescue, topic, partition, offsets)

    monkeypatch.setattr(Rescue, "without_message", asked)
    consumer = rig.consumer()
    assert ids(receive(consumer, 2)) == [(1, 0), (1, 1)]
    produce(rig.control.config, rig.topic, in_turn(2))
    assert ids(receive(consumer, 1)) == [(1, 2)]
    assert consumer.receive(200) is None
    is_well.set()
    assert ids(receive(consumer, 3)) == [(0, 0), (0, 1), (0, 2)]


def test_a_tracker_tells_what_it_has_rescued_and_the_time_that_is_left(make_short: MakeShort) -> None:
    rig = make_short()
    with Tracker(rig.tracker_options) as tracker:
        rig.subscribe()
        rig.produce(7)

        def value(metric: table.Metric) -> float:
            found = [one.value for one in tracker.metrics() if one.metric is metric]
            return float(found[0]) if found and isinstance(found[0], float) else -1.0

        wait_until(lambda: value(table.RESCUED) == 7, timeout_s=SETTLE_S)
        wait_until(lambda: value(table.RESCUE_BYTES) > 0, timeout_s=SETTLE_S)
        assert 0 < value(table.RESCUE_HEADROOM) <= 6
        assert value(table.RESCUE_UNSAVED) == 0


def test_a_rescue_topic_that_deletes_its_records_is_refused(make_short: MakeShort) -> None:
    rig = make_short()
    rig.topics.create({rig.rescue_topic: (1, {"cleanup.policy": "delete"})})
    with (
        pytest.raises(RescueTopicNotCompacted, match=r"cleanup\.policy=compact"),
        Tracker(rig.tracker_options) as tracker,
    ):
        tracker.wait(60)
    set_config(AdminClient(rig.control.config), rig.rescue_topic, "cleanup.policy", "compact")
    with Tracker(rig.tracker_options):
        rig.subscribe()


def test_a_topic_with_a_limit_of_size_is_rescued_too(make_short: MakeShort) -> None:
    # no retention by time; a log above 20 kB is shortened
    rig = make_short(retention_ms=-1, retention_bytes=20_000)
    rig.tracker(rescueBefore="1s")  # each check makes what it sees due at the next one
    rig.subscribe()
    rig.produce(10)
    wait_until(
        lambda: rig.topics.existing([rig.rescue_topic]) and len(rig.copies()) == 10, timeout_s=SETTLE_S
    )
    for _ in range(4):
        rig.produce(10, headers=[("large", b"x" * 1_000)])
        time.sleep(1)  # the log gets another segment
    rig.until_removed(10)
    first = receive(rig.consumer(consumer_receive_buffer_capacity=10), 10)
    assert [message.payload for message in first] == [b"%d" % number for number in range(10)]


def test_a_restore_and_the_doctor_know_of_messages_that_only_the_rescue_topic_has(
    make_short: MakeShort,
) -> None:
    # 10 messages, taken | snapshot | 4 acked | restore: the 6 that were not acked are not lost
    rig = make_short()
    rig.tracker(rescueBefore="30s")
    rig.subscribe()
    rig.produce(10)
    rig.until_removed(10)
    servers = {"bootstrap.servers": rig.control.config["bootstrap.servers"]}
    names: Any = rig.control.topics
    names |= rig.control.groups
    with Subscriptions(servers, rescue_topic=rig.rescue_topic, **names) as subscriptions:
        subscriptions.snapshot("s", rig.topic, "before")
        with (
            rig.service(consumer_receive_buffer_capacity=10).queue(None, subscription="s").consumer() as first
        ):
            for message in receive(first, 4):
                message.ack()
        subscriptions.restore("s", rig.topic, "before")
        found = examine(
            servers, redeliveries_topic=rig.control.redeliveries, rescue_topic=rig.rescue_topic, **names
        )
        subscriptions.clone("s", rig.topic, "copy")
    in_rescue = [one for one in found if one.check == "retention"]
    assert [(one.severity, one.evidence) for one in in_rescue] == [("info", "copies by partition: {0: 10}")]
    for subscription in ("s", "copy"):
        consumer = rig.consumer(None, subscription, consumer_receive_buffer_capacity=10)
        payloads = sorted(message.payload or b"" for message in receive(consumer, 10))
        assert payloads == [b"%d" % number for number in range(10)]


def test_the_content_of_a_rescued_message_is_shown(make_short: MakeShort) -> None:
    rig = make_short()
    rig.tracker(rescueBefore="30s")
    rig.subscribe()
    rig.produce(2, headers=[("trace", b"t")])
    rig.until_removed(2)
    servers = {"bootstrap.servers": rig.control.config["bootstrap.servers"]}
    names = {"markers_topic": rig.control.markers, "rescue_topic": rig.rescue_topic}
    history = read_message_history(
        servers, rig.topic, 0, 1, payload=True, cursors_topic=rig.control.cursors, **names
    )
    assert (history.found, history.rescued) == (True, True)
    assert (history.key, history.value, history.headers) == (b"k1", b"1", (("trace", b"t"),))
    assert [one.state for one in history.states] == ["unread"]
    found = read_message(servers, rig.topic, 0, 1, **names)
    assert found is not None
    assert found.value() == b"1"
