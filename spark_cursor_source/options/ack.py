"""Options of the writers of settlement markers: the ack sink, the four actions and the batch write."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import AckedBySource, ConflictingOptions, RejectRefused
from spark_cursor_source.options import kinds
from spark_cursor_source.options.declare import (
    KAFKA_CLIENTS,
    SUBSCRIPTION,
    Option,
    keys_of,
    option,
    read_by,
    read_option,
    read_options,
    same_option,
)
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.reader import OptionReader
from spark_cursor_source.options.source import LEASE, SOURCE_OPTIONS, AckMode, Ordering, SourceOptions

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


def _read_lease_ms(reader: OptionReader) -> int:
    lease_timeout_ms: int = read_option(SourceOptions, "lease_ms", reader)
    return reader.value("lease", LEASE, default=lease_timeout_ms)


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

    #: Kafka client settings without the prefix ``kafka.``.
    kafka: KafkaOptions = field(repr=False, metadata=KAFKA_CLIENTS)
    subscription: str = field(metadata=SUBSCRIPTION)
    markers_topic: str = same_option(SourceOptions, "markers_topic")
    #: None if no caller reads the outstanding messages.
    cursors_topic: str | None = same_option(SourceOptions, "cursors_topic")
    action: AckAction | None = option(
        "action",
        kinds.choice(AckAction),
        default=None,
        absent="column `action`, or else `ack`",
        doc="settlement of every row: `ack`, `release`, `reject` or `extend`",
    )
    delay_ms: int | None = option(
        "delay",
        kinds.duration(most_ms=MAX_LEASE_MS),
        default=None,
        absent="the tracker decides",
        doc="of a release: a duration of at most 12h",
    )
    reason: str | None = option("reason", kinds.text, default=None, doc="of a release or a reject")
    lease_ms: int = field(
        metadata=read_by(
            _read_lease_ms,
            Option("lease", "of an extend: the lease from now, 1s to 12h", absent="`leaseTimeout`"),
        )
    )
    #: A sink uses it to detect a source that acks. With ``batch``, the sink writes the exceptions only.
    ack_mode: AckMode = same_option(SourceOptions, "ack_mode")
    marker_version: MarkerVersion = same_option(SourceOptions, "marker_version")
    #: A sink uses it to handle the messages of a key one after another.
    subscription_type: SubscriptionType = same_option(SourceOptions, "subscription_type")
    #: A sink uses it to hold back the messages of a key behind one that it has not acked.
    ordering: Ordering = same_option(SourceOptions, "ordering")
    #: No option. Ids of the queue topics by name, as of the batch whose rows are settled. Empty: unknown.
    topic_ids: Mapping[str, str] = field(default_factory=dict, metadata=read_by(lambda _: {}))

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> AckOptions:
        """Parse the options of a sink or a batch write. Source options are accepted too."""
        reader = OptionReader(options, known=ACK_OPTIONS, elsewhere=_ELSEWHERE)
        parsed = read_options(cls, reader)
        if parsed.marker_version is MarkerVersion.V1 and parsed.action is AckAction.REJECT:
            raise RejectRefused
        _check_used(parsed.action, "delay", reader, (AckAction.RELEASE,))
        _check_used(parsed.action, "reason", reader, (AckAction.RELEASE, AckAction.REJECT))
        _check_used(parsed.action, "lease", reader, (AckAction.EXTEND,))
        return parsed

    def settling_each(self) -> AckOptions:
        """Returns these options for rows that are all settled by name, whatever acks their batch."""
        return replace(self, ack_mode=AckMode.INDIVIDUAL)

    def by_columns(self) -> AckOptions:
        """Returns these options for outcomes, whose columns say how each row is settled."""
        return replace(self, action=None, delay_ms=None, reason=None)


def check_settled_by_sink(mode: AckMode, marker_version: MarkerVersion) -> None:
    """Checks that a sink may settle rows of a source with this ack mode.

    Raises:
        AckedBySource: the source would also end the messages that the sink releases, rejects or leaves.
    """
    if mode is AckMode.CUMULATIVE or (mode is AckMode.BATCH and marker_version is MarkerVersion.V1):
        raise AckedBySource(mode.value, marker_version.value, "AckSink")


def _check_used(
    action: AckAction | None, option: str, reader: OptionReader, by: tuple[AckAction, ...]
) -> None:
    # An ignored option would look like a promise, for example a delay that no ack can apply.
    if action is not None and action not in by and reader.given(option):
        users = " and ".join(user.value for user in by)
        raise ConflictingOptions(
            ("action", option), f"{option} is for {users}, not for {action.value}", f"leave {option} out"
        )


ACK_OPTIONS = keys_of(AckOptions, also=SOURCE_OPTIONS)
