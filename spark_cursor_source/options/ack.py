"""Options of the writers of settlement markers: the ack sink, the four actions and the batch write."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.errors import ConflictingOptions, RejectRefused
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.marker_format import MarkerVersion, read_marker_version
from spark_cursor_source.options.reader import OptionReader
from spark_cursor_source.options.source import (
    LEAST_LEASE_MS,
    MOST_LEASE_MS,
    SOURCE_OPTIONS,
    AckMode,
    read_lease_ms,
)

ACK_OPTIONS = (*SOURCE_OPTIONS, "action", "delay", "reason", "lease")

_BATCH_READ = "it belongs to a batch read, spark.read"
_ELSEWHERE = {
    "view": _BATCH_READ,
    "endingoffsets": _BATCH_READ,
    "topic": "messages are appended to it by df.write with action=enqueue; nothing is acked there",
}


class AckAction(enum.StrEnum):
    """Settlement of a message (option or column action)."""

    ACK = "ack"
    RELEASE = "release"
    REJECT = "reject"
    EXTEND = "extend"


@dataclass(frozen=True, slots=True, kw_only=True)
class AckOptions:
    """Options for writing markers.

    One options dict can serve a source and its sink. Source options without a meaning here are accepted and
    ignored. An unknown key is an error.

    >>> options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders", "subscription": "billing"}
    >>> ack = AckOptions.parse(options)
    >>> ack.subscription, ack.action, ack.lease_ms
    ('billing', None, 60000)
    """

    #: Kafka client settings without the prefix (options kafka.*, kafka.config.file as config.file).
    kafka: KafkaOptions = field(repr=False)
    #: Subscription of the acks (option subscription).
    subscription: str
    #: Topic of the markers, Starts and Ends. Default: __cursorq_markers (option markersTopic).
    markers_topic: str = DEFAULT_MARKERS_TOPIC
    #: Topic of the cursors, which show the outstanding messages. None if no caller reads it. Default:
    #: __cursors (option cursorsTopic).
    cursors_topic: str | None = DEFAULT_CURSORS_TOPIC
    #: Settlement of every row. Default: None, the column action decides, or else ack (option action).
    action: AckAction | None = None
    #: Delay of released messages in ms, at most 12 h. Default: None, the tracker decides (option delay).
    delay_ms: int | None = None
    #: Reason of releases and rejects. Default: none (option reason).
    reason: str | None = None
    #: Lease of extended messages in ms from now, 1 s to 12 h. Default: leaseTimeout, or else 60 s
    #: (option lease).
    lease_ms: int
    #: Component that acknowledges. A sink uses it to detect a source that acks. Default: individual
    #: (option ackMode).
    ack_mode: AckMode = AckMode.INDIVIDUAL
    #: Marker format of the tracker. v1 is the format of kafka-mq-go. Default: v2 (option markerFormat).
    marker_version: MarkerVersion = MarkerVersion.V2

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> AckOptions:
        """Parse the options of a sink or a batch write. Source options are accepted too."""
        reader = OptionReader(options, known=ACK_OPTIONS, elsewhere=_ELSEWHERE)
        parsed = cls(
            kafka=reader.brokers(),
            subscription=reader.require_subscription(),
            markers_topic=reader.topic("markersTopic", default=DEFAULT_MARKERS_TOPIC),
            cursors_topic=reader.topic("cursorsTopic", default=DEFAULT_CURSORS_TOPIC),
            action=reader.choice("action", AckAction, default=AckAction.ACK)
            if reader.given("action")
            else None,
            delay_ms=reader.duration_ms("delay", default_ms=0, most_ms=MAX_LEASE_MS)
            if reader.given("delay")
            else None,
            reason=reader.text("reason"),
            lease_ms=_read_lease_ms(reader),
            ack_mode=reader.choice("ackMode", AckMode, default=AckMode.INDIVIDUAL),
            marker_version=read_marker_version(reader),
        )
        if parsed.marker_version is MarkerVersion.V1 and parsed.action is AckAction.REJECT:
            raise RejectRefused
        _check_used(parsed.action, "delay", reader, (AckAction.RELEASE,))
        _check_used(parsed.action, "reason", reader, (AckAction.RELEASE, AckAction.REJECT))
        _check_used(parsed.action, "lease", reader, (AckAction.EXTEND,))
        return parsed


def _read_lease_ms(reader: OptionReader) -> int:
    default_ms = read_lease_ms(reader)
    return reader.duration_ms("lease", default_ms=default_ms, least_ms=LEAST_LEASE_MS, most_ms=MOST_LEASE_MS)


def _check_used(
    action: AckAction | None, option: str, reader: OptionReader, by: tuple[AckAction, ...]
) -> None:
    # An ignored option would look like a promise, for example a delay that no ack can apply.
    if action is not None and action not in by and reader.given(option):
        users = " and ".join(user.value for user in by)
        raise ConflictingOptions(
            ("action", option), f"{option} is for {users}, not for {action.value}", f"leave {option} out"
        )
