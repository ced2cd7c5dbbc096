"""Errors of the plain client: its calls, its cursors, its streams and publishing to them."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError, shown


class ClientError(CursorqError):
    """Base class of errors about a call of the plain client that cannot be done as it was made."""


class ClientClosed(ClientError):
    """Raised when a client is used after it was closed."""

    template = "The client is closed. Open another one, or make the call inside its `with` block."


class InvalidArgument(ClientError):
    """Raised when an argument has a value that is not allowed."""

    argument: str
    value: object
    why: str
    template = "The argument {argument}={_value} is invalid: {why}. Correct the call."

    @property
    def _value(self) -> str:
        return shown(self.value)


class NothingReceived(ClientError):
    """Raised when no message came in time and the consumer knows the reason."""

    waited_ms: int
    why: str
    template = (
        "No message came in {waited_ms} ms. The consumer is waiting for this reason: {why}. Remove the "
        "cause and receive again. The consumer keeps trying."
    )


class ConsumerFailed(ClientError):
    """Raised when a thread of a consumer ended with an unexpected error, which is the cause of this error."""

    error: str
    why: str
    template = (
        "The consumer failed with an unexpected {error}: {why}. Report it with the traceback in the log, and "
        "open another consumer. Messages whose ack is not stored are delivered again."
    )


class NotSettled(ClientError):
    """Raised when the brokers have not confirmed acks or the like in time; they may be stored anyway.

    The consumer keeps trying; messages whose ack is not stored are delivered again.
    """

    waited_ms: int
    why: str
    template = (
        "Acks, releases or rejects are not confirmed after {waited_ms} ms. Reason: {why}. Check that the "
        "brokers run. The consumer keeps trying, and flush() waits for it. Messages whose ack is not "
        "stored are delivered again."
    )


class AlreadySettled(ClientError):
    """Raised when a message of a queue is settled twice in different ways; the first one counts."""

    message: str
    how: str
    template = "{message} was {how} already. Call only one of ack, nack and reject for each message."


class CursorFenced(ClientError):
    """Raised when a cursor was already set with a higher epoch by another owner; nothing was changed."""

    cursor: str
    epoch: int | None
    stored: int
    template = (
        "Cursor '{cursor}' was set with epoch {stored}, and {_given} is lower. Another owner has taken "
        "over. Stop this owner, or obtain a higher epoch first."
    )

    @property
    def _given(self) -> str:
        return "no epoch" if self.epoch is None else f"epoch {self.epoch}"


class CursorOfTracker(ClientError):
    """Raised when a call would set a cursor that a tracker keeps; only acks move it."""

    cursor: str
    template = (
        "Cursor '{cursor}' belongs to a tracker, which would overwrite it. Ack messages to move it, or "
        "choose another cursor id."
    )


class StreamExists(ClientError):
    """Raised when a stream is created under a name that is taken."""

    stream: str
    template = "Stream '{stream}' exists already. Use it, or choose another name."


class NoSuchStream(ClientError):
    """Raised when a stream, or a partition of it, does not exist."""

    stream: str
    partition: int | None = None
    template = "There is no {_partition_of}stream '{stream}'. Create this Kafka topic, or correct the name."

    @property
    def _partition_of(self) -> str:
        return "" if self.partition is None else f"partition {self.partition} of "


class ReadonlyPartition(ClientError):
    """Raised when a message is published to a partition that is readonly."""

    stream: str
    partition: int
    template = (
        "Partition {partition} of stream '{stream}' is readonly. Publish to another partition, or make it "
        "writable (set_stream_readonly with readonly=False)."
    )


class EndOfReadonlyPartition(ClientError):
    """Raised when a subscription has delivered every message of a readonly partition and has ended."""

    stream: str
    partition: int
    position: int
    template = (
        "Partition {partition} of stream '{stream}' is readonly, and all messages up to its end at offset "
        "{position} were delivered. Subscribe again from that offset when the partition is writable."
    )


class IncorrectOffset(ClientError):
    """Raised when a message was not published because others were appended since the expected offset."""

    stream: str
    partition: int
    expected: int
    found: int
    template = (
        "The message was not published to partition {partition} of stream '{stream}': it expected offset "
        "{expected}, and the next offset is {found}. Read the messages in between, and publish with the "
        "new offset."
    )


class AckTimeout(ClientError):
    """Raised when the brokers did not confirm a message in time; it may be stored already, or later."""

    stream: str
    correlation_id: str | None
    waited_ms: int
    template = (
        "The brokers did not confirm message{_correlation} to stream '{stream}' in {waited_ms} ms. Check "
        "that the brokers run. Publish it again only if a duplicate is acceptable, because it may be "
        "stored already."
    )

    @property
    def _correlation(self) -> str:
        return "" if self.correlation_id is None else f" '{self.correlation_id}'"
