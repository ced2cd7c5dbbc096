"""Where a subscription of the client begins and ends, and what it hands out."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from spark_cursor_source.client.streams.receipts import HEADER_CORRELATION_ID, HEADER_SUBJECT
from spark_cursor_source.errors import InvalidArgument


class Where(enum.StrEnum):
    """The kinds of places that a subscription begins or ends at."""

    NEW_ONLY = "new_only"
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    AGO = "ago"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class StartAt:
    """Where a subscription begins.

    >>> StartAt.offset(7)
    StartAt(where=<Where.OFFSET: 'offset'>, value=7)
    """

    where: Where
    value: int = 0

    @classmethod
    def new_only(cls) -> StartAt:
        """After the messages that are there now."""
        return cls(Where.NEW_ONLY)

    @classmethod
    def earliest(cls) -> StartAt:
        """At the oldest message that retention has left."""
        return cls(Where.EARLIEST)

    @classmethod
    def latest(cls) -> StartAt:
        """At the newest message there is; as :meth:`new_only` where there is none."""
        return cls(Where.LATEST)

    @classmethod
    def offset(cls, offset: int) -> StartAt:
        """At the first message with this offset or a higher one, be it yet to come."""
        return cls(Where.OFFSET, _not_negative("offset", offset))

    @classmethod
    def time_ms(cls, at_ms: int) -> StartAt:
        """At the first message with this timestamp (ms since 1970) or a later one."""
        return cls(Where.TIME, _not_negative("at_ms", at_ms))

    @classmethod
    def ago_ms(cls, delta_ms: int) -> StartAt:
        """The same with the time so long before now, by the clock of the brokers."""
        return cls(Where.AGO, _not_negative("delta_ms", delta_ms))


@dataclass(frozen=True, slots=True)
class StopAt:
    """Where a subscription ends."""

    where: Where
    value: int = 0

    @classmethod
    def never(cls) -> StopAt:
        """It waits for more, until its generator is closed."""
        return cls(Where.NEVER)

    @classmethod
    def offset(cls, offset: int) -> StopAt:
        """After the message with this offset, be it yet to come."""
        return cls(Where.OFFSET, _not_negative("offset", offset))

    @classmethod
    def latest(cls) -> StopAt:
        """After the newest message that is there when it begins; at once where there is none."""
        return cls(Where.LATEST)

    @classmethod
    def time_ms(cls, at_ms: int) -> StopAt:
        """The same, but before the first message with a timestamp above this one."""
        return cls(Where.TIME, _not_negative("at_ms", at_ms))


def check_order(start: StartAt, stop: StopAt) -> None:
    """That a subscription does not end before it begins: the two are most likely mixed up.

    Raises:
        InvalidArgument: the stop is an offset, or a time, before that of the start.
    """
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
    timestamp_ms: int  #: its publisher's, or the broker's where the stream stamps with LogAppendTime
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def correlation_id(self) -> str | None:
        """The one that it was published with."""
        return self._header(HEADER_CORRELATION_ID)

    @property
    def subject(self) -> str | None:
        """The subject that it was published to; None if it was published to the stream."""
        return self._header(HEADER_SUBJECT)

    def _header(self, name: str) -> str | None:
        found = next((value for header, value in self.headers if header == name), None)
        return None if found is None else found.decode(errors="replace")


def _not_negative(argument: str, value: int) -> int:
    if value < 0:
        raise InvalidArgument(argument, value, "it is below 0")
    return value
