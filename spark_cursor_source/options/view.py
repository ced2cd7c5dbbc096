"""The options of a batch read, ``spark.read.format("cursorq")``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_DEAD_LETTER_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
    is_literal,
)
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX
from spark_cursor_source.errors import InvalidOption, MissingOption
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.reader import OptionReader, check_distinct, check_subscription
from spark_cursor_source.options.source import SOURCE_OPTIONS, Isolation
from spark_cursor_source.options.topics import (
    FROM_EARLIEST,
    LATEST,
    TO_LATEST,
    EndingOffsets,
    FromCursor,
    FromLatest,
    FromPositions,
    StartingOffsets,
    TopicSelection,
    read_ending_offsets,
    read_selection,
    read_starting_offsets,
    require_selection,
)

VIEW_OPTIONS = (*SOURCE_OPTIONS, "view", "endingOffsets")

_WRITE = "it belongs to a batch write, df.write, or to cursorq.ack and its like"
_ELSEWHERE = {"action": _WRITE, "delay": _WRITE, "reason": _WRITE, "lease": _WRITE}


class View(enum.StrEnum):
    """What a batch read shows (option view)."""

    MESSAGES = "messages"  #: any range of the queue topics: no lease, moves nothing
    CURSORS = "cursors"  #: where every subscription stands
    STATS = "stats"  #: the same of whole subscriptions, and who reads them
    OUTSTANDING = "outstanding"  #: one row per message that is not acked
    DEADLETTERS = "deadletters"  #: the dead letters, whole
    MARKERS = "markers"  #: the markers, decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """What a batch read shows, and of which topics and subscription.

    The options of a source can be handed over as they are; those that lease and pace are not used.

    >>> options = {"kafka.bootstrap.servers": "b:9092", "view": "cursors", "leaseTimeout": "5m"}
    >>> view = ViewOptions.parse(options)
    >>> view.view.value, view.topics, view.subscription
    ('cursors', None, None)
    """

    #: options of the Kafka clients, without the prefix (options kafka.*, kafka.config.file as config.file)
    kafka: KafkaOptions = field(repr=False)
    #: what is shown (option view)
    view: View = View.MESSAGES
    #: of these topics, None for all; never None for messages (options subscribe, subscribePattern, assign)
    topics: TopicSelection | None = None
    #: of this subscription, None for all (option subscription)
    subscription: str | None = None
    #: only records with this key, for messages (option queueId)
    queue_id: str | None = None
    #: first record of messages (options startingOffsets, startingTimestamp, startingOffsetsByTimestamp)
    starting_offsets: StartingOffsets = FROM_EARLIEST
    #: end of messages (option endingOffsets)
    ending_offsets: EndingOffsets = TO_LATEST
    #: at least this many Spark partitions (option minPartitions)
    min_partitions: int | None = None
    #: most records of a Spark partition (option maxRecordsPerPartition)
    max_records_per_partition: int | None = None
    #: fail when the range asked for is not there any more (option failOnDataLoss)
    fail_on_data_loss: bool = True
    #: whether messages have a column headers (option includeHeaders)
    include_headers: bool = False
    #: whether records of aborted transactions are read (option isolation)
    isolation: Isolation = Isolation.READ_COMMITTED
    #: topic of Starts and Ends (option markersTopic)
    markers_topic: str = DEFAULT_MARKERS_TOPIC
    #: topic of messages that are due again, by reference (option redeliveriesTopic)
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC
    #: topic of the cursors (option cursorsTopic)
    cursors_topic: str = DEFAULT_CURSORS_TOPIC
    #: the consumer group of a subscription is this, a dash and its name (option groupIdPrefix)
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX
    #: template of the topic of dead letters (option deadLetterTopic)
    dead_letter_topic: str = DEFAULT_DEAD_LETTER_TOPIC

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ViewOptions:
        """The options of ``spark.read``; source options are taken too, and used where they mean something."""
        reader = OptionReader(options, known=VIEW_OPTIONS, elsewhere=_ELSEWHERE)
        view = reader.choice("view", View, default=View.MESSAGES)
        of_messages = view is View.MESSAGES
        parsed = cls(
            kafka=reader.brokers(),
            view=view,
            topics=require_selection(reader) if of_messages else read_selection(reader),
            subscription=reader.subscription(),
            queue_id=reader.text("queueId"),
            starting_offsets=_read_start(reader) if of_messages else FROM_EARLIEST,
            ending_offsets=read_ending_offsets(reader),
            min_partitions=reader.integer("minPartitions"),
            max_records_per_partition=reader.integer("maxRecordsPerPartition"),
            fail_on_data_loss=reader.boolean("failOnDataLoss", default=True),
            include_headers=reader.boolean("includeHeaders", default=False),
            isolation=reader.choice("isolation", Isolation, default=Isolation.READ_COMMITTED),
            markers_topic=reader.topic("markersTopic", default=DEFAULT_MARKERS_TOPIC),
            redeliveries_topic=reader.topic("redeliveriesTopic", default=DEFAULT_REDELIVERIES_TOPIC),
            cursors_topic=reader.topic("cursorsTopic", default=DEFAULT_CURSORS_TOPIC),
            group_id_prefix=check_subscription(
                "groupIdPrefix", reader.text("groupIdPrefix") or DEFAULT_GROUP_ID_PREFIX
            ),
            dead_letter_topic=reader.dead_letter_template(),
        )
        check_distinct(
            {
                "markersTopic": parsed.markers_topic,
                "redeliveriesTopic": parsed.redeliveries_topic,
                "cursorsTopic": parsed.cursors_topic,
                "deadLetterTopic": parsed.dead_letter_topic,
            }
        )
        if view is View.DEADLETTERS:
            parsed._check_dead_letters()
        return parsed

    def _check_dead_letters(self) -> None:
        if is_literal(self.dead_letter_topic):
            return
        next_move = "give it, or name the topic of the dead letters in deadLetterTopic"
        if "{topic}" in self.dead_letter_topic and self.topics is None:
            raise MissingOption("subscribe", next_move)
        if "{subscription}" in self.dead_letter_topic and self.subscription is None:
            raise MissingOption("subscription", next_move)


def _read_start(reader: OptionReader) -> StartingOffsets:
    start = read_starting_offsets(reader, default=FROM_EARLIEST)
    to_latest = isinstance(start, FromPositions) and any(at == LATEST for _, _, at in start.positions)
    if isinstance(start, FromLatest) or to_latest:
        value = reader.text("startingOffsets")
        raise InvalidOption(
            "startingOffsets", value, "a batch read from latest is empty", "give an earlier start"
        )
    # A view has no cursor of its own: where the source would go on, it shows the topic from the beginning.
    return FROM_EARLIEST if isinstance(start, FromCursor) else start
