"""Options of a batch read, ``spark.read.format("cursorq")``."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.names import is_literal
from spark_cursor_source.errors import ConflictingOptions, InvalidOption, MissingOption
from spark_cursor_source.options import kinds
from spark_cursor_source.options.declare import (
    KAFKA_CLIENTS,
    Option,
    keys_of,
    option,
    read_by,
    read_option,
    read_options,
    same_option,
)
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.reader import OptionReader, check_distinct
from spark_cursor_source.options.source import SOURCE_OPTIONS, Isolation, SourceOptions
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


def _is_of_messages(reader: OptionReader) -> bool:
    return read_option(ViewOptions, "view", reader) is View.MESSAGES


def _read_topics(reader: OptionReader) -> TopicSelection | None:
    return require_selection(reader) if _is_of_messages(reader) else read_selection(reader)


def _read_start(reader: OptionReader) -> StartingOffsets:
    if not _is_of_messages(reader):
        return FROM_EARLIEST
    start = read_starting_offsets(reader, default=FROM_EARLIEST)
    to_latest = isinstance(start, FromPositions) and any(at == LATEST for _, _, at in start.positions)
    if isinstance(start, FromLatest) or to_latest:
        value = reader.text("startingOffsets")
        raise InvalidOption(
            "startingOffsets", value, "a batch read from latest is empty", "give an earlier start"
        )
    # A view has no cursor. Where the source would resume at its cursor, the view starts at the beginning.
    return FROM_EARLIEST if isinstance(start, FromCursor) else start


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """View, topics and subscription of a batch read.

    Source options are accepted. Options that control leases and pacing are ignored.

    >>> options = {"kafka.bootstrap.servers": "b:9092", "view": "cursors", "leaseTimeout": "5m"}
    >>> view = ViewOptions.parse(options)
    >>> view.view.value, view.topics, view.subscription
    ('cursors', None, None)
    """

    view: View = option("view", kinds.choice(View), default="messages", doc="which view")
    #: Kafka client settings without the prefix ``kafka.``.
    kafka: KafkaOptions = field(repr=False, metadata=KAFKA_CLIENTS)
    topics: TopicSelection | None = field(
        default=None,
        metadata=read_by(
            _read_topics,
            Option("subscribe", "topics of the view; `messages` needs a selection of topics", absent="all"),
            Option("subscribePattern", "pattern of the topics"),
            Option("assign", "topic partitions"),
        ),
    )
    subscription: str | None = option(
        "subscription", kinds.subscription, default=None, absent="all", doc="only this subscription"
    )
    queue_id: str | None = same_option(SourceOptions, "queue_id")
    starting_offsets: StartingOffsets = field(
        default=FROM_EARLIEST,
        metadata=read_by(
            _read_start,
            Option("startingOffsets", "start of `messages`", default="earliest"),
            Option("startingTimestamp", "start of `messages` as an instant, in milliseconds since 1970"),
            Option("startingOffsetsByTimestamp", "the same for each partition, as JSON"),
        ),
    )
    ending_offsets: EndingOffsets = field(
        default=TO_LATEST,
        metadata=read_by(
            read_ending_offsets,
            Option("endingOffsets", "end of `messages`; the end itself is not read", default="latest"),
        ),
    )
    min_partitions: int | None = same_option(SourceOptions, "min_partitions")
    max_records_per_partition: int | None = same_option(SourceOptions, "max_records_per_partition")
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        kinds.boolean,
        default="true",
        doc="of `messages`: fail when the range is not there any more",
    )
    include_headers: bool = same_option(SourceOptions, "include_headers")
    include_payload: bool = option(
        "includePayload",
        kinds.boolean,
        default="false",
        doc="of `outstanding`: columns `key`, `value` and `timestamp` of the message",
    )
    as_of: str | None = option(
        "asOf",
        kinds.text,
        default=None,
        absent="now",
        doc="of `cursors`: the state at this time, ISO 8601 with an offset, or milliseconds since 1970",
    )
    isolation: Isolation = same_option(SourceOptions, "isolation")
    markers_topic: str = same_option(SourceOptions, "markers_topic")
    rescue_topic: str = same_option(SourceOptions, "rescue_topic")
    redeliveries_topic: str = same_option(SourceOptions, "redeliveries_topic")
    cursors_topic: str = same_option(SourceOptions, "cursors_topic")
    group_id_prefix: str = same_option(SourceOptions, "group_id_prefix")
    dead_letter_topic: str = same_option(SourceOptions, "dead_letter_topic")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ViewOptions:
        """Parse the options of ``spark.read``. Source options are accepted too, and used where they apply."""
        parsed = read_options(cls, OptionReader(options, known=VIEW_OPTIONS, elsewhere=_ELSEWHERE))
        check_distinct(
            {
                "markersTopic": parsed.markers_topic,
                "redeliveriesTopic": parsed.redeliveries_topic,
                "cursorsTopic": parsed.cursors_topic,
                "deadLetterTopic": parsed.dead_letter_topic,
            }
        )
        if parsed.as_of is not None and parsed.view is not View.CURSORS:
            raise ConflictingOptions(
                ("view", "asOf"), f"the view {parsed.view.value} has no past", "give view=cursors"
            )
        if parsed.view is View.DEADLETTERS:
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


VIEW_OPTIONS = keys_of(ViewOptions, also=SOURCE_OPTIONS)
