"""The configuration of a queue service: kafka-mq-go's keys, under Python names and with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_DEAD_LETTER_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
    DEFAULT_STREAMS_TOPIC,
    why_no_dead_letters,
    why_no_subscription,
    why_no_topic,
)
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX, group_id
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.reader import check_brokers
from spark_cursor_source.options.source import (
    DEFAULT_SESSION_MS,
    LEAST_LEASE_MS,
    LEAST_SESSION_MS,
    MOST_SESSION_MS,
    Isolation,
)

_V1_GROUP = "kafka-mq-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Where the queues of a service are, and how they are worked.

    The first seven fields are kafka-mq-go's, and so are the defaults of the last four of them. A field that
    cannot be is refused at once, with InvalidArgument.

    >>> config = ServiceConfig(bootstrap_servers="b:9092", message_topic="jobs")
    >>> config.redelivery_timeout_ms, config.consumer_receive_buffer_capacity, config.marker_format.value
    (60000, 1, 'v2')
    """

    #: where the brokers are (bootstrap-servers); it may stand in ``kafka`` instead
    bootstrap_servers: str = ""
    #: the queue topic, which queues share (message-topic)
    message_topic: str
    #: topic of Starts and Ends (marker-topic)
    marker_topic: str = DEFAULT_MARKERS_TOPIC
    #: a received message comes back after this time without a KeepAlive, 1 s to 12 h (redelivery-timeout)
    redelivery_timeout_ms: int = 60_000
    #: most messages that are leased and wait to be received (consumer-receive-buffer-capacity)
    consumer_receive_buffer_capacity: int = 1
    #: how long ``receive()`` waits for the next message (consumer-next-message-timeout)
    consumer_next_message_timeout_ms: int = 1_000
    #: most messages that share a Start, and a commit of offsets (consumer-max-messages-per-commit)
    consumer_max_messages_per_commit: int = 1_000
    #: whose tracker it is: v1 for kafka-mq-go's
    marker_format: MarkerVersion = MarkerVersion.V2
    #: further options of the Kafka clients, by librdkafka's names or Java's
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: the consumer group of a V2 consumer is ``<prefix>-<subscription>``
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX
    #: a consumer that is not heard of for so long is given up for dead
    session_timeout_ms: int = DEFAULT_SESSION_MS
    #: topic of messages that are due again, by reference; V2 only
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC
    #: topic of the cursors; V2 only
    cursors_topic: str = DEFAULT_CURSORS_TOPIC
    #: topic of the pauses and readonly partitions, which producers and consumers honour
    streams_topic: str = DEFAULT_STREAMS_TOPIC
    #: how long a consumer waits for a tracker to answer; V2 only
    tracker_timeout_ms: int = 60_000
    #: how long a call waits for brokers that are away
    timeout_ms: int = 30_000
    #: whether records of aborted transactions are read
    isolation: Isolation = Isolation.READ_COMMITTED
    #: whether headers deliverAt and deliverAfter delay a message; V2 only
    delayed_delivery: bool = True
    #: end a consumer when messages are gone that were not acked, else log it and go on
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        given = dict(self.kafka)
        if self.bootstrap_servers:
            given["bootstrap.servers"] = self.bootstrap_servers
        kafka = KafkaOptions(given)
        check_brokers(kafka)
        object.__setattr__(self, "kafka", kafka)
        for name, choices in (("marker_format", MarkerVersion), ("isolation", Isolation)):
            _check_choice(name, getattr(self, name), [choice.value for choice in choices])
        object.__setattr__(self, "marker_format", MarkerVersion(self.marker_format))
        object.__setattr__(self, "isolation", Isolation(self.isolation))
        self._check_topics()
        _check_number("redelivery_timeout_ms", self.redelivery_timeout_ms, LEAST_LEASE_MS, MAX_LEASE_MS)
        _check_number("session_timeout_ms", self.session_timeout_ms, LEAST_SESSION_MS, MOST_SESSION_MS)
        for name in _POSITIVE:
            _check_number(name, getattr(self, name), 1, 2**31 - 1)

    def _check_topics(self) -> None:
        by_topic: dict[str, str] = {}
        for name in ("message_topic", "marker_topic", "redeliveries_topic", "cursors_topic", "streams_topic"):
            topic = getattr(self, name)
            if (why := why_no_topic(topic)) is not None:
                raise InvalidArgument(name, topic, why)
            if topic in by_topic:
                raise InvalidArgument(name, topic, f"{by_topic[topic]} is the same topic")
            by_topic[topic] = name

    def subscription_of(self, queue_id: str | None, subscription: str | None) -> str:
        """The subscription of a queue: the one given, else it has the name of the queue id.

        >>> ServiceConfig(bootstrap_servers="b:9092", message_topic="jobs").subscription_of("mails", None)
        'mails'
        """
        named = queue_id if subscription is None else subscription
        if named is None:
            raise InvalidArgument("subscription", None, "a queue without an id has no other name")
        if (why := why_no_subscription(named)) is not None:
            raise InvalidArgument("subscription", named, why)
        if self.marker_format is MarkerVersion.V2:
            why = why_no_dead_letters(DEFAULT_DEAD_LETTER_TOPIC, topic=self.message_topic, subscription=named)
            if why is not None:
                raise InvalidArgument("subscription", named, why)
        return named

    def group_of(self, subscription: str) -> str:
        """The consumer group of a subscription: that of kafka-mq-go where the tracker is."""
        if self.marker_format is MarkerVersion.V1:
            return _V1_GROUP + subscription
        return group_id(self.group_id_prefix, subscription)


_POSITIVE = (
    "consumer_receive_buffer_capacity",
    "consumer_next_message_timeout_ms",
    "consumer_max_messages_per_commit",
    "tracker_timeout_ms",
    "timeout_ms",
)


def _check_number(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidArgument(name, value, f"it is not in {least} to {most}")


def _check_choice(name: str, value: str, choices: list[str]) -> None:
    if value not in choices:
        raise InvalidArgument(name, value, f"it is none of {', '.join(choices)}")
