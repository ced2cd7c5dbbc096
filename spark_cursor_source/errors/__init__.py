"""Every error of spark_cursor_source, in one tree; import them from here.

An error states the facts and the next move. Errors of other libraries are turned into these once, where
they enter (``kafka/`` for librdkafka), and nothing here imports anything else.
"""

from __future__ import annotations

from spark_cursor_source.errors.broker import (
    BrokerError,
    BrokerNotReady,
    BrokerNotRunning,
    DemoProcessEnded,
    JarsNotResolved,
    JavaNotFound,
    PortTaken,
)
from spark_cursor_source.errors.client import (
    AlreadySettled,
    ClientClosed,
    ClientError,
    InvalidArgument,
    NothingReceived,
    NotSettled,
)
from spark_cursor_source.errors.control_topics import (
    ControlTopicUnfit,
    CursorsTopicNotCompacted,
    MarkersGone,
    MarkersPartitionsChanged,
    MarkersTopicNotLogAppendTime,
    MarkersTopicRecreated,
    StreamsTopicUnfit,
)
from spark_cursor_source.errors.cursors import CursorFenced, CursorOfTracker
from spark_cursor_source.errors.dead_letters import NoDeadLetter, RedriveFenced
from spark_cursor_source.errors.durability import (
    CopiesNotDurable,
    MarkersNotDurable,
    MessageRefused,
    MessagesNotDurable,
)
from spark_cursor_source.errors.kafka import (
    KafkaFailure,
    KafkaRefused,
    KafkaUnavailable,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.errors.options import (
    ConflictingOptions,
    InvalidDuration,
    InvalidOption,
    KafkaConfigFileUnreadable,
    MissingOption,
    OptionsError,
    RefusedKafkaOption,
    UnknownOption,
)
from spark_cursor_source.errors.reading import ReadError, ReadRefused, ReadStalled, RecordsGone, TopicGone
from spark_cursor_source.errors.root import CursorqError
from spark_cursor_source.errors.sink import (
    AckedBySource,
    MissingColumns,
    NullMessageId,
    RejectRefused,
    SinkError,
    UnfitColumn,
    UnknownAction,
    UnknownOutcome,
)
from spark_cursor_source.errors.source import (
    CheckpointOfAnother,
    DataLoss,
    MarkerFormatChanged,
    QueueTopicEndsEarlier,
    QueueTopicRecreated,
    SourceError,
)
from spark_cursor_source.errors.streams import (
    AckTimeout,
    EndOfReadonlyPartition,
    IncorrectOffset,
    NoSuchStream,
    ReadonlyPartition,
    StreamExists,
)
from spark_cursor_source.errors.subscriptions import (
    GroupInUse,
    MemberFenced,
    RunSuperseded,
    SubscriptionExists,
    SubscriptionHasConsumers,
    SubscriptionInUse,
    TrackedElsewhere,
    UnknownSubscription,
)
from spark_cursor_source.errors.tracker import NoTracker, TrackerFenced, TrackerOwnedByAnother
from spark_cursor_source.errors.wire import (
    InvalidControlRecord,
    InvalidMarker,
    InvalidOffset,
    LaterCursorVersion,
    WireError,
)
from spark_cursor_source.errors.writing import (
    NoMessageColumn,
    NoSuchPartition,
    OverwriteRefused,
    UnfitMessageColumn,
)

__all__ = [
    "AckTimeout",
    "AckedBySource",
    "AlreadySettled",
    "BrokerError",
    "BrokerNotReady",
    "BrokerNotRunning",
    "CheckpointOfAnother",
    "ClientClosed",
    "ClientError",
    "ConflictingOptions",
    "ControlTopicUnfit",
    "CopiesNotDurable",
    "CursorFenced",
    "CursorOfTracker",
    "CursorqError",
    "CursorsTopicNotCompacted",
    "DataLoss",
    "DemoProcessEnded",
    "EndOfReadonlyPartition",
    "GroupInUse",
    "IncorrectOffset",
    "InvalidArgument",
    "InvalidControlRecord",
    "InvalidDuration",
    "InvalidMarker",
    "InvalidOffset",
    "InvalidOption",
    "JarsNotResolved",
    "JavaNotFound",
    "KafkaConfigFileUnreadable",
    "KafkaFailure",
    "KafkaRefused",
    "KafkaUnavailable",
    "LaterCursorVersion",
    "MarkerFormatChanged",
    "MarkersGone",
    "MarkersNotDurable",
    "MarkersPartitionsChanged",
    "MarkersTopicNotLogAppendTime",
    "MarkersTopicRecreated",
    "MemberFenced",
    "MessageRefused",
    "MessagesNotDurable",
    "MissingColumns",
    "MissingOption",
    "NoDeadLetter",
    "NoMessageColumn",
    "NoSuchPartition",
    "NoSuchStream",
    "NoTracker",
    "NotAuthorized",
    "NotSettled",
    "NothingReceived",
    "NullMessageId",
    "OptionsError",
    "OverwriteRefused",
    "PortTaken",
    "QueueTopicEndsEarlier",
    "QueueTopicRecreated",
    "ReadError",
    "ReadRefused",
    "ReadStalled",
    "ReadonlyPartition",
    "RecordsGone",
    "RedriveFenced",
    "RefusedKafkaOption",
    "RejectRefused",
    "RunSuperseded",
    "SinkError",
    "SourceError",
    "StreamExists",
    "StreamsTopicUnfit",
    "SubscriptionExists",
    "SubscriptionHasConsumers",
    "SubscriptionInUse",
    "TopicGone",
    "TopicNotFound",
    "TrackedElsewhere",
    "TrackerFenced",
    "TrackerOwnedByAnother",
    "UnfitColumn",
    "UnfitMessageColumn",
    "UnknownAction",
    "UnknownOption",
    "UnknownOutcome",
    "UnknownSubscription",
    "WireError",
]
