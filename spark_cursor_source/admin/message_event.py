"""Events in the life of a message."""

from __future__ import annotations

from dataclasses import dataclass

LEASE_EXPIRED = "LEASE_EXPIRED"  #: event without a marker: the next Start shows that the lease had ended


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent:
    """One event in the life of a message. Times are broker times in ms since 1970."""

    at_ms: int
    #: START, KEEPALIVE, RELEASE, BLOCK, REJECT, LEAVE, END, END_LEASED, END_UP_TO, SEEK, DELETE, WITHHOLD or
    #: LEASE_EXPIRED
    kind: str
    subscription: str
    delivery_count: int | None = None
    run: str | None = None  #: run that wrote the marker, or that had the delivery
    host: str | None = None  #: host of that run; None: it is no member of its group now
    lease_ms: int | None = None
    delay_ms: int | None = None
    reason: str | None = None
    behind: int | None = None  #: of a BLOCK: offset of the message that it waits for
    #: place in the markers topic; None: an event without a marker
    marker_partition: int | None = None
    marker_offset: int | None = None
