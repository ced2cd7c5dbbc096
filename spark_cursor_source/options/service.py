"""Configuration of a queue service: kafka-mq-go's keys under Python names, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_DEAD_LETTER_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
    DEFAULT_RESCUE_TOPIC,
    DEFAULT_STREAMS_TOPIC,
    why_no_dead_letters,
    why_no_subscription,
    why_no_topic,
)
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX, group_id, why_no_group
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.options.arguments import (
    argument,
    check_arguments,
    choice,
    name,
    number,
    true_or_false,
    unchecked,
)
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.reader import check_brokers
from spark_cursor_source.options.source import (
    LEAST_LEASE_MS,
    LEAST_SESSION_MS,
    MOST_SESSION_MS,
    Isolation,
    OnMemberLost,
)
from spark_cursor_source.options.tracker_place import TrackerPlace

_V1_GROUP = "kafka-mq-"
_TOPIC = name(why_no_topic)
_POSITIVE = number(1, 2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Configuration of the queues and consumers of a service.

    The fields from ``bootstrap_servers`` to ``consumer_max_messages_per_commit`` have the names of
    kafka-mq-go, and its defaults. Times are in ms. An invalid field raises InvalidArgument when the object is
    created.

    >>> config = ServiceConfig(bootstrap_servers="b:9092", message_topic="jobs")
    >>> config.redelivery_timeout_ms, config.consumer_receive_buffer_capacity, config.marker_format.value
    (60000, 1, 'v2')
    """

    bootstrap_servers: str = argument(unchecked, default="", doc="the brokers; may stand in `kafka` instead")
    message_topic: str = argument(_TOPIC, doc="the queue topic, which several queues share")
    marker_topic: str = argument(_TOPIC, default=DEFAULT_MARKERS_TOPIC, doc="topic of leases and acks")
    redelivery_timeout_ms: int = argument(
        number(LEAST_LEASE_MS, MAX_LEASE_MS),
        default=60_000,
        doc="the lease; without a KeepAlive the message is redelivered after it; 1 s to 12 h",
    )
    consumer_receive_buffer_capacity: int = argument(
        _POSITIVE, default=1, doc="most messages that are leased and wait to be received (prefetch)"
    )
    consumer_next_message_timeout_ms: int = argument(
        _POSITIVE, default=1_000, doc="how long `receive()` waits"
    )
    consumer_max_messages_per_commit: int = argument(
        _POSITIVE, default=1_000, doc="most messages that share a Start and an offset commit"
    )
    marker_format: MarkerVersion = argument(
        choice(MarkerVersion), default=MarkerVersion.V2, doc="`v1`: the tracker is kafka-mq-go's"
    )
    kafka: Mapping[str, str] = argument(
        unchecked,
        default_factory=dict,
        repr=False,
        doc="further options of the Kafka clients, in Java's names or librdkafka's names",
    )
    group_id_prefix: str = argument(
        name(why_no_subscription),
        default=DEFAULT_GROUP_ID_PREFIX,
        doc="the consumer group is `<prefix>-<subscription>`; V2 only",
    )
    session_timeout_ms: int = argument(
        number(LEAST_SESSION_MS, MOST_SESSION_MS),
        default=10_000,
        doc="a consumer that is silent for this time counts as dead; 1 s to 30 min",
    )
    on_member_lost: OnMemberLost = argument(
        choice(OnMemberLost),
        default=OnMemberLost.LEASE,
        doc="`release`: what a consumer had leased is released when it has left the consumer group; V2 only",
    )
    redeliveries_topic: str = argument(
        _TOPIC, default=DEFAULT_REDELIVERIES_TOPIC, doc="announcements of redeliveries; V2 only"
    )
    cursors_topic: str = argument(_TOPIC, default=DEFAULT_CURSORS_TOPIC, doc="the cursors; V2 only")
    streams_topic: str = argument(
        _TOPIC, default=DEFAULT_STREAMS_TOPIC, doc="pauses and read-only partitions"
    )
    rescue_topic: str = argument(
        _TOPIC,
        default=DEFAULT_RESCUE_TOPIC,
        doc="where messages are read that retention has deleted, if the tracker has `rescueBefore`; V2 only",
    )
    tracker_timeout_ms: int = argument(
        _POSITIVE, default=60_000, doc="how long a consumer waits for a tracker; V2 only"
    )
    tracker: TrackerPlace = argument(
        choice(TrackerPlace),
        default=TrackerPlace.EXTERNAL,
        doc="`embedded`: the process runs a tracker too while a consumer is open; V2 only",
    )
    timeout_ms: int = argument(
        _POSITIVE, default=30_000, doc="how long a call waits for brokers that are away"
    )
    isolation: Isolation = argument(
        choice(Isolation),
        default=Isolation.READ_COMMITTED,
        doc="or `read_uncommitted`: read open and aborted transactions too",
    )
    delayed_delivery: bool = argument(
        true_or_false, default=True, doc="whether `deliverAt` and `deliverAfter` delay a message; V2 only"
    )
    fail_on_data_loss: bool = argument(
        true_or_false,
        default=True,
        doc="whether a consumer ends with an error when unacked messages are gone, or only logs the loss",
    )

    def __post_init__(self) -> None:
        check_arguments(self)
        kafka = KafkaOptions(self.kafka)
        if self.bootstrap_servers:
            if kafka.get("bootstrap.servers", self.bootstrap_servers) != self.bootstrap_servers:
                raise InvalidArgument(
                    "bootstrap_servers", self.bootstrap_servers, "kafka has a different bootstrap.servers"
                )
            kafka = KafkaOptions({**kafka, "bootstrap.servers": self.bootstrap_servers})
        check_brokers(kafka)
        object.__setattr__(self, "kafka", kafka)
        if self.tracker is TrackerPlace.EMBEDDED and self.marker_format is MarkerVersion.V1:
            raise InvalidArgument("tracker", self.tracker.value, "v1 markers need kafka-mq-go's tracker")
        if self.on_member_lost is OnMemberLost.RELEASE and self.marker_format is MarkerVersion.V1:
            raise InvalidArgument(
                "on_member_lost", self.on_member_lost.value, "v1 markers do not say who leased a message"
            )
        by_topic: dict[str, str] = {}
        for field in fields(self):
            if field.name.endswith("_topic"):
                topic = getattr(self, field.name)
                if by_topic.setdefault(topic, field.name) != field.name:
                    raise InvalidArgument(field.name, topic, f"{by_topic[topic]} is the same topic")

    def subscription_of(self, queue_id: str | None, subscription: str | None) -> str:
        """Return the given subscription, or else the queue id as the subscription name.

        >>> ServiceConfig(bootstrap_servers="b:9092", message_topic="jobs").subscription_of("mails", None)
        'mails'
        """
        named = queue_id if subscription is None else subscription
        if named is None:
            raise InvalidArgument(
                "subscription",
                None,
                "a queue needs an id, which also names its subscription, or a subscription",
            )
        if (why := why_no_subscription(named)) is not None:
            raise InvalidArgument("subscription", named, why)
        if self.marker_format is MarkerVersion.V2:
            why = why_no_dead_letters(DEFAULT_DEAD_LETTER_TOPIC, topic=self.message_topic, subscription=named)
            why = why or why_no_group(self.group_id_prefix, named, self.marker_topic)
            if why is not None:
                raise InvalidArgument("subscription", named, why)
        return named

    def group_of(self, subscription: str) -> str:
        """Return the consumer group of a subscription. With V1 markers it has kafka-mq-go's name."""
        if self.marker_format is MarkerVersion.V1:
            return _V1_GROUP + subscription
        return group_id(self.group_id_prefix, subscription)
