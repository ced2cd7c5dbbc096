"""The options of a write that appends messages to queue topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.names import DEFAULT_STREAMS_TOPIC
from spark_cursor_source.errors import ConflictingOptions, InvalidOption, MissingOption
from spark_cursor_source.options.ack import ACK_OPTIONS, AckAction
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.reader import OptionReader, check_topic

ENQUEUE = "enqueue"
ENQUEUE_OPTIONS = (*ACK_OPTIONS, "topic")

_OF_ACKS = ("delay", "reason", "lease")


def is_enqueue(options: Mapping[str, str], columns: Collection[str]) -> bool:
    """Whether a write with these options appends its rows as messages; else it acks, releases and so on.

    It does where ``action`` is enqueue, and where a ``topic`` is named without an ``action``. That there is
    a column value says nothing: a message that was delivered has one too.

    >>> is_enqueue({"action": "enqueue"}, ["value"]), is_enqueue({"topic": "orders"}, ["value"])
    (True, True)
    >>> is_enqueue({"action": "ack"}, ["value"]), is_enqueue({"subscription": "billing"}, ["value"])
    (False, False)

    Raises:
        InvalidOption: the action is none that there is.
        ConflictingOptions: there is a topic to write to, and something else that is to be done.
        MissingOption: nothing says what is to be done.
    """
    given = {name.lower(): value for name, value in options.items()}
    action, topic = given.get("action"), given.get("topic")
    if action is not None and action.lower() not in (ENQUEUE, *AckAction):
        listed = ", ".join((ENQUEUE, *AckAction))
        raise InvalidOption("action", action, "there is no such choice", f"give one of {listed}")
    if topic is not None and (action or ENQUEUE).lower() != ENQUEUE:
        why = f"topic is where messages are appended, and the action is {action}"
        raise ConflictingOptions(("topic", "action"), why, "leave topic out, or give action=enqueue")
    if topic is not None and action is None and "action" in columns:
        why = "topic is where messages are appended, and a column action says something else"
        raise ConflictingOptions(("topic",), why, "leave topic out, or give action=enqueue")
    if action is None and topic is None and "action" not in columns and "subscription" not in given:
        next_move = "enqueue appends the rows to a topic; ack, release, reject, extend need a subscription"
        raise MissingOption("action", next_move)
    return action.lower() == ENQUEUE if action is not None else topic is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """Where messages are appended.

    The options of a source can be handed over as they are; what means nothing here is not used.

    >>> EnqueueOptions.parse({"kafka.bootstrap.servers": "b:9092", "topic": "orders"}).topic
    'orders'
    """

    #: options of the Kafka clients, without the prefix (options kafka.*, kafka.config.file as config.file)
    kafka: KafkaOptions = field(repr=False)
    #: topic of every row, whatever a column topic says; None: the column says it (option topic)
    topic: str | None = None
    #: topic that says which partitions are readonly or paused (option streamsTopic)
    streams_topic: str = DEFAULT_STREAMS_TOPIC

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> EnqueueOptions:
        """The options of a write of messages; source options are taken too."""
        reader = OptionReader(options, known=ENQUEUE_OPTIONS)
        for option in _OF_ACKS:
            if reader.given(option):
                # Not passed over: a delay that is not used would read as a promise.
                why = f"{option} is about messages that were delivered, not for enqueue"
                next_move = "give a column deliverAt" if option == "delay" else f"leave {option} out"
                raise ConflictingOptions(("action", option), why, next_move)
        topic = reader.text("topic")
        return cls(
            kafka=reader.brokers(),
            topic=None if topic is None else check_topic("topic", topic),
            streams_topic=reader.topic("streamsTopic", default=DEFAULT_STREAMS_TOPIC),
        )
