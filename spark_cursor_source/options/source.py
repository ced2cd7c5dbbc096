"""Options of the streaming source. They are parsed once."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.checkpoint_owner import CheckpointOwner
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_DEAD_LETTER_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
    DEFAULT_STREAMS_TOPIC,
    holds_dead_letters,
    why_no_dead_letters,
)
from spark_cursor_source.core.subscription_type import (
    DEFAULT_GROUP_ID_PREFIX,
    SubscriptionType,
    group_id,
    tracker_group,
)
from spark_cursor_source.errors import ConflictingOptions, InvalidOption
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.marker_format import (
    MARKER_FORMAT,
    MarkerVersion,
    read_marker_version,
    require_one_topic,
)
from spark_cursor_source.options.reader import OptionReader, check_distinct, check_subscription
from spark_cursor_source.options.topics import (
    FROM_CURSOR,
    SELECTIONS,
    STARTS,
    Assign,
    StartingOffsets,
    Subscribe,
    SubscribePattern,
    TopicSelection,
    read_starting_offsets,
    require_selection,
)

SOURCE_OPTIONS = (
    *SELECTIONS,
    "subscription",
    "subscriptionType",
    "groupIdPrefix",
    "sessionTimeout",
    "queueId",
    *STARTS,
    "maxOffsetsPerTrigger",
    "maxOutstanding",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "delayedDelivery",
    "isolation",
    "leaseTimeout",
    "trackerTimeout",
    "failWithoutTracker",
    "ackMode",
    MARKER_FORMAT,
    "markersTopic",
    "redeliveriesTopic",
    "cursorsTopic",
    "streamsTopic",
    "deadLetterTopic",
)
LEAST_LEASE_MS = 1_000
MOST_LEASE_MS = 12 * 3_600_000
DEFAULT_LEASE_MS = 60_000
DEFAULT_TRACKER_TIMEOUT_MS = 60_000
LEAST_SESSION_MS = 1_000
MOST_SESSION_MS = 30 * 60_000  #: brokers refuse longer session timeouts by default
DEFAULT_SESSION_MS = 10_000
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000

_BATCH_READ = "it belongs to a batch read, spark.read"
_WRITE = "it belongs to a batch write, df.write, or to cursorq.ack and its like"
_ELSEWHERE = {
    "view": _BATCH_READ,
    "endingoffsets": _BATCH_READ,
    "action": _WRITE,
    "delay": _WRITE,
    "reason": _WRITE,
    "lease": _WRITE,
    "topic": "messages are appended to it by df.write; the source reads what subscribe names",
}


class Isolation(enum.StrEnum):
    """Isolation level of reads (option isolation).

    Read uncommitted includes open and aborted transactions.
    """

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class AckMode(enum.StrEnum):
    """Component that acknowledges messages (option ackMode)."""

    INDIVIDUAL = "individual"  #: the sink acks each message
    BATCH = "batch"  #: the source acks all messages of a batch after Spark has committed it
    #: the source acks everything up to the end of a batch after Spark has committed it
    CUMULATIVE = "cumulative"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a streaming query on a queue.

    >>> options = SourceOptions.parse(
    ...     {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders", "subscription": "billing"}
    ... )
    >>> options.topics, options.lease_ms, options.ack_mode.value
    (Subscribe(topics=('orders',)), 60000, 'individual')
    """

    #: Kafka client settings without the prefix (options kafka.*, kafka.config.file as config.file).
    kafka: KafkaOptions = field(repr=False)
    #: Queue topics that the query reads (options subscribe, subscribePattern, assign).
    topics: TopicSelection
    #: Name of the subscription. Each subscription has its own acks and cursors (option subscription).
    subscription: str
    #: Queries of the subscription that receive messages. Default: exclusive (option subscriptionType).
    subscription_type: SubscriptionType = SubscriptionType.EXCLUSIVE
    #: Prefix of the consumer group ``<prefix>-<subscription>``. Default: cursorq (option groupIdPrefix).
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX
    #: Session timeout in ms, 1 s to 30 min. A query without a heartbeat for this time is considered dead.
    #: Default: 10 s (option sessionTimeout).
    session_ms: int = DEFAULT_SESSION_MS
    #: Record key of the queue, for topics that several queues share. Default: all records (option queueId).
    queue_id: str | None = None
    #: Start position of a new query. Default: the stored cursor, or else the earliest record
    #: (options startingOffsets, startingTimestamp, startingOffsetsByTimestamp).
    starting_offsets: StartingOffsets = FROM_CURSOR
    #: Maximum number of offsets in a batch, over all partitions. Default: no limit
    #: (option maxOffsetsPerTrigger).
    max_offsets_per_trigger: int | None = None
    #: Maximum number of outstanding messages, leased or waiting for redelivery. At the limit, no new message
    #: is leased. Default: no limit (option maxOutstanding).
    max_outstanding: int | None = None
    #: Minimum number of offsets that a batch waits for. Default: no minimum (option minOffsetsPerTrigger).
    min_offsets_per_trigger: int | None = None
    #: Maximum wait for minOffsetsPerTrigger, in ms. Default: 15 min (option maxTriggerDelay).
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    #: Minimum number of Spark partitions in a batch. Default: no minimum (option minPartitions).
    min_partitions: int | None = None
    #: Maximum number of records in a Spark partition. Default: no limit (option maxRecordsPerPartition).
    max_records_per_partition: int | None = None
    #: True: the query fails if unacked records are deleted. False: it logs the loss and continues.
    #: Default: true (option failOnDataLoss).
    fail_on_data_loss: bool = True
    #: Adds a column ``headers``. Default: false (option includeHeaders).
    include_headers: bool = False
    #: Delays messages by their headers deliverAt and deliverAfter. Default: true (option delayedDelivery).
    delayed_delivery: bool = True
    #: Isolation level. With read_uncommitted, records of open and aborted transactions are read too.
    #: Default: read_committed (option isolation).
    isolation: Isolation = Isolation.READ_COMMITTED
    #: Lease of a delivered message in ms, 1 s to 12 h. Without an ack the message is redelivered after it.
    #: Default: 60 s (option leaseTimeout).
    lease_ms: int = DEFAULT_LEASE_MS
    #: Maximum wait for a response of the tracker, in ms. Default: 60 s (option trackerTimeout).
    tracker_timeout_ms: int = DEFAULT_TRACKER_TIMEOUT_MS
    #: Maximum time in ms for which markers exist that no tracker reads. After it the query fails.
    #: Default: None, the query never fails for this reason (option failWithoutTracker).
    fail_without_tracker_ms: int | None = None
    #: Component that acknowledges messages. Default: individual, the sink acks (option ackMode).
    ack_mode: AckMode = AckMode.INDIVIDUAL
    #: Marker format of the tracker. v1 is the format of kafka-mq-go. Default: v2 (option markerFormat).
    marker_version: MarkerVersion = MarkerVersion.V2
    #: Topic of the markers, Starts and Ends. Default: __cursorq_markers (option markersTopic).
    markers_topic: str = DEFAULT_MARKERS_TOPIC
    #: Topic of redelivery announcements. Default: __cursorq_redeliveries (option redeliveriesTopic).
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC
    #: Topic of the cursors. Default: __cursors (option cursorsTopic).
    cursors_topic: str = DEFAULT_CURSORS_TOPIC
    #: Topic that records which partitions are paused. Default: __cursorq_streams (option streamsTopic).
    streams_topic: str = DEFAULT_STREAMS_TOPIC
    #: Template of the dead-letter topic name. Default: {topic}-{subscription}-DLQ (option deadLetterTopic).
    dead_letter_topic: str = DEFAULT_DEAD_LETTER_TOPIC

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse and check the options of ``spark.readStream``. An unknown option is an error."""
        reader = OptionReader(options, known=SOURCE_OPTIONS, elsewhere=_ELSEWHERE)
        parsed = cls(
            kafka=reader.brokers(),
            topics=require_selection(reader),
            subscription=reader.require_subscription(),
            subscription_type=reader.choice(
                "subscriptionType", SubscriptionType, default=SubscriptionType.EXCLUSIVE
            ),
            group_id_prefix=check_subscription(
                "groupIdPrefix", reader.text("groupIdPrefix") or DEFAULT_GROUP_ID_PREFIX
            ),
            session_ms=reader.duration_ms(
                "sessionTimeout",
                default_ms=DEFAULT_SESSION_MS,
                least_ms=LEAST_SESSION_MS,
                most_ms=MOST_SESSION_MS,
            ),
            queue_id=reader.text("queueId"),
            starting_offsets=read_starting_offsets(reader, default=FROM_CURSOR),
            max_offsets_per_trigger=reader.integer("maxOffsetsPerTrigger"),
            max_outstanding=reader.integer("maxOutstanding"),
            min_offsets_per_trigger=reader.integer("minOffsetsPerTrigger"),
            max_trigger_delay_ms=reader.duration_ms(
                "maxTriggerDelay", default_ms=DEFAULT_MAX_TRIGGER_DELAY_MS
            ),
            min_partitions=reader.integer("minPartitions"),
            max_records_per_partition=reader.integer("maxRecordsPerPartition"),
            fail_on_data_loss=reader.boolean("failOnDataLoss", default=True),
            include_headers=reader.boolean("includeHeaders", default=False),
            delayed_delivery=reader.boolean("delayedDelivery", default=True),
            isolation=reader.choice("isolation", Isolation, default=Isolation.READ_COMMITTED),
            lease_ms=read_lease_ms(reader),
            tracker_timeout_ms=reader.duration_ms(
                "trackerTimeout", default_ms=DEFAULT_TRACKER_TIMEOUT_MS, least_ms=1
            ),
            fail_without_tracker_ms=reader.duration_ms("failWithoutTracker", default_ms=0, least_ms=1)
            or None,
            ack_mode=reader.choice("ackMode", AckMode, default=AckMode.INDIVIDUAL),
            marker_version=read_marker_version(reader),
            markers_topic=reader.topic("markersTopic", default=DEFAULT_MARKERS_TOPIC),
            redeliveries_topic=reader.topic("redeliveriesTopic", default=DEFAULT_REDELIVERIES_TOPIC),
            cursors_topic=reader.topic("cursorsTopic", default=DEFAULT_CURSORS_TOPIC),
            streams_topic=reader.topic("streamsTopic", default=DEFAULT_STREAMS_TOPIC),
            dead_letter_topic=reader.dead_letter_template(),
        )
        parsed._check_together()
        return parsed

    @property
    def group(self) -> str:
        """Consumer group of the subscription."""
        return group_id(self.group_id_prefix, self.subscription)

    @property
    def checkpoint_owner(self) -> CheckpointOwner:
        """Owner of the positions in the query's checkpoint.

        With V1 markers it omits redeliveries and cursors topics.
        """
        owner = {"subscription": self.subscription, "markersTopic": self.markers_topic}
        if self.marker_version is MarkerVersion.V2:
            owner |= {"redeliveriesTopic": self.redeliveries_topic, "cursorsTopic": self.cursors_topic}
        return CheckpointOwner(owner)

    @property
    def control_topics(self) -> tuple[str, str, str, str]:
        """Names of the markers, redeliveries, cursors and streams topics, in this order."""
        return (self.markers_topic, self.redeliveries_topic, self.cursors_topic, self.streams_topic)

    def selects(self, topic: str) -> bool:
        """True if a topic of this name is a queue of this query.

        A pattern does not match control topics or the dead-letter topics of its own queues. A query that
        reads its own dead letters would never end.
        """
        if topic in self.control_topics or not self.topics.matches(topic):
            return False
        if not isinstance(self.topics, SubscribePattern):
            return True
        return not holds_dead_letters(self.dead_letter_topic, topic, self.topics.matches)

    def check_names(self, topics: Iterable[str]) -> None:
        """Check that the names of the dead-letter topics of these topics are valid.

        Raises:
            InvalidOption: the names of a topic and of the subscription are too long together.
        """
        if self.marker_version is MarkerVersion.V1:
            return
        for topic in sorted(topics):
            why = why_no_dead_letters(self.dead_letter_topic, topic=topic, subscription=self.subscription)
            if why is not None:
                raise InvalidOption(
                    "subscription",
                    self.subscription,
                    why,
                    "choose a shorter name, or give deadLetterTopic as the tracker has it",
                )

    def _check_together(self) -> None:
        control = {
            "markersTopic": self.markers_topic,
            "redeliveriesTopic": self.redeliveries_topic,
            "cursorsTopic": self.cursors_topic,
            "streamsTopic": self.streams_topic,
        }
        check_distinct(control | {"deadLetterTopic": self.dead_letter_topic})
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ConflictingOptions(
                ("minOffsetsPerTrigger", "maxOffsetsPerTrigger"),
                f"the least, {least}, is above the most, {most}",
                "raise maxOffsetsPerTrigger or lower minOffsetsPerTrigger",
            )
        if self.group == tracker_group(self.markers_topic):
            raise ConflictingOptions(
                ("subscription", "groupIdPrefix"),
                f"the consumer group would be {self.group}, which is the tracker's of this markers topic",
                "choose another name",
            )
        if self.marker_version is MarkerVersion.V1:
            self._check_v1()
        if not self.subscription_type.is_sole:
            self._check_shared()
        if isinstance(self.topics, Subscribe):
            self.check_names(self.topics.topics)
        if isinstance(self.topics, Assign):
            self.check_names({topic for topic, _ in self.topics.partitions})
        if isinstance(self.topics, SubscribePattern):
            return
        # A queue topic that is also the markers topic would feed itself forever.
        selection = "subscribe" if isinstance(self.topics, Subscribe) else "assign"
        for option, topic in (control | {"deadLetterTopic": self.dead_letter_topic}).items():
            if self.topics.matches(topic):
                why = f"both name the topic '{topic}'"
                raise ConflictingOptions((selection, option), why, "read another topic")

    def _check_shared(self) -> None:
        kind = self.subscription_type.value
        if self.ack_mode is AckMode.CUMULATIVE:
            raise ConflictingOptions(
                ("subscriptionType", "ackMode"),
                f"the messages below a position are not all this query's where the type is {kind}",
                "ack individually or by batch, or give subscriptionType=exclusive or failover",
            )
        if isinstance(self.topics, Assign):
            raise ConflictingOptions(
                ("subscriptionType", "assign"),
                f"the consumer group decides which partitions are whose where the type is {kind}",
                "give subscribe or subscribePattern",
            )
        if self.subscription_type is SubscriptionType.KEY_SHARED and self.max_records_per_partition:
            raise ConflictingOptions(
                ("subscriptionType", "maxRecordsPerPartition"),
                "the messages of one key go to one task, however many they are",
                "give minPartitions or maxOffsetsPerTrigger",
            )

    def _check_v1(self) -> None:
        require_one_topic(self.topics)
        if not self.subscription_type.is_sole:
            raise ConflictingOptions(
                (MARKER_FORMAT, "subscriptionType"),
                "kafka-mq-go's tracker keeps no read position that one query could hand to another",
                "give subscriptionType=exclusive or failover, or markerFormat=v2",
            )
        if self.ack_mode is AckMode.CUMULATIVE:
            raise ConflictingOptions(
                (MARKER_FORMAT, "ackMode"),
                "v1 markers end one message each",
                "give ackMode=batch or individual",
            )


def read_lease_ms(reader: OptionReader) -> int:
    return reader.duration_ms(
        "leaseTimeout", default_ms=DEFAULT_LEASE_MS, least_ms=LEAST_LEASE_MS, most_ms=MOST_LEASE_MS
    )
