"""Configuration of a queue service: kafka-mq-go's keys under Python names, with its defaults."""

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
    LEAST_LEASE_MS,
    LEAST_SESSION_MS,
    MOST_SESSION_MS,
    Isolation,
)

_V1_GROUP = "kafka-mq-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Configuration of the queues and consumers of a service.

    The first seven fields are those of kafka-mq-go, and the last four of these have its defaults. An invalid
    field raises InvalidArgument when the object is created.

    >>> config = ServiceConfig(bootstrap_servers="b:9092", message_topic="jobs")
    >>> config.redelivery_timeout_ms, config.consumer_receive_buffer_capacity, config.marker_format.value
    (60000, 1, 'v2')
    """

    #: Broker addresses (bootstrap-servers). They can be given in ``kafka`` instead.
    bootstrap_servers: str = ""
    #: Queue topic, which several queues share (message-topic).
    message_topic: str
    #: Topic of the markers, Starts and Ends. Default: __cursorq_markers (marker-topic).
    marker_topic: str = DEFAULT_MARKERS_TOPIC
    #: Lease of a received message in ms, 1 s to 12 h. Without a KeepAlive the message is redelivered after
    #: it. Default: 60 s (redelivery-timeout).
    redelivery_timeout_ms: int = 60_000
    #: Prefetch: maximum number of leased messages that wait to be received. Default: 1
    #: (consumer-receive-buffer-capacity).
    consumer_receive_buffer_capacity: int = 1
    #: Maximum wait of ``receive()`` for the next message, in ms. Default: 1 s
    #: (consumer-next-message-timeout).
    consumer_next_message_timeout_ms: int = 1_000
    #: Maximum number of messages per Start and offset commit. Default: 1,000
    #: (consumer-max-messages-per-commit).
    consumer_max_messages_per_commit: int = 1_000
    #: Marker format of the tracker. v1 is the format of kafka-mq-go. Default: v2.
    marker_format: MarkerVersion = MarkerVersion.V2
    #: Further options of the Kafka clients, with librdkafka's names or Java's.
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Prefix of the consumer group ``<prefix>-<subscription>`` of a V2 consumer. Default: cursorq.
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX
    #: Session timeout in ms, 1 s to 30 min. A consumer without a heartbeat for this time is considered dead.
    #: Default: 10 s.
    session_timeout_ms: int = 10_000
    #: Topic of redelivery announcements, V2 only. Default: __cursorq_redeliveries.
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC
    #: Topic of the cursors, V2 only. Default: __cursors.
    cursors_topic: str = DEFAULT_CURSORS_TOPIC
    #: Topic of pauses and readonly partitions, which producers and consumers honour. Default:
    #: __cursorq_streams.
    streams_topic: str = DEFAULT_STREAMS_TOPIC
    #: Maximum wait of a consumer for a response of the tracker in ms, V2 only. Default: 60 s.
    tracker_timeout_ms: int = 60_000
    #: Maximum wait of a call for unavailable brokers, in ms. Default: 30 s.
    timeout_ms: int = 30_000
    #: Isolation level. With read_uncommitted, records of open and aborted transactions are read too.
    #: Default: read_committed.
    isolation: Isolation = Isolation.READ_COMMITTED
    #: Delays messages by their headers deliverAt and deliverAfter, V2 only. Default: true.
    delayed_delivery: bool = True
    #: True: a consumer ends with an error if unacked messages are deleted. False: it logs the loss and
    #: continues. Default: true.
    fail_on_data_loss: bool = True

    def __post_init__(self) -> None:
        kafka = KafkaOptions(self.kafka)
        if self.bootstrap_servers:
            if kafka.get("bootstrap.servers", self.bootstrap_servers) != self.bootstrap_servers:
                raise InvalidArgument(
                    "bootstrap_servers", self.bootstrap_servers, "kafka has a different bootstrap.servers"
                )
            kafka = KafkaOptions({**kafka, "bootstrap.servers": self.bootstrap_servers})
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
        """Return the given subscription, or else the queue id as the subscription name.

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
        """Return the consumer group of a subscription. With V1 markers it has kafka-mq-go's name."""
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
