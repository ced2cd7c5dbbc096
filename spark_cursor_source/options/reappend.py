"""Tracker options for consumers that read only the tail of their queue topic."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from spark_cursor_source.core.names import DEFAULT_DEAD_LETTER_TOPIC, dead_letter_topic
from spark_cursor_source.errors import ConflictingOptions, MissingOption
from spark_cursor_source.options import kinds
from spark_cursor_source.options.declare import Option
from spark_cursor_source.options.reader import OptionReader

REAPPEND = (
    Option(
        "redelivery",
        "`reappend`: messages of kafka-mq-go and kmq come back as copies at the tail of the topic",
        default="reference",
    ),
    Option("markerFormat", "markers V1 and V2; or `kmq`", default="protobuf"),
    Option("queueTopic", "with `reappend`: the topic that those markers are about"),
)
REAPPEND_OPTIONS = tuple(option.name for option in REAPPEND)
KMQ_DEAD_LETTER_TOPIC = "{topic}__undelivered"
KMQ_MAX_DELIVERIES = 4  #: the first delivery and three redeliveries


class Redelivery(enum.StrEnum):
    """Method of redelivery to consumers (option redelivery)."""

    REFERENCE = "reference"  #: redeliveries are announced to the source, which reads the original records
    REAPPEND = "reappend"  #: messages of V1 markers and of kmq are appended to the queue topic again


class MarkerFormat(enum.StrEnum):
    """Format of the records in the markers topic (option markerFormat)."""

    PROTOBUF = "protobuf"  #: markers of this library (V2) and of kafka-mq-go (V1)
    KMQ = "kmq"  #: markers of softwaremill's kmq


@dataclass(frozen=True, slots=True, kw_only=True)
class ReappendOptions:
    """Options of redelivery by append.

    >>> reader = OptionReader(
    ...     {"redelivery": "reappend", "queueTopic": "jobs", "markerFormat": "kmq"}, known=REAPPEND_OPTIONS)
    >>> options = ReappendOptions.read(reader)
    >>> options.dead_letter_topic, options.exhausted(3), options.exhausted(4)
    ('jobs__undelivered', False, True)
    """

    #: Queue topic of the V1 markers, which do not name their topic (option queueTopic).
    queue_topic: str
    #: Format of the markers: protobuf or kmq (option markerFormat).
    marker_format: MarkerFormat
    #: Maximum number of deliveries before a message becomes a dead letter, None for no limit. Default: no
    #: limit for protobuf, 4 for kmq (option maxDeliveries).
    max_deliveries: int | None
    #: Dead-letter topic. Default: {topic}-kafka-mq-go-DLQ for protobuf, {topic}__undelivered for kmq
    #: (option deadLetterTopic).
    dead_letter_topic: str

    @classmethod
    def read(cls, reader: OptionReader) -> ReappendOptions | None:
        """Read the options. Return None if redelivery is not by append.

        Without maxDeliveries, messages of V1 markers are redelivered without limit, as in kafka-mq-go.
        Messages of kmq are redelivered three times, as in kmq.
        """
        redelivery = reader.value("redelivery", kinds.choice(Redelivery), default=Redelivery.REFERENCE)
        marker_format = reader.value(
            "markerFormat", kinds.choice(MarkerFormat), default=MarkerFormat.PROTOBUF
        )
        if redelivery is Redelivery.REFERENCE:
            _refuse(reader, marker_format)
            return None
        queue_topic = reader.value("queueTopic", kinds.topic, default=None)
        if queue_topic is None:
            raise MissingOption("queueTopic", "name the topic that messages are appended to again")
        is_kmq = marker_format is MarkerFormat.KMQ
        max_deliveries = reader.value(
            "maxDeliveries", kinds.integer(least=0), default=KMQ_MAX_DELIVERIES if is_kmq else 0
        )
        template = reader.value(
            "deadLetterTopic",
            kinds.dead_letter_template,
            default=KMQ_DEAD_LETTER_TOPIC if is_kmq else DEFAULT_DEAD_LETTER_TOPIC,
        )
        return cls(
            queue_topic=queue_topic,
            marker_format=marker_format,
            max_deliveries=max_deliveries or None,
            dead_letter_topic=dead_letter_topic(
                template, topic=queue_topic, subscription=subscription_of(marker_format)
            ),
        )

    def exhausted(self, deliveries: int) -> bool:
        """True if a message with this delivery count gets no further delivery."""
        return self.max_deliveries is not None and deliveries >= self.max_deliveries


def subscription_of(marker_format: MarkerFormat) -> str:
    """Return the subscription name used for dead letters. kafka-mq-go and kmq have no subscriptions."""
    return "kmq" if marker_format is MarkerFormat.KMQ else "kafka-mq-go"


def _refuse(reader: OptionReader, marker_format: MarkerFormat) -> None:
    next_move = "set redelivery=reappend, or leave it out"
    if marker_format is MarkerFormat.KMQ:
        why = "consumers of kmq read no redeliveries topic"
        raise ConflictingOptions(("markerFormat", "redelivery"), why, next_move)
    if reader.given("queueTopic"):
        why = "it is of messages that are appended again"
        raise ConflictingOptions(("queueTopic", "redelivery"), why, next_move)
