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
        "Kafka did not answer in {waited_ms} ms: {operation}. Last report of the client: {last}. Check "
        "that the brokers of kafka.bootstrap.servers run, that this host can reach them, and that they "
        "accept the configured kafka.security.protocol and login."
    )


class TransactionStaysOpen(KafkaUnavailable):
    """Raised when the answer lies behind a transaction that is still open at a deadline."""

    operation: str
    waited_ms: int
    last: str = "a transaction is open"
    template = (
        "{operation}: {last}, and it was still open after {waited_ms} ms. It ends when its producer ends it "
        "or starts again, or when its transaction.timeout.ms is over. If it stays longer, "
        "kafka-transactions.sh find-hanging finds it and kafka-transactions.sh abort ends it."
    )


class WriterOvertaken(KafkaUnavailable):
    """Raised when other writers ended every transaction of a writer, or it timed out, until a deadline."""

    operation: str
    waited_ms: int
    last: str
    template = (
        "For {waited_ms} ms, other writers ended every transaction, or it timed out: {operation}. Let "
        "fewer queries or clients do this at the same time, or find out what makes a transaction slow, for "
        "example a quota, a slow network or large outputs."
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
        "Kafka did not authorize {operation} on '{resource}'{_more}. Grant the missing rights to the "
        "principal of the kafka.* options{_missing}.{_unchecked}"
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
        return f" These needed rights could not be checked: {'; '.join(self.unknown)}"


class KafkaRefused(KafkaFailure):
    """Raised when the cluster refuses a request and a retry would not help."""

    operation: str
    resource: str
    why: str
    template = (
        "Kafka refused this request: {operation} on '{resource}'. Reason: {why}. Remove the cause and "
        "start again."
    )


class TopicNotFound(KafkaFailure):
    """Raised when named topics do not exist, or may not be described."""

    topics: tuple[str, ...]
    template = (
        "These topics do not exist: {_named}. Correct the names, or create the queue topics. A tracker "
        "creates control topics when it starts, and a dead-letter topic with its first dead letter."
    )

    @property
    def _named(self) -> str:
        return ", ".join(f"'{topic}'" for topic in self.topics)


class ReadError(CursorqError):
    """Base class of errors about records of a topic partition that could not be read."""


class NativeReaderUnavailable(ReadError):
    """Raised when the environment variable CURSORQ_NATIVE demands the native reader, which cannot be used."""

    why: str
    template = (
        "CURSORQ_NATIVE=1 demands the native reader: {why}; install spark-cursor-source[native] where queues "
        "are read, or unset CURSORQ_NATIVE"
    )


class ReadStalled(ReadError):
    """Raised when a partition gives neither a record nor its end for the whole stall timeout."""

    topic: str
    partition: int
    position: int
    stop: int
    waited_ms: int
    last: str
    template = (
        "Reading {topic}-{partition} made no progress in {waited_ms} ms. It is at offset {position} and "
        "must reach {stop}. Last report of the client: {last}. Check that the partition has a leader that "
        "this host can reach, then start again."
    )


class TopicGone(ReadError):
    """Raised when a topic, or a partition of it, was deleted while it was read."""

    topic: str
    partition: int
    template = (
        "{topic}-{partition} does not exist any more. If it was deleted on purpose, remove the topic from "
        "the options and start with a new checkpoint."
    )


class RecordsGone(ReadError):
    """Raised when requested offsets are outside the partition: retention, truncation or a new topic."""

    topic: str
    partition: int
    wanted: tuple[int, int]
    available: tuple[int, int]
    template = (
        "Offsets {wanted[0]} to {wanted[1]} of {topic}-{partition} are not available. The partition has "
        "{available[0]} to {available[1]}. Retention removed the records, or the topic was created again. "
        "Raise retention.ms, or set failOnDataLoss=false to continue without them."
    )


class ReadRefused(ReadError):
    """Raised when the broker, or the Kafka client, refuses to read on and a retry would not help."""

    topic: str
    partition: int
    position: int
    why: str
    template = (
        "{topic}-{partition} cannot be read at offset {position}. Reason: {why}. Correct the kafka.* "
        "options or the topic's ACLs, and start again."
    )


class MarkersNotDurable(KafkaFailure):
    """Raised when the brokers have not confirmed markers, so what they record may not have taken effect."""

    topic: str
    unsent: int
    why: str
    template = (
        "The brokers have not confirmed {unsent} markers of markers topic '{topic}'. Reason: {why}. Check "
        "that the brokers run, and start the query again. Messages whose ack is not confirmed are "
        "delivered again."
    )


class CopiesNotDurable(KafkaFailure):
    """Raised when the brokers have not confirmed dead letters; the original messages are still tracked."""

    topic: str
    unsent: int
    why: str
    template = (
        "The brokers have not confirmed {unsent} copies to topic '{topic}'. Reason: {why}. Remove the "
        "cause and start the tracker again. It writes the copies again and loses none."
    )


class MessagesNotDurable(KafkaFailure):
    """Raised when the brokers have not confirmed messages of a queue topic; some may be stored anyway."""

    topic: str
    unsent: int
    why: str
    template = (
        "The brokers have not confirmed {unsent} messages to topic '{topic}'. Reason: {why}. Check that "
        "the brokers run, and send the messages again. Some of them may then be stored twice."
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
        "Kafka refused a message of {size} bytes to topic '{topic}'{_partition}. Reason: {why}. Correct "
        "the message or the limits, and write again. If the message is too large, raise the topic's "
        "max.message.bytes and kafka.max.request.size. If only a whole batch is too large, lower "
        "kafka.batch.size."
    )

    @property
    def _partition(self) -> str:
        return "" if self.partition is None else f" partition {self.partition}"
