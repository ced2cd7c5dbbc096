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
    DEFAULT_RESCUE_TOPIC,
    DEFAULT_STREAMS_TOPIC,
    holds_dead_letters,
    why_no_dead_letters,
)
from spark_cursor_source.core.subscription_type import (
    DEFAULT_GROUP_ID_PREFIX,
    SubscriptionType,
    group_id,
    why_no_group,
)
from spark_cursor_source.errors import ConflictingOptions, InvalidOption
from spark_cursor_source.options import kinds
from spark_cursor_source.options.declare import (
    KAFKA_CLIENTS,
    SUBSCRIPTION,
    Option,
    keys_of,
    option,
    read_by,
    read_options,
)
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.marker_format import (
    MARKER_FORMAT,
    MarkerVersion,
    read_marker_version,
    require_one_topic,
)
from spark_cursor_source.options.reader import OptionReader, check_distinct
from spark_cursor_source.options.topics import (
    FROM_CURSOR,
    SELECTION,
    START_OF_SOURCE,
    Assign,
    StartingOffsets,
    Subscribe,
    SubscribePattern,
    TopicSelection,
    read_starting_offsets,
    require_selection,
)
from spark_cursor_source.options.tracker_place import TrackerPlace

LEAST_LEASE_MS = 1_000
MOST_LEASE_MS = 12 * 3_600_000
LEASE = kinds.duration(least_ms=LEAST_LEASE_MS, most_ms=MOST_LEASE_MS)
LEAST_SESSION_MS = 1_000
MOST_SESSION_MS = 30 * 60_000  #: brokers refuse longer session timeouts by default

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


class OnMemberLost(enum.StrEnum):
    """Fate of the leases of a member that has left the consumer group (option onMemberLost)."""

    LEASE = "lease"  #: they run out, because the member may only be slow
    RELEASE = "release"  #: they end at once, as in Pulsar


class Ordering(enum.StrEnum):
    """Order in which messages are delivered (option ordering)."""

    NONE = "none"
    KEY = (
        "key"  #: a message is delivered when all earlier ones of its key have ended, as in FIFO queues of SQS
    )


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

    #: Kafka client settings without the prefix ``kafka.``.
    kafka: KafkaOptions = field(repr=False, metadata=KAFKA_CLIENTS)
    topics: TopicSelection = field(metadata=read_by(require_selection, *SELECTION))
    subscription: str = field(metadata=SUBSCRIPTION)
    subscription_type: SubscriptionType = option(
        "subscriptionType",
        kinds.choice(SubscriptionType),
        default="exclusive",
        doc="or `failover`, `shared`, `key_shared`",
    )
    group_id_prefix: str = option(
        "groupIdPrefix",
        kinds.subscription,
        default=DEFAULT_GROUP_ID_PREFIX,
        doc="the consumer group is `<groupIdPrefix>-<subscription>`",
    )
    session_ms: int = option(
        "sessionTimeout",
        kinds.duration(least_ms=LEAST_SESSION_MS, most_ms=MOST_SESSION_MS),
        default="10s",
        doc="a query that is silent for this time counts as dead; 1s to 30m",
    )
    on_member_lost: OnMemberLost = option(
        "onMemberLost",
        kinds.choice(OnMemberLost),
        default="lease",
        doc="`release`: what a query had leased is released when it has left the consumer group",
    )
    ordering: Ordering = option(
        "ordering",
        kinds.choice(Ordering),
        default="none",
        doc="`key`: a message waits until all earlier messages of its key have ended",
    )
    queue_id: str | None = option(
        "queueId",
        kinds.text,
        default=None,
        absent="all",
        doc="only records with this key, where several queues share a topic",
    )
    starting_offsets: StartingOffsets = field(
        default=FROM_CURSOR, metadata=read_by(read_starting_offsets, *START_OF_SOURCE)
    )
    max_offsets_per_trigger: int | None = option(
        "maxOffsetsPerTrigger",
        kinds.integer(),
        default=None,
        absent="no limit",
        doc="most messages in a batch, redeliveries included",
    )
    max_outstanding: int | None = option(
        "maxOutstanding",
        kinds.integer(),
        default=None,
        absent="no limit",
        doc="most outstanding messages: leased, waiting to come back, or held",
    )
    min_offsets_per_trigger: int | None = option(
        "minOffsetsPerTrigger",
        kinds.integer(),
        default=None,
        absent="no minimum",
        doc="a batch waits until so many messages are there",
    )
    max_trigger_delay_ms: int = option(
        "maxTriggerDelay", kinds.duration(), default="15m", doc="longest wait for `minOffsetsPerTrigger`"
    )
    min_partitions: int | None = option(
        "minPartitions", kinds.integer(), default=None, doc="at least so many Spark partitions a batch"
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition", kinds.integer(), default=None, doc="most records in a Spark partition"
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        kinds.boolean,
        default="true",
        doc="whether the query fails when unacked messages are gone",
    )
    include_headers: bool = option(
        "includeHeaders", kinds.boolean, default="false", doc="`true` adds the column `headers`"
    )
    delayed_delivery: bool = option(
        "delayedDelivery",
        kinds.boolean,
        default="true",
        doc="whether the headers `deliverAt` and `deliverAfter` delay a message",
    )
    isolation: Isolation = option(
        "isolation",
        kinds.choice(Isolation),
        default="read_committed",
        doc="or `read_uncommitted`: read open and aborted transactions too",
    )
    lease_ms: int = option(
        "leaseTimeout",
        LEASE,
        default="60s",
        doc="a delivered message comes back after this time without an ack; 1s to 12h",
    )
    tracker_timeout_ms: int = option(
        "trackerTimeout",
        kinds.duration(least_ms=1),
        default="60s",
        doc="how long the query waits for a tracker to answer",
    )
    tracker: TrackerPlace = option(
        "tracker",
        kinds.choice(TrackerPlace),
        default="external",
        doc="`embedded`: the query runs a tracker too, for a quickstart, a notebook or a test",
    )
    fail_without_tracker_ms: int | None = option(
        "failWithoutTracker",
        kinds.duration(least_ms=1),
        default=None,
        absent="off",
        doc="fail the query when no tracker has read a marker for this time, for example `10m`",
    )
    ack_mode: AckMode = option(
        "ackMode",
        kinds.choice(AckMode),
        default="individual",
        doc="who acks: `individual` (the sink), `batch` or `cumulative` (the source)",
    )
    marker_version: MarkerVersion = field(
        default=MarkerVersion.V2,
        metadata=read_by(
            read_marker_version,
            Option(MARKER_FORMAT, "`v1`: the tracker is kafka-mq-go's", default="v2"),
        ),
    )
    markers_topic: str = option(
        "markersTopic", kinds.topic, default=DEFAULT_MARKERS_TOPIC, doc="leases and acks"
    )
    redeliveries_topic: str = option(
        "redeliveriesTopic",
        kinds.topic,
        default=DEFAULT_REDELIVERIES_TOPIC,
        doc="announcements of messages that are delivered again",
    )
    cursors_topic: str = option(
        "cursorsTopic", kinds.topic, default=DEFAULT_CURSORS_TOPIC, doc="the cursors of all subscriptions"
    )
    streams_topic: str = option(
        "streamsTopic",
        kinds.topic,
        default=DEFAULT_STREAMS_TOPIC,
        doc="pauses and read-only partitions of streams, set by the [plain client](client.md)",
    )
    rescue_topic: str = option(
        "rescueTopic",
        kinds.topic,
        default=DEFAULT_RESCUE_TOPIC,
        doc="where messages are read that retention has deleted, if the tracker has `rescueBefore`",
    )
    dead_letter_topic: str = option(
        "deadLetterTopic",
        kinds.dead_letter_template,
        default=DEFAULT_DEAD_LETTER_TOPIC,
        doc="where the view `deadletters` looks",
    )

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse and check the options of ``spark.readStream``. An unknown option is an error."""
        parsed = read_options(cls, OptionReader(options, known=SOURCE_OPTIONS, elsewhere=_ELSEWHERE))
        parsed._check_together()
        return parsed

    @property
    def group(self) -> str:
        """Consumer group of the subscription."""
        return group_id(self.group_id_prefix, self.subscription)

    @property
    def keeps_keys_together(self) -> bool:
        """True if all messages of a key in a batch go to one task, in offset order."""
        return self.ordering is Ordering.KEY or self.subscription_type is SubscriptionType.KEY_SHARED

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
    def control_topics(self) -> tuple[str, ...]:
        """Names of the markers, redeliveries, cursors, streams and rescue topics, in this order."""
        return (
            self.markers_topic,
            self.redeliveries_topic,
            self.cursors_topic,
            self.streams_topic,
            self.rescue_topic,
        )

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
            "rescueTopic": self.rescue_topic,
        }
        check_distinct(control | {"deadLetterTopic": self.dead_letter_topic})
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ConflictingOptions(
                ("minOffsetsPerTrigger", "maxOffsetsPerTrigger"),
                f"the minimum {least} is above the maximum {most}",
                "raise maxOffsetsPerTrigger or lower minOffsetsPerTrigger",
            )
        if (why := why_no_group(self.group_id_prefix, self.subscription, self.markers_topic)) is not None:
            raise ConflictingOptions(("subscription", "groupIdPrefix"), why, "choose another name")
        if self.marker_version is MarkerVersion.V1:
            self._check_v1()
        if not self.subscription_type.is_sole:
            self._check_shared()
        if self.ordering is Ordering.KEY:
            self._check_ordered()
        if isinstance(self.topics, Subscribe):
            self.check_names(self.topics.topics)
        if isinstance(self.topics, Assign):
            self.check_names({topic for topic, _ in self.topics.partitions})
        if isinstance(self.topics, SubscribePattern):
            return
        # A queue topic that is also the markers topic would feed itself forever.
        selection = "subscribe" if isinstance(self.topics, Subscribe) else "assign"
        for key, topic in (control | {"deadLetterTopic": self.dead_letter_topic}).items():
            if self.topics.matches(topic):
                why = f"both name the topic '{topic}'"
                raise ConflictingOptions((selection, key), why, "read another topic")

    def _check_shared(self) -> None:
        kind = self.subscription_type.value
        if self.ack_mode is AckMode.CUMULATIVE:
            raise ConflictingOptions(
                ("subscriptionType", "ackMode"),
                f"with type {kind}, messages below a position may belong to other queries",
                "ack individually or by batch, or give subscriptionType=exclusive or failover",
            )
        if isinstance(self.topics, Assign):
            raise ConflictingOptions(
                ("subscriptionType", "assign"),
                f"with type {kind}, the consumer group assigns the partitions",
                "give subscribe or subscribePattern",
            )
        if self.subscription_type is SubscriptionType.KEY_SHARED and self.max_records_per_partition:
            raise ConflictingOptions(
                ("subscriptionType", "maxRecordsPerPartition"),
                "all messages of one key go to one task",
                "give minPartitions or maxOffsetsPerTrigger",
            )

    def _check_ordered(self) -> None:
        if self.subscription_type is SubscriptionType.SHARED:
            raise ConflictingOptions(
                ("ordering", "subscriptionType"),
                "the queries of type shared handle the messages of a key side by side",
                "give subscriptionType=key_shared, exclusive or failover",
            )
        if self.ack_mode is AckMode.CUMULATIVE:
            raise ConflictingOptions(
                ("ordering", "ackMode"),
                "a cumulative ack would also end messages that wait behind another one",
                "give ackMode=individual or batch",
            )
        if self.max_records_per_partition:
            raise ConflictingOptions(
                ("ordering", "maxRecordsPerPartition"),
                "all messages of one key go to one task",
                "give minPartitions or maxOffsetsPerTrigger",
            )

    def _check_v1(self) -> None:
        require_one_topic(self.topics)
        if not self.subscription_type.is_sole:
            raise ConflictingOptions(
                (MARKER_FORMAT, "subscriptionType"),
                "the tracker of kafka-mq-go stores no read position for another query",
                "give subscriptionType=exclusive or failover, or markerFormat=v2",
            )
        if self.on_member_lost is OnMemberLost.RELEASE:
            raise ConflictingOptions(
                (MARKER_FORMAT, "onMemberLost"),
                "the tracker of kafka-mq-go does not know who leased a message",
                "give onMemberLost=lease, or markerFormat=v2",
            )
        if self.ordering is Ordering.KEY:
            raise ConflictingOptions(
                (MARKER_FORMAT, "ordering"),
                "the tracker of kafka-mq-go does not know which message waits for another one",
                "leave ordering out, or give markerFormat=v2",
            )
        if self.ack_mode is AckMode.CUMULATIVE:
            raise ConflictingOptions(
                (MARKER_FORMAT, "ackMode"),
                "v1 markers end one message each",
                "give ackMode=batch or individual",
            )


SOURCE_OPTIONS = keys_of(SourceOptions)
