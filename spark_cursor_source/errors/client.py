"""Errors of the plain client: its calls, its cursors, its streams and publishing to them."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError, shown


class ClientError(CursorqError):
    """Base class of errors about a call of the plain client that cannot be done as it was made."""


class ClientClosed(ClientError):
    """Raised when a client is used after it was closed."""

    template = "the client is closed: make another, or call it inside its `with` block"


class InvalidArgument(ClientError):
    """Raised when an argument has a value that is not allowed."""

    argument: str
    value: object
    why: str
    template = "{argument}={_value}: {why}; correct the call"

    @property
    def _value(self) -> str:
        return shown(self.value)


class NothingReceived(ClientError):
    """Raised when no message came in time and the consumer knows the reason."""

    waited_ms: int
    why: str
    template = (
        "no message in {waited_ms} ms, because the consumer is kept waiting: {why}; it tries on, so do what "
        "that says and receive again"
    )


class NotSettled(ClientError):
    """Raised when the brokers have not confirmed acks or the like in time; they may be stored anyway.

    The consumer keeps trying; messages whose ack is not stored are delivered again.
    """

    waited_ms: int
    why: str
    template = (
        "acks, or the like, are not confirmed after {waited_ms} ms ({why}); see that the brokers run: the "
        "consumer tries on, and flush() waits for it; what is not confirmed comes again"
    )


class AlreadySettled(ClientError):
    """Raised when a message of a queue is settled twice in different ways; the first one counts."""

    message: str
    how: str
    template = "{message} was {how} already: ack, nack or reject a message once, and keep to it"


class CursorFenced(ClientError):
    """Raised when a cursor was already set with a higher epoch by another owner; nothing was changed."""

    cursor: str
    epoch: int | None
    stored: int
    template = (
        "cursor '{cursor}' was set with epoch {stored}, and {_given} is lower: another owner has taken over; "
        "end this one, or get an epoch above that one first"
    )

    @property
    def _given(self) -> str:
        return "no epoch" if self.epoch is None else f"epoch {self.epoch}"


class CursorOfTracker(ClientError):
    """Raised when a call would set a cursor that a tracker keeps; only acks move it."""

    cursor: str
    template = (
        "cursor '{cursor}' belongs to a tracker, which would write over it: ack messages to move it, or "
        "choose another cursor id"
    )


class StreamExists(ClientError):
    """Raised when a stream is created under a name that is taken."""

    stream: str
    template = "stream '{stream}' exists: use it as it is, or choose another name"


class NoSuchStream(ClientError):
    """Raised when a stream, or a partition of it, does not exist."""

    stream: str
    partition: int | None = None
    template = "{_partition_of}stream '{stream}' does not exist: create it, or correct the name"

    @property
    def _partition_of(self) -> str:
        return "" if self.partition is None else f"partition {self.partition} of "


class ReadonlyPartition(ClientError):
    """Raised when a message is published to a partition that is readonly."""

    stream: str
    partition: int
    template = (
        "partition {partition} of stream '{stream}' is readonly: publish to another one, or make it writable "
        "(set_stream_readonly with readonly=False)"
    )


class EndOfReadonlyPartition(ClientError):
    """Raised when a subscription has delivered every message of a readonly partition and has ended."""

    stream: str
    partition: int
    position: int
    template = (
        "partition {partition} of stream '{stream}' is readonly and was read to its end, {position}: "
        "subscribe again from there once it is writable"
    )


class IncorrectOffset(ClientError):
    """Raised when a message was not published because others were appended since the expected offset."""

    stream: str
    partition: int
    expected: int
    found: int
    template = (
        "offset {expected} was expected in partition {partition} of stream '{stream}', and the next message "
        "gets {found}: read on from there, decide anew, and publish with that"
    )


class AckTimeout(ClientError):
    """Raised when the brokers did not confirm a message in time; it may be stored already, or later."""

    stream: str
    correlation_id: str | None
    waited_ms: int
    template = (
        "message{_correlation} to stream '{stream}' was not confirmed in {waited_ms} ms; see that its "
        "brokers run, and publish it again if it may be there twice"
    )

    @property
    def _correlation(self) -> str:
        return "" if self.correlation_id is None else f" '{self.correlation_id}'"
