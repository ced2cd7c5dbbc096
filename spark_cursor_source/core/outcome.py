"""What a handler may say of a message, where it is neither acked nor given back at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_cursor_source.core.duration import format_duration, parse_duration
from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.errors import InvalidDuration, InvalidOption


def check_delay_ms(delay_ms: int) -> int:
    """A delay that a released message can wait; the tracker would cut a longer one in silence.

    Raises:
        InvalidDuration: it is negative.
        InvalidOption: it is above 12 h.
    """
    if delay_ms > MAX_LEASE_MS:
        next_move = "release for 12h at most, or append the message again with deliverAt"
        raise InvalidOption("delay", format_duration(delay_ms), "it is above 12h", next_move)
    if delay_ms < 0:
        raise InvalidDuration(f"{delay_ms}ms")
    return delay_ms


@dataclass(frozen=True, slots=True)
class Release:
    """Give the message back; it is available again after ``delay`` (Pulsar's negative acknowledgement).

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
    """Send the message to the dead letters now."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Leave:
    """Decide nothing: the lease goes on, and some other job acks, or it runs out."""


Outcome = Release | Reject | Leave | bool | None
