"""Types of the subscribing API: start and stop positions, and messages."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from spark_cursor_source.client.streams.receipts import HEADER_CORRELATION_ID, HEADER_SUBJECT
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.options.arguments import check_number
from spark_cursor_source.options.kinds import MAX_LONG


class Where(enum.StrEnum):
    """Kinds of start and stop positions."""

    NEW_ONLY = "new_only"
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    AGO = "ago"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class StartAt:
    """Start position of a subscription.

    >>> StartAt.offset(7)
    StartAt(where=<Where.OFFSET: 'offset'>, value=7)
    """

    where: Where
    value: int = 0

    @classmethod
    def new_only(cls) -> StartAt:
        """Starts after the newest current message."""
        return cls(Where.NEW_ONLY)

    @classmethod
    def earliest(cls) -> StartAt:
        """Starts at the oldest retained message."""
        return cls(Where.EARLIEST)

    @classmethod
    def latest(cls) -> StartAt:
        """Starts at the newest current message. An empty partition starts like :meth:`new_only`."""
        return cls(Where.LATEST)

    @classmethod
    def offset(cls, offset: int) -> StartAt:
        """Starts at the first message with this offset or a higher one. The message may be in the future."""
        return cls(Where.OFFSET, _checked("offset", offset))

    @classmethod
    def time_ms(cls, at_ms: int) -> StartAt:
        """Starts at the first message with this timestamp (ms since 1970) or a later one."""
        return cls(Where.TIME, _checked("at_ms", at_ms))

    @classmethod
    def ago_ms(cls, delta_ms: int) -> StartAt:
        """Starts like :meth:`time_ms`, with the broker's current time minus ``delta_ms``."""
        return cls(Where.AGO, _checked("delta_ms", delta_ms))


@dataclass(frozen=True, slots=True)
class StopAt:
    """Stop position of a subscription."""

    where: Where
    value: int = 0

    @classmethod
    def never(cls) -> StopAt:
        """Waits for new messages until the generator is closed."""
        return cls(Where.NEVER)

    @classmethod
    def offset(cls, offset: int) -> StopAt:
        """Stops after the message with this offset. The message may be in the future."""
        return cls(Where.OFFSET, _checked("offset", offset))

    @classmethod
    def latest(cls) -> StopAt:
        """Stops after the newest message at subscription time, or immediately in an empty partition."""
        return cls(Where.LATEST)

    @classmethod
    def time_ms(cls, at_ms: int) -> StopAt:
        """Stops like :meth:`latest`, or before the first message with a timestamp above ``at_ms``."""
        return cls(Where.TIME, _checked("at_ms", at_ms))


def check_order(start: StartAt, stop: StopAt) -> None:
    """Checks that the stop does not precede the start, which suggests swapped arguments.

    Raises:
        InvalidArgument: one is no position. Or both are offsets or times, and the stop is lower.
    """
    if not isinstance(start, StartAt):
        raise InvalidArgument("start", start, "it is not a StartAt, such as StartAt.earliest()")
    if not isinstance(stop, StopAt):
        raise InvalidArgument("stop", stop, "it is not a StopAt, such as StopAt.latest()")
    comparable = start.where == stop.where and start.where in (Where.OFFSET, Where.TIME)
    if comparable and stop.value < start.value:
        raise InvalidArgument("stop", stop.value, f"it is before the start, {start.value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a stream."""

    stream: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int  #: publisher time, or broker time if the stream uses LogAppendTime
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def correlation_id(self) -> str | None:
        """The correlation id from publishing, or None."""
        return self._header(HEADER_CORRELATION_ID)

    @property
    def subject(self) -> str | None:
        """The subject from publishing, or None if the message was published to the stream."""
        return self._header(HEADER_SUBJECT)

    def _header(self, name: str) -> str | None:
        found = next((value for header, value in self.headers if header == name), None)
        return None if found is None else found.decode(errors="replace")


def _checked(argument: str, value: int) -> int:
    return check_number(argument, value, least=0, most=MAX_LONG)
