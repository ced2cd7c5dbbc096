"""Queue topics that are deleted and created again while a plain client reads them, or before it starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_cursor_source.client import QueueConsumer
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Delete, Hello, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import QueueTopicRecreated, TopicGone, TopicNotFound
from spark_cursor_source.tracker.embedded import EmbeddedTracker
from tests.client.conftest import Rig, ids, receive
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

#: the client may look at the moment when there is no topic
ENDED = (QueueTopicRecreated, TopicNotFound, TopicGone)


def until_it_stops(consumer: QueueConsumer) -> None:
    """Receive until the consumer has failed."""
    wait_until(lambda: consumer.receive(100) is None and False)


@pytest.fixture(params=["v1", "v2"])
def marker_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rig(make_rig: Callable[..., Rig], marker_format: str) -> Rig:
    made = make_rig(1)
    made.tracker(**({"redelivery": "reappend", "queueTopic": made.topic} if marker_format == "v1" else {}))
    return made


def test_a_consumer_stops_when_its_topic_is_created_again(rig: Rig, marker_format: str) -> None:
    # five received | the topic is deleted and created again, and is longer than before | an error
    rig.send(*[b"old"] * 5, id="q")
    consumer = rig.consumer("q", "q", marker_format=marker_format)
    for message in receive(consumer, 5):
        message.ack()
    rig.recreate()
    with pytest.raises(ENDED):
        until_it_stops(consumer)
    consumer.close()
    if marker_format == "v1":  # its group's offsets decide where the next consumer begins
        wait_until(lambda: not rig.topics.committed("kafka-mq-q", [(rig.topic, 0)]))


def test_a_v2_consumer_is_refused_by_the_subscription_of_a_deleted_topic(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(1)
    rig.tracker()
    rig.send(*[b"old"] * 5)
    with rig.service().queue(subscription="s").consumer() as consumer:
        for message in receive(consumer, 5):
            message.ack()
    rig.all_acked(5)
    rig.recreate()
    rig.send(*[b"new"] * 8)
    with pytest.raises(QueueTopicRecreated, match="new subscription"):
        until_it_stops(rig.consumer())
    assert len(receive(rig.consumer(subscription="another"), 8)) == 8


def test_a_late_ack_of_a_deleted_topic_ends_no_message_of_the_new_one(make_rig: Callable[..., Rig]) -> None:
    # five received, none acked | the topic is created again, and a run begins it anew | a late ack
    rig = make_rig(1)
    rig.tracker()
    rig.send(*[b"old"] * 5)
    consumer = rig.consumer()
    first, *others = receive(consumer, 5)
    rig.recreate()
    rig.send(*[b"new"] * 5)
    with pytest.raises(ENDED):
        until_it_stops(consumer)
    cell = Cell(subscription="s", topic=rig.topic, partition=0)
    new = rig.topics.describe([rig.topic])[rig.topic].topic_id
    leased = OffsetSet.of((0, 5))
    rig.control.write(
        Delete(cell=cell),
        Hello(cell=cell, run_id="run", position=0, topic_id=new),
        Start(cell=cell, offsets=leased, lease_ms=600_000, delivery_count=1, run_id="run"),
    )
    first.ack()
    for message in others:
        message.nack(0)
    consumer.flush()

    def read() -> CursorSnapshot | None:
        cursor = rig.cursor()
        return cursor if cursor is not None and cursor.totals.unknown_settlements >= 4 else None

    cursor = wait_until(read)
    assert (cursor.totals.acked, cursor.totals.unknown_ends, cursor.totals.released) == (0, 1, 0)
    assert [offsets for _, offsets in cursor.leases] == [leased]


def test_a_consumer_goes_on_when_the_cursors_topic_is_created_again(make_rig: Callable[..., Rig]) -> None:
    # five acked | the cursors topic is deleted and created again | five more, and none of the five before
    rig = make_rig(1)
    control = rig.control
    options = {"bootstrap.servers": control.config["bootstrap.servers"]}
    names = {"markers_topic": control.markers, "redeliveries_topic": control.redeliveries}
    tracker = EmbeddedTracker(options, **names, cursors_topic=control.cursors)
    rig.stack.callback(tracker.release)
    sent = rig.send(*[b"before"] * 5)
    consumer = rig.consumer()
    for message in receive(consumer, 5):
        message.ack()
    rig.all_acked(5)
    rig.topics.delete(control.cursors)
    rig.topics.ensure_cursors(control.cursors)
    sent += rig.send(*[b"after"] * 5)
    try:
        messages = receive(consumer, 5)
    except TopicNotFound:  # it has looked while there was none
        messages = receive(rig.consumer(), 5)
    assert ids(messages) == sorted(sent[5:])
    for message in messages:
        message.ack()
    rig.all_acked(10)
