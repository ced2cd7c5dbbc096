"""Marker format that a query writes (option markerFormat), and the options that each format allows."""

from __future__ import annotations

import enum

from spark_cursor_source.errors import ConflictingOptions
from spark_cursor_source.options import kinds
from spark_cursor_source.options.reader import OptionReader
from spark_cursor_source.options.topics import Assign, SubscribePattern, TopicSelection

MARKER_FORMAT = "markerFormat"
#: options that have no meaning with kafka-mq-go's tracker, each with the reason
_WITHOUT = {
    "redeliveriesTopic": "its tracker appends messages to the queue topic again",
    "cursorsTopic": "its tracker keeps no cursors",
    "tracker": "its tracker runs elsewhere",
    "trackerTimeout": "its tracker answers nobody",
    "failWithoutTracker": "its tracker is not watched",
    "maxOutstanding": "its tracker does not say what is outstanding",
    "deadLetterTopic": "its tracker has no dead letters",
    "rescueTopic": "its tracker rescues no messages",
    "reason": "its markers have no room for a reason",
}


class MarkerVersion(enum.StrEnum):
    """Marker version, named after the tracker that reads it (option markerFormat)."""

    V1 = "v1"  #: kafka-mq-go's tracker: one marker for each message, which holds the message
    V2 = "v2"  #: this library's tracker: one marker for a set of messages


def read_marker_version(reader: OptionReader) -> MarkerVersion:
    """Read the marker format. With V1, options without a meaning for kafka-mq-go's tracker are refused."""
    marker_version = reader.value(MARKER_FORMAT, kinds.choice(MarkerVersion), default=MarkerVersion.V2)
    if marker_version is MarkerVersion.V1:
        for option, why in _WITHOUT.items():
            if reader.given(option):
                said = f"v1 is kafka-mq-go's, and {why}"
                raise ConflictingOptions((MARKER_FORMAT, option), said, f"leave {option} out")
    return marker_version


def require_one_topic(topics: TopicSelection) -> None:
    """Check that exactly one queue topic is selected by name.

    V1 markers name a message only by partition and offset, so they can refer to only one queue topic.

    >>> from spark_cursor_source.options.topics import Subscribe
    >>> require_one_topic(Subscribe(topics=("orders",)))
    """
    if isinstance(topics, SubscribePattern):
        selection, count = "subscribePattern", 0
    elif isinstance(topics, Assign):
        selection, count = "assign", len({topic for topic, _ in topics.partitions})
    else:
        selection, count = "subscribe", len(topics.topics)
    if count != 1:
        raise ConflictingOptions(
            (MARKER_FORMAT, selection),
            "v1 markers do not contain the name of the topic",
            "read one queue topic, selected by name",
        )
