"""Options of a batch read, ``spark.read.format("cursorq")``."""

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
    """View of a batch read (option view)."""

    MESSAGES = "messages"  #: any range of the queue topics, without leases and without moving a cursor
    CURSORS = "cursors"  #: the cursor of every subscription partition
    STATS = "stats"  #: positions of whole subscriptions and their readers
    OUTSTANDING = "outstanding"  #: one row per unacked message
    DEADLETTERS = "deadletters"  #: the complete dead letters
    MARKERS = "markers"  #: the decoded markers


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """View, topics and subscription of a batch read.

    Source options are accepted. Options that control leases and pacing are ignored.

    >>> options = {"kafka.bootstrap.servers": "b:9092", "view": "cursors", "leaseTimeout": "5m"}
    >>> view = ViewOptions.parse(options)
    >>> view.view.value, view.topics, view.subscription
    ('cursors', None, None)
    """

    #: Kafka client settings without the prefix (options kafka.*, kafka.config.file as config.file).
    kafka: KafkaOptions = field(repr=False)
    #: View that is read. Default: messages (option view).
    view: View = View.MESSAGES
    #: Topics of the view. Default: None, all topics. The view messages requires them
    #: (options subscribe, subscribePattern, assign).
    topics: TopicSelection | None = None
    #: Subscription of the view. Default: None, all subscriptions (option subscription).
    subscription: str | None = None
    #: Record key of the queue, for the view messages. Default: all records (option queueId).
    queue_id: str | None = None
    #: Start of the view messages. Default: the earliest record
    #: (options startingOffsets, startingTimestamp, startingOffsetsByTimestamp).
    starting_offsets: StartingOffsets = FROM_EARLIEST
    #: End of the view messages. Default: the end of the log (option endingOffsets).
    ending_offsets: EndingOffsets = TO_LATEST
    #: Minimum number of Spark partitions. Default: no minimum (option minPartitions).
    min_partitions: int | None = None
    #: Maximum number of records in a Spark partition. Default: no limit (option maxRecordsPerPartition).
    max_records_per_partition: int | None = None
    #: Fails the read if the requested range no longer exists. Default: true (option failOnDataLoss).
    fail_on_data_loss: bool = True
    #: Adds a column ``headers`` to messages. Default: false (option includeHeaders).
    include_headers: bool = False
    #: Isolation level. With read_uncommitted, records of open and aborted transactions are read too.
    #: Default: read_committed (option isolation).
    isolation: Isolation = Isolation.READ_COMMITTED
    #: Topic of the markers, Starts and Ends. Default: __cursorq_markers (option markersTopic).
    markers_topic: str = DEFAULT_MARKERS_TOPIC
    #: Topic of redelivery announcements. Default: __cursorq_redeliveries (option redeliveriesTopic).
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC
    #: Topic of the cursors. Default: __cursors (option cursorsTopic).
    cursors_topic: str = DEFAULT_CURSORS_TOPIC
    #: Prefix of the consumer groups ``<prefix>-<subscription>``. Default: cursorq (option groupIdPrefix).
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX
    #: Template of the dead-letter topic name. Default: {topic}-{subscription}-DLQ (option deadLetterTopic).
    dead_letter_topic: str = DEFAULT_DEAD_LETTER_TOPIC

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ViewOptions:
        """Parse the options of ``spark.read``. Source options are accepted too, and used where they apply."""
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
    # A view has no cursor. Where the source would resume at its cursor, the view starts at the beginning.
    return FROM_EARLIEST if isinstance(start, FromCursor) else start
