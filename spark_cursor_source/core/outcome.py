"""Outcomes that a handler returns for a message that is neither acked nor released at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_cursor_source.core.duration import format_duration, parse_duration
from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.errors import InvalidDuration, InvalidOption


def check_delay_ms(delay_ms: int) -> int:
    """Checks and returns the delay of a release. The tracker would silently cut a longer delay.

    Raises:
        InvalidDuration: the delay is negative.
        InvalidOption: the delay is above 12 h.
    """
    if delay_ms > MAX_LEASE_MS:
        next_move = "release for 12h at most, or append the message again with deliverAt"
        raise InvalidOption("delay", format_duration(delay_ms), "it is above 12h", next_move)
    if delay_ms < 0:
        raise InvalidDuration(f"{delay_ms}ms")
    return delay_ms


@dataclass(frozen=True, slots=True)
class Release:
    """Releases the message; it is available again after ``delay`` (Pulsar's negative acknowledgement).

    Without ``delay``, it is available at once. ``reason`` has at most 500 characters. An exception of the
    handler uses the tracker's backoff instead.

    Raises:
        InvalidDuration, InvalidOption: ``delay`` is no duration, or above 12 h.

    >>> Release(delay="30s").delay_ms
    30000
    >>> Release().delay_ms
    0
    """

    delay: str = "0s"  #: a duration of at most 12 h, such as "500ms", "30s", "5m"
    reason: str = ""
    delay_ms: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay_ms", check_delay_ms(parse_duration(self.delay)))


@dataclass(frozen=True, slots=True)
class Reject:
    """Sends the message to the dead-letter topic now. ``reason`` has at most 500 characters.

    >>> Reject("negative amount").reason
    'negative amount'
    """

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """Makes no decision: the lease goes on until another job acks the message or the lease expires.

    Nothing extends the lease after the batch. With ``ackMode=batch``, the source does not ack the message.
    """


Outcome = Release | Reject | Leave | bool | None
