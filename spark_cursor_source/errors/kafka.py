"""Errors of the Kafka cluster: refused requests, partitions that cannot be read, unconfirmed records."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class KafkaFailure(CursorqError):
    """Base class of errors about a request that the Kafka cluster did not carry out."""


class KafkaUnavailable(KafkaFailure):
    """Raised when the cluster gives no answer, or only retriable errors, until a deadline."""

    operation: str
    waited_ms: int
    last: str
    template = (
        "{operation}: no answer from Kafka in {waited_ms} ms (the last that was heard: {last}); see that the "
        "brokers of kafka.bootstrap.servers run, can be reached from here, and accept the "
        "kafka.security.protocol and login given"
    )


class NotAuthorized(KafkaFailure):
    """Raised when the principal of the kafka.* options lacks rights.

    ``acls`` holds all rights known to be missing; ``unknown`` holds further rights it needs that could not be
    checked. Both are arguments of ``kafka-acls.sh``.
    """

    resource: str
    operation: str
    acls: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    template = (
        "not authorized: {operation} on '{resource}'{_more}; give the principal of the kafka.* options what "
        "it lacks{_missing}{_unchecked}"
    )

    @property
    def _more(self) -> str:
        return f" and {len(self.acls) - 1} more" if len(self.acls) > 1 else ""

    @property
    def _missing(self) -> str:
        if not self.acls:
            return ""
        return f" (kafka-acls.sh --add --allow-principal User:...): {'; '.join(self.acls)}"

    @property
    def _unchecked(self) -> str:
        if not self.unknown:
            return ""
        return f". It also needs, which could not be checked: {'; '.join(self.unknown)}"


class KafkaRefused(KafkaFailure):
    """Raised when the cluster refuses a request and a retry would not help."""

    operation: str
    resource: str
    why: str
    template = "{operation} on '{resource}' was refused: {why}; correct that and start again"


class TopicNotFound(KafkaFailure):
    """Raised when named topics do not exist, or may not be described."""

    topics: tuple[str, ...]
    template = "topics that do not exist: {_named}; create them, or correct the names in the options"

    @property
    def _named(self) -> str:
        return ", ".join(f"'{topic}'" for topic in self.topics)


class ReadError(CursorqError):
    """Base class of errors about records of a topic partition that could not be read."""


class ReadStalled(ReadError):
    """Raised when a partition gives neither a record nor its end for the whole stall timeout."""

    topic: str
    partition: int
    position: int
    stop: int
    waited_ms: int
    last: str
    template = (
        "no progress in {waited_ms} ms at offset {position} of {topic}-{partition}, which was to be read up "
        "to {stop}; the last that was heard: {last}; see that the partition has a leader that can be "
        "reached, then start again"
    )


class TopicGone(ReadError):
    """Raised when a topic, or a partition of it, was deleted while it was read."""

    topic: str
    partition: int
    template = (
        "{topic}-{partition} does not exist any more; if it was deleted on purpose, take the topic out of "
        "the options and start with a new checkpoint"
    )


class RecordsGone(ReadError):
    """Raised when requested offsets are outside the partition: retention, truncation or a new topic."""

    topic: str
    partition: int
    wanted: tuple[int, int]
    available: tuple[int, int]
    template = (
        "{topic}-{partition} has offsets {available[0]} to {available[1]}, and {wanted[0]} to {wanted[1]} "
        "were to be read: retention removed them, or the topic was created again; lengthen retention.ms, or "
        "set failOnDataLoss=false to go on without them"
    )


class ReadRefused(ReadError):
    """Raised when the broker, or the Kafka client, refuses to read on and a retry would not help."""

    topic: str
    partition: int
    position: int
    why: str
    template = (
        "{topic}-{partition} cannot be read at offset {position}: {why}; correct that (the kafka.* options, "
        "the topic's ACLs) and start again"
    )


class MarkersNotDurable(KafkaFailure):
    """Raised when the brokers have not confirmed markers, so what they record may not have taken effect."""

    topic: str
    unsent: int
    why: str
    template = (
        "{unsent} markers are not confirmed by markers topic '{topic}': {why}; see that its brokers run and "
        "start the query again: what was not acknowledged comes again"
    )


class CopiesNotDurable(KafkaFailure):
    """Raised when the brokers have not confirmed dead letters; the original messages are still tracked."""

    topic: str
    unsent: int
    why: str
    template = (
        "{unsent} copies are not confirmed by topic '{topic}': {why}; correct that and start the tracker "
        "again: it writes them again and loses none"
    )


class MessagesNotDurable(KafkaFailure):
    """Raised when the brokers have not confirmed messages of a queue topic; some may be stored anyway."""

    topic: str
    unsent: int
    why: str
    template = (
        "{unsent} messages are not confirmed by topic '{topic}': {why}; see that its brokers run and send "
        "them again: some may be there twice then"
    )


class MessageRefused(KafkaFailure):
    """Raised when the brokers, or the Kafka client, refuse a message and a retry would not help.

    Other messages of the same write may be stored; writing again duplicates them.
    """

    topic: str
    partition: int | None
    size: int
    why: str
    template = (
        "a message of {size} bytes to topic '{topic}'{_partition} was refused: {why}; correct that and write "
        "again (as for size: the topic's max.message.bytes bounds what is sent together, so lower "
        "kafka.batch.size if each message fits it, else raise it; and kafka.max.request.size)"
    )

    @property
    def _partition(self) -> str:
        return "" if self.partition is None else f" partition {self.partition}"
