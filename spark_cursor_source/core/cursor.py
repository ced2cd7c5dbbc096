"""Snapshot of the state of a cell, and the cursor derived from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from spark_cursor_source.core.blocked import NONE_BLOCKED, Blocked
from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.delivery_times import UNKNOWN, FirstDeliveries
from spark_cursor_source.core.limits import NO_LIMITS, Limits
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.ttl import MessageAges

OTHER_ERRORS = "one of many errors"
MAX_ERRORS = 1_000  #: limit of held groups of dead letters; further ones share one error text


class Lease(NamedTuple):
    """Attributes shared by messages that are leased together."""

    deadline_ms: int  #: broker time
    delivery_count: int
    run_id: str  #: the run that planned the delivery
    #: broker time of the Start, a multiple of 250 ms; 0: unknown. Of several Starts the earliest.
    started_ms: int = 0
    grouped: bool = False  #: a group of suspects, delivered together and without other messages
    left: bool = False  #: the sink has left the messages: the ack of their whole batch does not end them


class Delayed(NamedTuple):
    """Attributes shared by messages that become available together after a delay."""

    due_ms: int  #: broker time
    delivery_count: int  #: 0: never delivered, because the messages were not due
    died: bool  #: the run of the last delivery was dead when that delivery ended
    lapsed: bool = False  #: the lease expired while its run may have been alive
    grouped: bool = False  #: the last delivery was to a group of suspects


class Available(NamedTuple):
    """Attributes shared by messages that are available together."""

    delivery_count: int  #: 0: never delivered, because the messages were not due
    died: bool
    lapsed: bool = False
    grouped: bool = False


def is_over(wait: Delayed | Available, max_deliveries: int | None) -> bool:
    """True if no deliveries are left; suspects that died in a group have one more, each alone.

    >>> [is_over(Available(count, died=True, grouped=True), 2) for count in (1, 2, 3)]
    [False, False, True]
    """
    if max_deliveries is None or wait.delivery_count < max_deliveries:
        return False
    return not (wait.grouped and wait.delivery_count == max_deliveries)


class HeldLetters(NamedTuple):
    """Attributes shared by dead letters that are held together, by the breaker or after a failed write."""

    delivery_count: int
    reason: str
    error: str = ""
    last_delivery_ms: int = 0  #: broker time; 0: unknown
    trouble: str = ""  #: error of the last failed write; empty: the breaker holds the letters
    retry_ms: int = 0  #: broker time of the next retry
    tries: int = 0  #: number of failed writes; 0: the breaker holds the letters

    def of_many(self) -> HeldLetters:
        """Returns the attributes under which letters are held beyond ``MAX_ERRORS`` groups."""
        return self._replace(error=OTHER_ERRORS, last_delivery_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Cumulative counters of a cell since its creation, in messages."""

    delivered: int = 0
    acked: int = 0
    redelivered: int = 0  #: announced for another delivery
    dead_lettered: int = 0
    unknown_ends: int = 0  #: acked messages that were not outstanding: duplicate or late acks
    expired: int = 0  #: older than the TTL; includes log gaps among never-delivered offsets
    overlapped: int = 0  #: delivered or ended by a run that did not own the cell
    #: settlements (release, reject, extend) without a matching lease: late, or of unknown messages
    unknown_settlements: int = 0
    gaps: int = 0  #: leased offsets without a message, such as transaction markers
    lease_timeouts: int = 0  #: leases that expired
    released: int = 0  #: given back by the consumer, or by a planner for a run that died
    rejected: int = 0  #: rejected by the consumer


class MarkersLog(NamedTuple):
    """Markers topic that a cell's tracker reads."""

    topic: str
    topic_id: str  #: a recreated topic of the same name has another id


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """State of a cell under a name, to restore it later: its read position and its outstanding messages."""

    name: str
    at_ms: int  #: broker time of the marker that saved it
    read_position: int
    next_marker: int  #: the first marker offset that this state does not include
    outstanding: tuple[tuple[int, OffsetSet], ...] = ()  #: offsets by delivery count, in its order
    move: str = ""  #: id of the move that it was saved before, the same in all cells; empty: unknown or none

    @property
    def offsets(self) -> OffsetSet:
        """Outstanding offsets."""
        return OffsetSet.union(offsets for _, offsets in self.outstanding)

    @property
    def ended_below(self) -> int:
        """Position below which all messages have ended."""
        first = self.offsets.first
        return self.read_position if first is None else first


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorSnapshot:
    """Complete tracker state of a cell: exactly the input that ``resume`` needs.

    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> cursor = CursorSnapshot(
    ...     cell=cell, read_position=10, next_marker=7,
    ...     leases=((Lease(60_000, 1, "run"), OffsetSet.of((2, 3), (5, 6))),))
    >>> cursor.mark_delete, cursor.ack_holes.ranges
    (1, ((3, 5), (6, 10)))
    """

    cell: Cell
    read_position: int
    next_marker: int  #: the first marker offset that this state does not include
    leases: tuple[tuple[Lease, OffsetSet], ...] = ()
    delayed: tuple[tuple[Delayed, OffsetSet], ...] = ()
    available: tuple[tuple[Available, OffsetSet], ...] = ()
    #: dead letters that wait for the breaker to close or for a retry
    held: tuple[tuple[HeldLetters, OffsetSet], ...] = ()
    blocked: Blocked = NONE_BLOCKED  #: messages that wait behind an earlier message of their key
    owner: str | None = None  #: run that receives the announcements of redeliveries
    max_deliveries: int | None = None  #: None: no limit
    markers_partition: int = 0  #: partition of the markers topic with this cell's markers
    topic_id: str | None = None  #: id of the queue topic that these offsets belong to; None: unknown
    totals: Totals = field(default_factory=Totals)
    breaker: Breaker = field(default_factory=Breaker)
    ages: MessageAges = field(default_factory=MessageAges)
    first_deliveries: FirstDeliveries = UNKNOWN  #: first delivery times of the outstanding offsets
    sought: bool = False  #: a Seek has happened: only deliveries of the owner count since
    owner_seen_ms: int = 0  #: broker time of the owner's last marker; 0: unknown
    paused_ms: int | None = None  #: broker time of the pause; None: the subscription is not paused
    limits: Limits = NO_LIMITS  #: set by an operator for the whole subscription
    saved: tuple[SavedState, ...] = ()  #: earlier states under their names, each name once, the oldest first
    undo_of_next: SavedState | None = None  #: state before the move whose marker comes next
    #: broker time of the last Seek, restore or Requeue, which began a generation of messages; 0: none has
    generation_ms: int = 0
    #: markers topic of the tracker; None: unknown, as in a tracker's own state and earlier versions
    log: MarkersLog | None = None

    def is_of_another(self, topic_id: str | None) -> bool:
        """True for a cursor of a deleted topic, if the present topic of that name has this id."""
        return None not in (topic_id, self.topic_id) and topic_id != self.topic_id

    @property
    def leased(self) -> OffsetSet:
        """Offsets that are delivered and not yet settled."""
        return OffsetSet.union(offsets for _, offsets in self.leases)

    @property
    def waiting(self) -> OffsetSet:
        """Offsets that are available now or after a delay."""
        groups = [offsets for _, offsets in self.delayed] + [offsets for _, offsets in self.available]
        return OffsetSet.union(groups)

    @property
    def outstanding(self) -> OffsetSet:
        """Offsets that are leased, delayed, available, blocked or held."""
        held = (offsets for _, offsets in self.held)
        return OffsetSet.union([self.leased, self.waiting, self.blocked.offsets, *held])

    @property
    def mark_delete(self) -> int:
        """Mark-delete position: every offset up to this one, inclusive, is acknowledged; -1 if none is."""
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
        """Broker time of the next expiry of a lease, delay, message or breaker pause; None if none is set.

        The next retry of dead letters that could not be written counts too. Available messages without a
        delivery left are due at once, that is at 0, and so are expired messages beyond those that one batch
        copies. While the breaker is open, leases and messages do not expire, dead letters are not retried,
        and available messages stay.
        """
        times: list[int | None] = [delay.due_ms for delay, _ in self.delayed]
        if self.breaker.is_open:
            times.append(self.breaker.closes_ms)
        else:
            times += [lease.deadline_ms for lease, _ in self.leases]
            times += [held.retry_ms for held, _ in self.held if held.tries]
            times.append(self.ages.next_ms)
            times += [0 for wait, _ in self.available if is_over(wait, self.max_deliveries)]
            times += [0] if self._has_expired else []
        return min((time for time in times if time is not None), default=None)

    @property
    def _has_expired(self) -> bool:
        below = self.ages.expired_below
        waiting = (some for groups in (self.delayed, self.available) for _, some in groups)
        return below > 0 and (
            self.read_position < below
            or any(some.first is not None and some.first < below for some in (self.blocked.offsets, *waiting))
        )

    @property
    def trouble(self) -> str | None:
        """Error of the latest failed write of dead letters that are held; None if no write failed."""
        troubled = [held for held, _ in self.held if held.tries]
        return max(troubled, key=lambda held: held.retry_ms).trouble if troubled else None

    @property
    def next_try_ms(self) -> int | None:
        """Broker time of the next retry of dead letters that could not be written; None if no write failed.

        Also None until the tracker has read its own Withhold marker for them.
        """
        return min((held.retry_ms for held, _ in self.held if held.tries and held.retry_ms), default=None)

    def withholding(self, letters: Iterable[tuple[HeldLetters, OffsetSet]]) -> CursorSnapshot:
        """Returns a copy in which dead letters that could not be written are outstanding again.

        A Seek or restore after the decision may have made some of them unread or outstanding. These stay so.
        """
        letters = list(letters)
        gone = OffsetSet.union(offsets for _, offsets in letters)
        gone = gone.below(self.read_position) - self.outstanding
        written = max(0, self.totals.dead_lettered - len(gone))
        groups = {held: [offsets] for held, offsets in self.held}
        for held, offsets in letters:
            if some := offsets & gone:
                gone -= some  # two letters can be of one message
                known = held in groups or len(groups) < MAX_ERRORS
                groups.setdefault(held if known else held.of_many(), []).append(some)
        united = [(held, OffsetSet.union(some)) for held, some in groups.items()]
        return replace(
            self,
            held=tuple(sorted(united, key=lambda item: item[0])),
            totals=replace(self.totals, dead_lettered=written),
        )

    def position_past(self, messages: int, *, end: int) -> int:
        """Returns the position with ``messages`` outstanding or unread messages below it, at most ``end``.

        Unread messages are counted by offset: an offset without a message counts too.

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
        """Returns the outstanding offsets by delivery count."""
        counts: dict[int, list[OffsetSet]] = {}
        groups: list[tuple[Lease | Delayed | Available | HeldLetters, OffsetSet]]
        groups = [*self.leases, *self.delayed, *self.available, *self.held]
        for group, offsets in groups:
            counts.setdefault(group.delivery_count, []).append(offsets)
        for count, offsets in self.blocked.by_count():
            counts.setdefault(count, []).append(offsets)
        return {count: OffsetSet.union(sets) for count, sets in counts.items()}
