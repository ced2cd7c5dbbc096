"""Acks of what cannot be there: known from the cursors topic and the ends of the queue topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_cursor_source.consumer import ack_check
from spark_cursor_source.consumer.ack_check import AckCheck, check_acks
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Hello
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import NoSuchMessages, NotOfSubscription, UnknownSubscription
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.wire import cursor as wire
from tests.kafka.control_plane import PARTITIONS, Control, cell_of, cursor_of, login, produce
from tests.kafka.tracker_thread import options_of
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.broker


def put(control: Control, topic: str, partition: int, read_position: int) -> None:
    """A cursor of subscription billing."""
    cell = cell_of(topic, partition)
    value = wire.encode(cursor_of(cell, read_position))
    home = cell.control_partition(PARTITIONS)
    produce(control.config, control.cursors, [{"key": cell.key, "value": value, "partition": home}])


@contextmanager
def a_transaction_under_way(control: Control, cell: Cell) -> Iterator[Callable[[], None]]:
    """A transaction that has written a cursor; what it yields commits it."""
    producer = Producer({**control.config, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    value = wire.encode(cursor_of(cell, 0))
    producer.produce(control.cursors, value, cell.key, partition=cell.control_partition(PARTITIONS))
    assert producer.flush(30) == 0
    commit = ExitStack()
    commit.callback(producer.commit_transaction, 30)
    with commit:
        yield commit.close


def in_thread(call: Callable[[], None]) -> Future[None]:
    """What a call comes to, in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    done = pool.submit(call)
    pool.shutdown(wait=False)
    return done


@pytest.fixture
def queue(control: Control, create_topic: Callable[..., str]) -> str:
    """A topic with five messages in partition 0, of which the cursor has seen two."""
    topic = create_topic(2)
    produce(control.config, topic, [{"value": b"x"}] * 5)
    put(control, topic, 0, 2)
    put(control, topic, 1, 0)
    return topic


@pytest.fixture
def check(control: Control) -> AckCheck:
    return AckCheck(control.config, control.cursors, control.markers)


def test_what_is_there_may_be_acked_though_the_tracker_is_behind(check: AckCheck, queue: str) -> None:
    check.check({cell_of(queue): OffsetSet.of((0, 5)), cell_of(queue, 1): EMPTY})


def test_messages_that_come_later_may_be_acked_then(check: AckCheck, control: Control, queue: str) -> None:
    with pytest.raises(NoSuchMessages, match=r"partition 0 ends at offset 5, so it has no message 5"):
        check.check({cell_of(queue): OffsetSet.of((4, 6))})
    produce(control.config, queue, [{"value": b"x"}])
    check.check({cell_of(queue): OffsetSet.of((4, 6))})


def test_offsets_beyond_the_end_are_named_the_first_few_of_them(check: AckCheck, queue: str) -> None:
    with pytest.raises(NoSuchMessages, match=r"no message 5, 6, 7 and 93 more. Correct the column offset"):
        check.check({cell_of(queue): OffsetSet.of((0, 2), (5, 101))})


def test_a_subscription_a_topic_or_a_partition_that_nobody_reads_is_named(
    check: AckCheck, queue: str
) -> None:
    with pytest.raises(
        UnknownSubscription, match=r"no cursor of subscription 'bilingg'. Its subscriptions are: billing"
    ):
        check.check({cell_of(queue, subscription="bilingg"): OffsetSet.of((0, 1))})
    with pytest.raises(NotOfSubscription, match=f"no cursor of topic 'ordres'. It has cursors of {queue}"):
        check.check({cell_of("ordres"): OffsetSet.of((0, 1))})
    with pytest.raises(
        NotOfSubscription, match=r"no cursor of partition 99 of .*. It has cursors of partitions 0, 1"
    ):
        check.check({cell_of(queue, 99): OffsetSet.of((0, 1))})


def test_a_cursors_topic_that_is_not_there_knows_nobody(control: Control, queue: str) -> None:
    acks = [End(cell=cell_of(queue), offsets=OffsetSet.of((0, 1)))]
    with pytest.raises(UnknownSubscription, match="'no-such-topic' has no cursor of subscription"):
        check_acks(control.config, "no-such-topic", control.markers, acks)


def say_hello(control: Control, cell: Cell) -> None:
    """What a query says before its first batch."""
    control.write(Hello(cell=cell, run_id="run", position=0))


def test_the_first_ack_of_a_new_subscription_waits_for_the_tracker(
    check: AckCheck, control: Control, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    # Its first messages are delivered before the tracker has read its Hello.
    queue = create_topic()
    produce(control.config, queue, [{"value": b"x"}])
    new = cell_of(queue, subscription="new")
    say_hello(control, new)
    done = in_thread(lambda: check.check({new: OffsetSet.of((0, 1))}))
    time.sleep(0.3)
    assert not done.done()
    with Tracker(options_of(control, tmp_path)):
        done.result(timeout=PATIENCE_S)
        with pytest.raises(UnknownSubscription, match="no cursor of subscription 'nwe'"):
            check.check({cell_of(queue, subscription="nwe"): OffsetSet.of((0, 1))})


def test_an_ack_is_not_refused_while_no_tracker_runs(
    check: AckCheck,
    control: Control,
    queue: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ack_check, "_TRACKER_MS", 300)
    new = cell_of(queue, subscription="new")
    say_hello(control, new)
    check.check({new: OffsetSet.of((0, 1))})
    assert f"acks_not_checked markers_topic={control.markers}" in caplog.text


def test_an_ack_waits_for_the_transaction_that_writes_its_cursor(
    check: AckCheck, control: Control, queue: str
) -> None:
    # A message can be read before the cursor, though the tracker wrote both in one transaction.
    late = cell_of(queue, subscription="late")
    with a_transaction_under_way(control, late) as commit:
        done = in_thread(lambda: check.check({late: OffsetSet.of((0, 1))}))
        time.sleep(0.3)
        assert not done.done()
        commit()
    done.result(timeout=PATIENCE_S)


def test_an_ack_is_not_refused_for_a_transaction_that_stays_open(
    check: AckCheck, control: Control, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    late = cell_of(queue, subscription="late")
    with a_transaction_under_way(control, late):
        check.check({late: OffsetSet.of((0, 1))})
    assert "cursors_not_all_read" in caplog.text


def test_the_cursors_are_read_once_for_a_cell(check: AckCheck, queue: str) -> None:
    check.check({cell_of(queue): OffsetSet.of((0, 5))})
    check._config, check._cursors_topic = {}, "no-such-topic"
    check.check({cell_of(queue): OffsetSet.of((0, 5))})


def test_acks_of_a_queue_topic_that_is_gone_harm_nobody(
    check: AckCheck, queue: str, delete_topic: Callable[[str], None]
) -> None:
    delete_topic(queue)
    check.check({cell_of(queue): OffsetSet.of((0, 9))})


def test_who_may_not_read_the_cursors_acks_without_a_check(
    guarded_broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    admin, bob = config | login("admin", "of-admin"), config | login("bob", "of-bob")
    from spark_cursor_source.kafka.admin import ClusterAdmin

    ClusterAdmin(admin).create({"cursors-of-others": (1, {"cleanup.policy": "compact"})})
    AckCheck(bob, "cursors-of-others", "markers").check({cell_of("orders"): OffsetSet.of((0, 10**9))})
    assert "acks_not_checked cursors_topic=cursors-of-others" in caplog.text
    assert "of-bob" not in caplog.text
