"""Which writes append messages, and what their options may be."""

from __future__ import annotations

import pytest

from spark_cursor_source.errors import ConflictingOptions, InvalidOption, MissingOption, UnknownOption
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.publish import EnqueueOptions, is_enqueue
from spark_cursor_source.options.source import SourceOptions

BROKER = {"kafka.bootstrap.servers": "b:9092"}
SOURCE = BROKER | {"subscribe": "orders", "subscription": "billing"}
MESSAGE = ("key", "value")
DELIVERED = ("key", "value", "topic", "partition", "offset", "delivery_count")


@pytest.mark.parametrize(
    ("options", "columns", "enqueues"),
    [
        (BROKER | {"topic": "orders"}, MESSAGE, True),
        (SOURCE | {"topic": "orders"}, DELIVERED, True),
        (BROKER | {"TOPIC": "orders", "Action": "Enqueue"}, MESSAGE, True),
        (BROKER | {"action": "enqueue"}, (*MESSAGE, "topic"), True),
        (SOURCE | {"action": "enqueue"}, (*DELIVERED, "action"), True),
        (SOURCE, DELIVERED, False),
        (SOURCE, (*DELIVERED, "action"), False),
        (BROKER, (*DELIVERED, "action"), False),
        (SOURCE | {"action": "reject"}, DELIVERED, False),
    ],
)
def test_a_write_enqueues_where_the_action_or_a_topic_to_write_to_says_so(
    options: dict[str, str], columns: tuple[str, ...], enqueues: bool
) -> None:
    assert is_enqueue(options, columns) is enqueues


@pytest.mark.parametrize(
    ("options", "columns", "error", "message"),
    [
        (
            BROKER,
            (*MESSAGE, "topic"),
            MissingOption,
            "'action' is missing. To append the rows to a queue topic, give topic",
        ),
        (BROKER | {"action": "send"}, MESSAGE, InvalidOption, "Use one of enqueue, ack, release, reject"),
        (SOURCE | {"action": "ack", "topic": "t"}, DELIVERED, ConflictingOptions, "the action is ack"),
        (SOURCE | {"topic": "t"}, (*DELIVERED, "action"), ConflictingOptions, "a column action says"),
    ],
)
def test_a_write_that_could_be_taken_for_another_is_refused(
    options: dict[str, str], columns: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        is_enqueue(options, columns)


def test_options_of_a_source_can_be_handed_over() -> None:
    kafka = KafkaOptions({"bootstrap.servers": "b:9092"})
    assert EnqueueOptions.parse(SOURCE | {"action": "enqueue"}) == EnqueueOptions(kafka=kafka)
    named = EnqueueOptions.parse(SOURCE | {"topic": "orders", "kafka.sasl.password": "hunter2"})
    assert named.topic == "orders"
    assert "hunter2" not in repr(named)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"topic": "orders"}, MissingOption, "kafka.bootstrap.servers"),
        (BROKER | {"topic": "or ders"}, InvalidOption, "a topic name has only"),
        (BROKER | {"topic": ""}, InvalidOption, "it is empty"),
        (BROKER | {"topics": "orders"}, UnknownOption, "Did you mean 'topic'"),
        (BROKER | {"topic": "orders", "path": "/orders"}, InvalidOption, "a queue has no path"),
        (BROKER | {"action": "enqueue", "delay": "30s"}, ConflictingOptions, "Give a column deliverAt"),
        (BROKER | {"action": "enqueue", "reason": "r"}, ConflictingOptions, "Leave reason out"),
        (BROKER | {"action": "enqueue", "lease": "5m"}, ConflictingOptions, "Leave lease out"),
    ],
)
def test_options_that_mean_nothing_for_a_message_are_refused(
    options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        EnqueueOptions.parse(options)


def test_a_topic_to_write_to_is_no_option_of_a_source_or_of_acks() -> None:
    for parse in (SourceOptions.parse, AckOptions.parse):
        with pytest.raises(UnknownOption, match="no option 'topic': messages are appended to it by df"):
            parse(SOURCE | {"topic": "orders"})
