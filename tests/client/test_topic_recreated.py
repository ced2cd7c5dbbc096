"""Queue topics that are deleted and created again while a plain client reads them, or before it starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_cursor_source.client import QueueConsumer
from spark_cursor_source.errors import QueueTopicRecreated, TopicGone, TopicNotFound
from tests.client.conftest import Rig, receive
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
        assert not rig.topics.committed("kafka-mq-q", [(rig.topic, 0)])


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
