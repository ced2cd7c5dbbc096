"""Options of a write that appends messages to queue topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spark_cursor_source.errors import ConflictingOptions, InvalidOption, MissingOption
from spark_cursor_source.options import kinds
from spark_cursor_source.options.ack import ACK_OPTIONS, AckAction
from spark_cursor_source.options.declare import KAFKA_CLIENTS, keys_of, option, read_options, same_option
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.reader import OptionReader
from spark_cursor_source.options.source import SourceOptions

ENQUEUE = "enqueue"
_OF_ACKS = ("delay", "reason", "lease")


def is_enqueue(options: Mapping[str, str], columns: Collection[str]) -> bool:
    """True if a write with these options appends its rows as messages. Otherwise the write settles messages.

    A write appends if ``action`` is enqueue, or if ``topic`` is given without an ``action``. A column value
    is no indication, because delivered messages have one too.

    >>> is_enqueue({"action": "enqueue"}, ["value"]), is_enqueue({"topic": "orders"}, ["value"])
    (True, True)
    >>> is_enqueue({"action": "ack"}, ["value"]), is_enqueue({"subscription": "billing"}, ["value"])
    (False, False)

    Raises:
        InvalidOption: the action does not exist.
        ConflictingOptions: a topic is given together with another action.
        MissingOption: no option or column determines the action.
    """
    given = {name.lower(): value for name, value in options.items()}
    action, topic = given.get("action"), given.get("topic")
    if action is not None and action.lower() not in (ENQUEUE, *AckAction):
        listed = ", ".join((ENQUEUE, *AckAction))
        raise InvalidOption("action", action, "it is not an allowed value", f"use one of {listed}")
    if topic is not None and (action or ENQUEUE).lower() != ENQUEUE:
        why = f"topic is where messages are appended, and the action is {action}"
        raise ConflictingOptions(("topic", "action"), why, "leave topic out, or give action=enqueue")
    if topic is not None and action is None and "action" in columns:
        why = "topic is where messages are appended, and a column action says something else"
        raise ConflictingOptions(("topic",), why, "leave topic out, or give action=enqueue")
    if action is None and topic is None and "action" not in columns and "subscription" not in given:
        next_move = (
            "to append the rows to a queue topic, give topic; to settle messages, give action=ack, release, "
            "reject or extend, and a subscription"
        )
        raise MissingOption("action", next_move)
    return action.lower() == ENQUEUE if action is not None else topic is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """Options of a write that appends messages.

    Source options are accepted. Options without a meaning here are ignored.

    >>> EnqueueOptions.parse({"kafka.bootstrap.servers": "b:9092", "topic": "orders"}).topic
    'orders'
    """

    #: Kafka client settings without the prefix ``kafka.``.
    kafka: KafkaOptions = field(repr=False, metadata=KAFKA_CLIENTS)
    topic: str | None = option(
        "topic",
        kinds.topic,
        default=None,
        absent="column `topic`",
        doc="queue topic of every row; it overrides the column",
    )
    #: Records readonly and paused partitions.
    streams_topic: str = same_option(SourceOptions, "streams_topic")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> EnqueueOptions:
        """Parse the options of a write of messages. Source options are accepted too."""
        reader = OptionReader(options, known=ENQUEUE_OPTIONS)
        for key in _OF_ACKS:
            if reader.given(key):
                # Refuse these options. An ignored delay would look like a promise.
                why = f"{key} is about messages that were delivered, not for enqueue"
                next_move = "give a column deliverAt" if key == "delay" else f"leave {key} out"
                raise ConflictingOptions(("action", key), why, next_move)
        return read_options(cls, reader)


ENQUEUE_OPTIONS = keys_of(EnqueueOptions, also=ACK_OPTIONS)
