"""The whole state of a cell at one moment, and the cursor that is read off it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.delivery_times import UNKNOWN, FirstDeliveries
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.ttl import MessageAges


class Lease(NamedTuple):
    """What messages that are leased together have in common."""

    deadline_ms: int  #: broker time, on a quarter of a second
    delivery_count: int
    run_id: str  #: the run that planned the delivery
    started_ms: int = 0  #: broker time of its Start, on a quarter of a second; 0: not known
    grouped: bool = False  #: they are suspects, delivered together and with nothing else


class Delayed(NamedTuple):
    """What messages that wait for the end of their backoff together have in common."""

    due_ms: int  #: broker time, on a quarter of a second
    delivery_count: int  #: 0: never delivered, because it was not due
    died: bool  #: whether the run of the last delivery was gone when it ended
    lapsed: bool = False  #: the lease ran out, and nobody knows yet whether its run was gone
    grouped: bool = False  #: the last delivery was that of several suspects together


class Available(NamedTuple):
    """What messages that are available together have in common."""

    delivery_count: int  #: 0: never delivered, because it was not due
    died: bool
    lapsed: bool = False
    grouped: bool = False


class HeldLetters(NamedTuple):
    """What dead letters that are held together have in common: by the breaker, or because of a trouble."""

    delivery_count: int
    reason: str
    error: str = ""
    last_delivery_ms: int = 0  #: broker time; 0: not known
    trouble: str = ""  #: why they could not be written; empty: the breaker holds them
    retry_ms: int = 0  #: broker time after which they are tried again, on a quarter of a second
    tries: int = 0  #: how often they could not be written; 0: the breaker holds them


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What happened to the messages of a cell since its beginning, in messages."""

    delivered: int = 0
    acked: int = 0
    redelivered: int = 0  #: announced for another delivery
    dead_lettered: int = 0
    unknown_ends: int = 0  #: acknowledged, but not outstanding: duplicates, or too late
    expired: int = 0  #: older than the TTL; of those that were never delivered, gaps of the log count too
    overlapped: int = 0  #: delivered or ended by a run that was not the owner
    #: released or rejected for a delivery that has no lease, or extended and not ended: too late, or unknown
    unknown_settlements: int = 0
    gaps: int = 0  #: offsets that were leased and hold no message: marks of transactions, and the like


class MarkersLog(NamedTuple):
    """The markers topic that a cell's tracker reads."""

    topic: str
    topic_id: str  #: a topic made again under the same name has another


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorSnapshot:
    """Everything the tracker knows of a cell: what a ``resume`` needs and nothing else.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> cursor = CursorSnapshot(
    ...     cell=cell, read_position=10, next_marker=7,
    ...     leases=((Lease(60_000, 1, "run"), OffsetSet.of((2, 3), (5, 6))),))
    >>> cursor.mark_delete, cursor.ack_holes.ranges
    (1, ((3, 5), (6, 10)))
    """

    cell: Cell
    read_position: int
    next_marker: int  #: the first marker offset that is not in this state
    leases: tuple[tuple[Lease, OffsetSet], ...] = ()
    delayed: tuple[tuple[Delayed, OffsetSet], ...] = ()
    available: tuple[tuple[Available, OffsetSet], ...] = ()
    #: dead letters that wait for the breaker to close, or to be tried again
    held: tuple[tuple[HeldLetters, OffsetSet], ...] = ()
    owner: str | None = None  #: the run that redeliveries are announced to
    max_deliveries: int | None = None  #: None: no limit
    markers_partition: int = 0  #: where the cell's markers are
    topic_id: str | None = None  #: of the queue topic whose offsets these are; None: nobody has told it
    totals: Totals = field(default_factory=Totals)
    breaker: Breaker = field(default_factory=Breaker)
    ages: MessageAges = field(default_factory=MessageAges)
    first_deliveries: FirstDeliveries = UNKNOWN  #: of the outstanding offsets
    sought: bool = False  #: there was a Seek: from it on, only what the owner delivers counts
    owner_seen_ms: int = 0  #: broker time of the owner's last marker; 0: not known
    #: where its markers are read; None: not told, as in a tracker's state and by earlier versions
    log: MarkersLog | None = None

    @property
    def leased(self) -> OffsetSet:
        """Delivered and neither acknowledged nor given back yet."""
        return OffsetSet.union(offsets for _, offsets in self.leases)

    @property
    def waiting(self) -> OffsetSet:
        """Available, now or after a delay."""
        groups = [offsets for _, offsets in self.delayed] + [offsets for _, offsets in self.available]
        return OffsetSet.union(groups)

    @property
    def outstanding(self) -> OffsetSet:
        """Leased, available and held together."""
        return OffsetSet.union([self.leased, self.waiting, *(offsets for _, offsets in self.held)])

    @property
    def mark_delete(self) -> int:
        """The last offset below which, itself included, everything is acknowledged; -1 if there is none."""
        first = self.outstanding.first
        return (self.read_position if first is None else min(first, self.read_position)) - 1

    @property
    def ack_holes(self) -> OffsetSet:
        """Acknowledged offsets above the mark-delete position (Pulsar's individually deleted ranges)."""
        outstanding = self.outstanding
        if not outstanding:
            return EMPTY
        return OffsetSet.of((self.mark_delete + 1, self.read_position)) - outstanding

    @property
    def next_event_ms(self) -> int | None:
        """When, in broker time, the next lease, delay, message or breaker is over; None if nothing waits.

        Dead letters that could not be written count too, with their next try. While the breaker is open,
        leases do not run out, messages do not expire, and no dead letter is tried.
        """
        times: list[int | None] = [delay.due_ms for delay, _ in self.delayed]
        if self.breaker.is_open:
            times.append(self.breaker.closes_ms)
        else:
            times += [lease.deadline_ms for lease, _ in self.leases]
            times += [held.retry_ms for held, _ in self.held if held.tries]
            times.append(self.ages.next_ms)
        return min((time for time in times if time is not None), default=None)

    @property
    def trouble(self) -> str | None:
        """Why dead letters could not be written, at the latest try of several; None where all could."""
        troubled = [held for held, _ in self.held if held.tries]
        return max(troubled, key=lambda held: held.retry_ms).trouble if troubled else None

    @property
    def next_try_ms(self) -> int | None:
        """When, in broker time, such dead letters are tried again; None where there are none.

        None, too, while the tracker has not read its own marker about them.
        """
        return min((held.retry_ms for held, _ in self.held if held.tries and held.retry_ms), default=None)

    def withholding(self, held: HeldLetters, offsets: OffsetSet) -> CursorSnapshot:
        """The same with dead letters that could not be written, which are outstanding again."""
        groups = dict(self.held)
        groups[held] = groups.get(held, EMPTY) | offsets
        letters = max(0, self.totals.dead_lettered - len(offsets))
        return replace(
            self,
            held=tuple(sorted(groups.items(), key=lambda item: item[0])),
            totals=replace(self.totals, dead_lettered=letters),
        )

    def position_past(self, messages: int, *, end: int) -> int:
        """The position below which so many lie that are outstanding or unread, at most ``end``.

        What is unread is counted by its offsets: one that holds no message counts too.

        >>> cell = Cell(subscription="s", topic="t", partition=0)
        >>> held = ((Lease(60_000, 1, "run"), OffsetSet.of((2, 4), (7, 8))),)
        >>> cursor = CursorSnapshot(cell=cell, read_position=10, next_marker=7, leases=held)
        >>> [cursor.position_past(n, end=15) for n in (0, 1, 3, 5, 99)]
        [2, 3, 8, 12, 15]
        """
        outstanding = self.outstanding
        if not messages:
            return self.mark_delete + 1
        if messages > len(outstanding):
            return max(self.read_position, min(end, self.read_position + messages - len(outstanding)))
        return next(islice(outstanding, messages - 1, None)) + 1

    def delivery_counts(self) -> dict[int, OffsetSet]:
        """The outstanding offsets by how often they were delivered."""
        counts: dict[int, list[OffsetSet]] = {}
        groups: list[tuple[Lease | Delayed | Available | HeldLetters, OffsetSet]]
        groups = [*self.leases, *self.delayed, *self.available, *self.held]
        for group, offsets in groups:
            counts.setdefault(group.delivery_count, []).append(offsets)
        return {count: OffsetSet.union(sets) for count, sets in counts.items()}
