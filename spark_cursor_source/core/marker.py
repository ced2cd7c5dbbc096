"""Markers: what happened to which messages of a cell. The only input of the tracker.

Each kind follows the marker of kafka-mq-go of the same name where there is one (Start, End, KeepAlive) and
Pulsar's acknowledgement commands elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet

MAX_LEASE_MS = 12 * 3_600_000  #: a longer lease is cut to 12 h, as SQS and kafka-mq-go do


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The offsets are being delivered, for the ``delivery_count``-th time, under a lease of ``lease_ms``."""

    cell: Cell
    offsets: OffsetSet
    lease_ms: int
    delivery_count: int
    run_id: str  #: the planner's
    alone: bool = False  #: suspects, delivered with nothing else beside them


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The offsets are acknowledged, whoever holds them.

    With a ``run_id`` it is a planner's, for a batch as a whole: what was never delivered stays. With
    ``no_message`` a reader has found no record at the offsets, so that nothing was acknowledged.
    """

    cell: Cell
    offsets: OffsetSet
    run_id: str | None = None
    no_message: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAlive:
    """The leases on the offsets last ``lease_ms`` from now.

    With a ``delivery_count`` it is a holder's, sets the deadline and counts for that delivery only. With a
    ``run_id`` it is a planner's: it covers all leases of that run and never brings a deadline nearer.
    """

    cell: Cell
    offsets: OffsetSet
    lease_ms: int
    delivery_count: int | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The holder of this delivery gives the offsets back (Pulsar's negative acknowledgement).

    With ``due_ms`` they were not delivered, because they were not due: their deliveries count for nothing,
    and they are available from that instant of the broker's on.
    """

    cell: Cell
    offsets: OffsetSet
    delivery_count: int
    delay_ms: int | None = None  #: None: the tracker's backoff; 0: at once
    reason: str = ""
    due_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """The holder of this delivery sends the offsets to the dead letters."""

    cell: Cell
    offsets: OffsetSet
    delivery_count: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndUpTo:
    """Every offset below ``position`` is acknowledged (Pulsar's cumulative acknowledgement).

    With a ``run_id`` it is a planner's: what was never delivered stays.
    """

    cell: Cell
    position: int
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """Reading goes on from ``position``; what was outstanding is forgotten (Pulsar's reset-cursor).

    The cell has no owner then: a run goes on with it by saying Hello.
    """

    cell: Cell
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A run begins: it owns the cell from here on, and a new cell begins at ``position``."""

    cell: Cell
    run_id: str
    position: int
    topic_id: str | None = None  #: the id of the queue topic, as the broker tells it


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseBreaker:
    """The operator closes the breaker: what it held goes out, and dead letters are counted from nothing."""

    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """The breaker opens, for a trip: one that was for this trip already stays as it is."""

    cell: Cell
    trip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffsetObserved:
    """The queue partition ends at ``position``: every message below it is older than this marker."""

    cell: Cell
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """The subscription is gone, and nothing of the cell is kept (Pulsar's unsubscribe)."""

    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Withhold:
    """Dead letters could not be written: the tracker holds them, and tries again after ``delay_ms``.

    The tracker writes it itself, in the transaction in which it forgets the dead letters that were written.
    """

    cell: Cell
    offsets: OffsetSet
    delivery_count: int  #: and the following: of the dead letters
    reason: str
    error: str = ""
    last_delivery_ms: int = 0
    trouble: str  #: why they could not be written
    tries: int  #: how often they could not, this time included
    delay_ms: int


Marker = (
    Start
    | End
    | KeepAlive
    | Release
    | Reject
    | EndUpTo
    | Seek
    | Hello
    | CloseBreaker
    | OpenBreaker
    | EndOffsetObserved
    | Delete
    | Withhold
)
