"""Life cycle of a message, as a state machine without I/O.

The table has every rule, one line each. A message is *gone* when it is acked, dead-lettered, expired or below
the read position. A message is *old* when its age exceeds the TTL. *max* is the maximum number of deliveries.

=============  ==========================================================================================
unseen         + Start -> leased(1) · EndUpTo or Seek above it -> gone · old -> gone · anything else -> unseen
leased(n)      + End, EndUpTo above it -> gone
               + EndLeased of delivery n by its run -> gone, but left(n) is unchanged
               + Leave of delivery n (and of its run) -> left(n): leased(n) in all, but for the line above
               + Release of delivery n that was not due -> delayed(0) or available(0)
               + Block of delivery n -> blocked(n-1)
               + Start -> leased(n+1) · same run and count: only the deadline moves · n = max: unchanged
               + KeepAlive of that delivery or run -> leased(n), with a new deadline
               + Release of delivery n -> delayed(n) or available(n) · n = max: dead letter
               + Reject of delivery n -> dead letter
               + lease expires -> delayed(n) for the backoff, or available(n) · n = max: dead letter, but a
                 member of a group of suspects -> available(max), for one more delivery, alone
               + MemberLost of its run by the owner -> as if the lease expired, but without a backoff; left(n)
                 is unchanged
delayed(n)     + End, EndUpTo, old -> gone · n = 0: a planner's End or EndUpTo leaves it unchanged
               + Start -> leased(n+1) · n = max: unchanged
               + delay ends -> available(n)
available(n)   + End, EndUpTo, old -> gone · n = 0: a planner's End or EndUpTo leaves it unchanged
               + Start -> leased(n+1) · n = max: unchanged
               + Hello of a new run -> announced to it; the run of an expired lease now counts as dead
               + n = max, because max was lowered -> dead letter, but not a member of a group of suspects
blocked(n)     + End, EndUpTo, old -> gone · n = 0: a planner's End or EndUpTo leaves it unchanged
               + Start -> leased(n+1) · n = max: unchanged
               + the message that it waits for is gone -> available(n)
dead letter    -> gone · the breaker is open, or opens: held
held           + End, EndUpTo -> gone · the breaker closes: dead letter, gone · anything else -> held
               + Withhold -> troubled
troubled       + End, EndUpTo -> gone · next retry, or CloseBreaker: dead letter, gone · Withhold: later retry
gone           + Withhold -> troubled (the dead letter could not be written, so the tracker holds it)
               + Requeue -> available(0)
               + anything else -> gone (an ack wins)
any            + Seek -> unseen at its position and above, gone below · the cell loses its owner
               + RestoreState -> unseen at the saved read position and above; what was outstanding then ->
                 available(n), or available(max - 1) if n = max; all else gone · the cell loses its owner
               + SaveState, ForgetState -> unchanged
               + Delete -> the cell does not exist, nor do its saved states
               + Pause, EndPause -> unchanged; between them consumers lease nothing new
               + SetLimits -> unchanged; consumers obey the limits
any            + Start, End, KeepAlive, Release, Reject with the id of another queue topic -> unchanged
no cell        + Hello, Seek -> unseen at its position and above, gone below · anything else -> no cell
=============  ==========================================================================================

After a Seek, the tracker accepts Starts and planners' EndUpTo only from the owner, the run that wrote a Hello
after the Seek. Starts and EndUpTo of other runs change nothing, because those runs do not know of the Seek.

A cell has at most 8 saved states. Further names are not saved. The state ``undo`` always is, beside the
others, and is forgotten after a week. A move that changes nothing does not replace it, so that a command that
arrives twice can be undone. A restore of an unknown name, or of a state that was replaced since, changes
nothing.

An EndLeased ends nothing but leases. A Release, Reject or Leave that came too late has changed nothing, so
that an expired lease may be of a message that its sink has not acknowledged.

While the breaker is open, leases do not expire, also not by MemberLost, messages do not become old, and dead
letters are not retried.
The breaker opens when dead letters exceed the limit, and by OpenBreaker. It closes when its pause ends, and
by CloseBreaker.

The rules follow Pulsar (individual and cumulative acknowledgement), SQS (leases, receive count, FIFO message
groups) and kafka-mq-go (markers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TypeVar, assert_never

from spark_cursor_source.core.blocked import BlockedMessages
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import (
    MAX_ERRORS,
    Available,
    CursorSnapshot,
    Delayed,
    HeldLetters,
    Lease,
    SavedState,
    Totals,
    is_over,
)
from spark_cursor_source.core.delivery_times import UNKNOWN, FirstDeliveries
from spark_cursor_source.core.lease_groups import (
    MANY_GROUPS,
    LeaseGroups,
    coarser,
    rounded_deadline,
    rounded_start,
)
from spark_cursor_source.core.marker import (
    MAX_LEASE_MS,
    UNDO,
    Block,
    CloseBreaker,
    Delete,
    End,
    EndLeased,
    EndOffsetObserved,
    EndPause,
    EndUpTo,
    ForgetState,
    Hello,
    KeepAlive,
    Leave,
    Marker,
    MemberLost,
    OpenBreaker,
    Pause,
    Reject,
    Release,
    Requeue,
    RestoreState,
    SaveState,
    Seek,
    SetLimits,
    Start,
    Withhold,
    is_of_another_topic,
)
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.poison import isolation_groups
from spark_cursor_source.core.policy import ExpiredTo, RedeliveryPolicy

MAX_DELIVERIES = "max-deliveries"  #: dead-letter reason: no deliveries are left
REJECTED = "rejected"  #: dead-letter reason: the handler rejected the message
EXPIRED = "expired"  #: dead-letter reason: older than the TTL
#: limit of expired messages of a cell that one batch copies as dead letters
MAX_EXPIRED = 100_000
MAX_SAVED = 8  #: limit of saved states of a cell beside ``UNDO``
_MOST_COUNT = 2**63 - 1  # in the views, a count is a signed 64-bit number
UNDO_MS = 7 * 86_400_000  #: the state ``UNDO`` is kept for this time


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeliver:
    """Decision to announce available offsets to ``run_id``, after ``delivery_count`` deliveries.

    Messages that were never delivered (count 0) are announced to a run only once. The run could not
    distinguish a repeated announcement from an announcement after another Release.
    """

    cell: Cell
    offsets: OffsetSet
    delivery_count: int
    run_id: str
    alone: bool  #: a batch with these messages holds no others


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Decision to copy messages to the dead-letter topic."""

    cell: Cell
    offsets: OffsetSet
    delivery_count: int
    reason: str  #: one word, such as ``REJECTED``
    error: str = ""  #: the handler's error for the last delivery; empty: none
    last_delivery_ms: int | None = None  #: broker time; None: unknown
    #: without a last delivery, begin of the generation of messages; None: the first one
    generation_ms: int | None = None
    first_deliveries: FirstDeliveries = UNKNOWN
    tries: int = 0  #: failed attempts to write these dead letters so far


Decision = Redeliver | DeadLetter

_Timed = TypeVar("_Timed", Lease, Delayed)


class CellTracker:
    """Tracks the messages of one cell that are neither unseen nor gone.

    :meth:`apply` takes markers in log order, and :meth:`advance` ends each batch of markers. The caller
    carries out the decisions. :meth:`resume` creates a tracker from a snapshot and :meth:`snapshot` takes
    one. ``resume(snapshot())`` restores the tracker exactly.
    """

    def __init__(self, snapshot: CursorSnapshot, policy: RedeliveryPolicy, *, exists: bool) -> None:
        self._policy = policy
        self._exists = exists
        self._decisions: list[Decision] = []  # empty between batches
        self._applied_ms: int | None = None  # append time of the last marker
        self._load(snapshot)

    def _load(self, snapshot: CursorSnapshot) -> None:
        self._cell = snapshot.cell
        self._read_position = snapshot.read_position
        self._next_marker = snapshot.next_marker
        self._owner = snapshot.owner
        self._owner_seen_ms = snapshot.owner_seen_ms
        self._sought = snapshot.sought
        self._paused_ms = snapshot.paused_ms
        self._limits = snapshot.limits
        self._saved = {one.name: one for one in snapshot.saved}
        self._undo_of_next = snapshot.undo_of_next
        self._generation_ms = snapshot.generation_ms
        self._markers_partition = snapshot.markers_partition
        self._topic_id = snapshot.topic_id
        self._leases = LeaseGroups(snapshot.leases)
        self._delayed = LeaseGroups(snapshot.delayed)
        self._available = LeaseGroups(snapshot.available)
        self._held = LeaseGroups(snapshot.held)
        self._blocked = BlockedMessages(snapshot.blocked)
        self._breaker = snapshot.breaker
        self._ages = snapshot.ages.of_ttl(self._policy.message_ttl_ms)
        self._first_deliveries = snapshot.first_deliveries
        self._unannounced: LeaseGroups[Available] = LeaseGroups()  # empty between batches
        self._tally = Counter({field.name: getattr(snapshot.totals, field.name) for field in fields(Totals)})

    @classmethod
    def resume(
        cls,
        snapshot: CursorSnapshot | None,
        *,
        cell: Cell,
        policy: RedeliveryPolicy,
        markers_partition: int = 0,
    ) -> CellTracker:
        """Returns the tracker of ``cell`` with the state of ``snapshot``; None: the cell does not exist."""
        new = CursorSnapshot(cell=cell, read_position=0, next_marker=0, markers_partition=markers_partition)
        return cls(new if snapshot is None else snapshot, policy, exists=snapshot is not None)

    @property
    def exists(self) -> bool:
        """True if the cell exists: a Hello or Seek has created it, and no Delete has followed."""
        return self._exists

    @property
    def cell(self) -> Cell:
        """The cell that these messages belong to."""
        return self._cell

    def snapshot(self) -> CursorSnapshot | None:
        """Returns the state between two batches, or None if the cell does not exist."""
        if not self._exists:
            return None
        return CursorSnapshot(
            cell=self._cell,
            read_position=self._read_position,
            next_marker=self._next_marker,
            leases=self._leases.in_order(),
            delayed=self._delayed.in_order(),
            available=self._available.in_order(),
            held=self._held.in_order(),
            blocked=self._blocked.snapshot(),
            owner=self._owner,
            max_deliveries=self._policy.max_deliveries,
            markers_partition=self._markers_partition,
            topic_id=self._topic_id,
            totals=Totals(**{name: min(count, _MOST_COUNT) for name, count in self._tally.items()}),
            breaker=self._breaker,
            ages=self._ages,
            first_deliveries=self._first_deliveries,
            sought=self._sought,
            owner_seen_ms=self._owner_seen_ms,
            paused_ms=self._paused_ms,
            limits=self._limits,
            saved=tuple(self._saved.values()),
            undo_of_next=self._undo_of_next,
            generation_ms=self._generation_ms,
        )

    def apply(self, marker: Marker, *, at_ms: int, marker_offset: int) -> None:
        """Applies a marker that the broker appended at ``at_ms``.

        Skips a marker that the state already includes (its offset is below ``next_marker``).
        """
        if marker_offset < self._next_marker:
            return
        self._next_marker = marker_offset + 1
        self._applied_ms = at_ms
        # A late marker of a run that does not know of the Delete must not recreate the cell.
        self._exists = self._exists or isinstance(marker, (Hello, Seek))
        if not self._exists:
            return
        if is_of_another_topic(marker, self._topic_id):
            self._count_ignored(marker)
            return
        if self._undo_of_next is not None and _is_move(marker):
            self._move(marker, at_ms, self._undo_of_next)
        else:
            self._take_in(marker, at_ms)
        if isinstance(marker, (Hello, Start, KeepAlive, End, EndLeased, EndUpTo, MemberLost)):
            run = marker.run_id
            self._owner_seen_ms = at_ms if run and run == self._owner else self._owner_seen_ms

    def _count_ignored(self, marker: Marker) -> None:
        match marker:
            case Start():
                self._tally["overlapped"] += len(marker.offsets)
            case End():
                self._tally["unknown_ends"] += len(marker.offsets)
            case KeepAlive() | Release() | Reject():
                self._tally["unknown_settlements"] += len(marker.offsets)

    def _take_in(self, marker: Marker, at_ms: int) -> None:
        match marker:
            case Start():
                self._start(marker, at_ms)
            case End():
                self._end(marker)
            case EndLeased():
                self._end_leased(marker)
            case Leave():
                self._leave(marker)
            case EndUpTo():
                self._end_up_to(marker)
            case KeepAlive():
                self._keep_alive(marker, at_ms)
            case Release():
                self._release(marker, at_ms)
            case Block():
                self._block(marker)
            case Reject():
                self._reject(marker, at_ms)
            case Withhold():
                self._withhold(marker, at_ms)
            case Requeue():
                self._requeue(marker, at_ms)
            case _:
                self._take_in_for_cell(marker, at_ms)

    def _take_in_for_cell(
        self,
        marker: Seek
        | Hello
        | MemberLost
        | CloseBreaker
        | OpenBreaker
        | EndOffsetObserved
        | Delete
        | Pause
        | EndPause
        | SetLimits
        | SaveState
        | RestoreState
        | ForgetState,
        at_ms: int,
    ) -> None:
        """Applies a marker that concerns the whole cell instead of messages."""
        match marker:
            case Seek():
                self._seek(marker.position, at_ms)
            case Hello():
                self._hello(marker)
            case MemberLost():
                self._lose_member(marker, at_ms)
            case CloseBreaker():
                self._close_breaker(troubled=True)
            case OpenBreaker():
                if self._policy.breaker.limit is not None and marker.trip != self._breaker.trip:
                    self._breaker = self._breaker.opened(marker.trip, at_ms, self._policy.breaker)
            case EndOffsetObserved():
                self._ages = self._ages.seen(at_ms, marker.position)
            case Delete():
                self._delete()
            case Pause():
                self._paused_ms = at_ms if self._paused_ms is None else self._paused_ms
            case EndPause():
                self._paused_ms = None
            case SetLimits(limits=limits):
                self._limits = limits
            case _:
                self._take_in_for_saved(marker, at_ms)

    def _take_in_for_saved(self, marker: SaveState | RestoreState | ForgetState, at_ms: int) -> None:
        match marker:
            case SaveState():
                self._save(marker, at_ms)
            case RestoreState():
                self._restore(marker, at_ms)
            case ForgetState(name=name):
                self._saved.pop(name, None)
            case _:
                assert_never(marker)

    def advance(self, now_ms: int | None) -> list[Decision]:
        """Ends a batch of markers and returns the decisions that follow from it.

        ``now_ms`` is broker time: leases, delays, messages and breaker pauses that are over by then end too.
        Pass None if the log has more markers to read first. A deadline has passed when ``now_ms`` is *after*
        it.
        """
        if now_ms is not None:
            self._look_at_breaker(now_ms)
            self._try_again(now_ms)
            self._expire(now_ms)
            self._breaker = self._breaker.seen(now_ms, self._policy.breaker)
            if (undo := self._saved.get(UNDO)) is not None and undo.at_ms + UNDO_MS < now_ms:
                del self._saved[UNDO]
        self._merge_leases(now_ms)
        self._end_the_old(now_ms)
        while self._unblock():
            if now_ms is not None:
                self._end_exhausted(now_ms)
        if self._owner is not None:
            self._announce(self._owner)
        self._unannounced = LeaseGroups()
        decisions, self._decisions = self._decisions, []
        # A dead letter that cannot be written returns in the next batch and then needs its delivery times.
        letters = [one.offsets.first for one in decisions if isinstance(one, DeadLetter)]
        firsts = [first for first in (self._first_outstanding(), *letters) if first is not None]
        self._first_deliveries = self._first_deliveries.since(min(firsts, default=None))
        return decisions

    def _merge_leases(self, now_ms: int | None) -> None:
        # A log that is never read to its end must not keep a group of leases for each batch. The time of the
        # last marker is earlier than now, so deadlines move later, never earlier.
        at_ms = self._applied_ms if now_ms is None else now_ms
        if at_ms is not None and len(self._leases) > MANY_GROUPS:
            self._leases = coarser(self._leases, at_ms)

    def _start(self, marker: Start, at_ms: int) -> None:
        run, least = marker.run_id, marker.delivery_count
        if self._is_past(run):
            self._tally["overlapped"] += len(marker.offsets)
            return
        leased = 0
        deadline, started = _deadline(at_ms, marker.lease_ms), rounded_start(at_ms)
        grouped = marker.alone and len(marker.offsets) > 1
        groups: list[tuple[Lease | Delayed | Available, OffsetSet]] = [
            *self._leases,
            *self._delayed,
            *self._available,
            *((_unblocked(count), some) for count, some in self._blocked.some(marker.offsets)),
        ]
        outstanding = [(offsets & marker.offsets, group) for group, offsets in groups]
        fresh = marker.offsets.starting_at(self._read_position)
        for offsets in self._held.offsets():
            fresh = fresh - offsets
        for offsets, group in outstanding:
            if not offsets:
                continue
            fresh = fresh - offsets
            count = group.delivery_count
            if isinstance(group, Lease) and group.run_id == run and least <= count:
                lease = group._replace(deadline_ms=deadline)
            elif self._policy.exhausted(count) if isinstance(group, Lease) else self._is_over(group):
                continue  # no deliveries left: a dead letter follows when the lease or delay ends
            else:
                lease = Lease(deadline, max(count + 1, least), run, started, grouped)
                self._tally["delivered"] += len(offsets)
            self._take(offsets)
            self._leases.add(lease, offsets)
            leased += len(offsets)
        if fresh:
            self._leases.add(Lease(deadline, least, run, started, grouped), fresh)
            self._tally["delivered"] += len(fresh)
            leased += len(fresh)
            first_ms = started if least == 1 else 0
            self._first_deliveries = self._first_deliveries.then(fresh.first or 0, first_ms)
        if marker.offsets.last is not None:
            self._read_position = max(self._read_position, marker.offsets.last + 1)
        if self._owner is None:
            self._owner = run
        elif self._owner != run:
            self._tally["overlapped"] += leased

    def _is_past(self, run: str) -> bool:
        """True if the run is not the owner after a Seek, and so does not know of the Seek."""
        return self._sought and run != self._owner

    def _end(self, marker: End) -> None:
        acked = marker.offsets - self._spared(marker)
        if marker.no_message:
            self._end_gaps(acked)
        else:
            ended = self._take(acked)
            self._tally["acked"] += ended
            self._tally["unknown_ends"] += len(acked) - ended

    def _end_leased(self, marker: EndLeased) -> None:
        holder = (marker.run_id, marker.delivery_count)
        for lease, offsets in self._leases:
            if (lease.run_id, lease.delivery_count) != holder or lease.left:
                continue
            if ended := offsets & marker.offsets:
                self._leases.remove(lease, ended)
                self._tally["acked"] += len(ended)

    def _leave(self, marker: Leave) -> None:
        left = 0
        for lease, offsets in self._leased_at(marker.offsets, marker.delivery_count):
            left += len(offsets)
            is_left = lease.left or marker.run_id in (None, lease.run_id)
            self._leases.add(lease._replace(left=is_left), offsets)
        if marker.run_id is None:
            self._tally["unknown_settlements"] += len(marker.offsets) - left

    def _end_gaps(self, offsets: OffsetSet) -> None:
        """Removes offsets that hold no message, and counts them as neither delivered nor acknowledged."""
        for leased in self._leases.offsets():
            self._tally["delivered"] -= len(leased & offsets)
        self._tally["gaps"] += self._take(offsets)

    def _end_up_to(self, marker: EndUpTo) -> None:
        ended = self._outstanding().below(marker.position) - self._spared(marker)
        if marker.run_id is not None and self._is_past(marker.run_id):
            self._tally["overlapped"] += len(ended)
            return
        self._tally["acked"] += self._take(ended)
        self._read_position = max(self._read_position, marker.position)

    def _delete(self) -> None:
        self._exists = False
        self._load(
            CursorSnapshot(
                cell=self._cell,
                read_position=0,
                next_marker=self._next_marker,
                markers_partition=self._markers_partition,
            )
        )

    def _keep_alive(self, marker: KeepAlive, at_ms: int) -> None:
        deadline = _deadline(at_ms, marker.lease_ms)
        missed = marker.offsets
        for lease, offsets in self._leases:
            if marker.delivery_count is not None and lease.delivery_count != marker.delivery_count:
                continue
            if marker.run_id is not None and (lease.run_id != marker.run_id or lease.deadline_ms >= deadline):
                continue
            kept = offsets & marker.offsets
            if kept:
                missed = missed - kept
                self._leases.remove(lease, kept)
                self._leases.add(lease._replace(deadline_ms=deadline), kept)
        # Ended offsets are not unknown: Ends and KeepAlives of one batch may arrive in either order.
        if missed and marker.run_id is None and marker.delivery_count is not None:
            unknown = (missed & self._outstanding()) | missed.starting_at(self._read_position)
            self._tally["unknown_settlements"] += len(unknown)

    def _release(self, marker: Release, at_ms: int) -> None:
        if marker.due_ms is not None:
            self._take_back(marker, marker.due_ms, at_ms)
            return
        released = 0
        for lease, offsets in self._leased_at(marker.offsets, marker.delivery_count):
            released += len(offsets)
            count = lease.delivery_count
            if self._policy.exhausted(count):
                self._dead_letter(offsets, lease, MAX_DELIVERIES, at_ms, error=marker.reason)
                continue
            delay_ms = marker.delay_ms
            if delay_ms is None:
                delay_ms = self._wait_ms(count, offsets)
            died = self._died(lease)
            wait = Available(count, died, grouped=died and lease.grouped)
            self._give_back(wait, offsets, at_ms=at_ms, delay_ms=delay_ms)
        self._tally["released"] += released
        self._tally["unknown_settlements"] += len(marker.offsets) - released

    def _take_back(self, marker: Release, due_ms: int, at_ms: int) -> None:
        """Cancels the delivery of offsets that were not due, so that it does not count."""
        for lease, held in self._leases.in_order():
            # A lease that began after the due time is a real delivery: a late Release must not end it.
            if lease.delivery_count != marker.delivery_count or lease.started_ms > due_ms:
                continue
            if taken := held & marker.offsets:
                self._leases.remove(lease, taken)
                self._tally["delivered"] -= len(taken)
                self._give_back(Available(0, died=False), taken, at_ms=at_ms, delay_ms=due_ms - at_ms)

    def _block(self, marker: Block) -> None:
        """Cancels the delivery of offsets that wait behind another message, so that it does not count."""
        behind = dict(zip(marker.offsets, marker.behind, strict=True))
        for _, offsets in self._leased_at(marker.offsets, marker.delivery_count):
            self._tally["delivered"] -= len(offsets)
            self._blocked.add(offsets, [behind[one] for one in offsets], marker.delivery_count - 1)

    def _unblock(self) -> bool:
        """Makes messages available that wait for a message that is gone. False if there are none."""
        free = self._blocked.free(self._outstanding()) if self._blocked else []
        for count, offsets in free:
            self._make_available(_unblocked(count), offsets)
        return bool(free)

    def _reject(self, marker: Reject, at_ms: int) -> None:
        rejected = 0
        for lease, offsets in self._leased_at(marker.offsets, marker.delivery_count):
            rejected += len(offsets)
            self._dead_letter(offsets, lease, REJECTED, at_ms, error=marker.reason)
        self._tally["rejected"] += rejected
        self._tally["unknown_settlements"] += len(marker.offsets) - rejected

    def _spared(self, marker: End | EndUpTo) -> OffsetSet:
        """Returns the never-delivered offsets, which a planner's marker for a whole batch must not end."""
        if marker.run_id is None:
            return EMPTY
        groups: list[tuple[Delayed | Available | HeldLetters, OffsetSet]]
        groups = [*self._delayed, *self._available, *self._held]
        groups += [(_unblocked(count), some) for count, some in self._blocked.some(self._blocked.offsets)]
        return OffsetSet.union(offsets for group, offsets in groups if group.delivery_count == 0)

    def _wait_ms(self, count: int, offsets: OffsetSet) -> int:
        # Offsets leased together share one jitter: a batch returns as a whole, different batches at
        # different times.
        return self._policy.wait_ms(count, of=b"%s@%d" % (self._cell.key, offsets.first or 0))

    def _seek(self, position: int, at_ms: int) -> None:
        self._generation_ms = at_ms
        self._take(self._outstanding())
        self._first_deliveries = UNKNOWN
        self._read_position = position
        self._owner, self._owner_seen_ms, self._sought = None, 0, True

    def _move(self, marker: Marker, at_ms: int, undo: SavedState) -> None:
        """Applies a move, and keeps the state before it if it changes something."""
        before = self._state(UNDO, at_ms, undo.move)
        self._take_in(marker, at_ms)
        self._undo_of_next = None
        if self._state(UNDO, at_ms, undo.move) != before:
            self._keep(undo)

    def _save(self, marker: SaveState, at_ms: int) -> None:
        name = marker.name
        if name != UNDO and len(self._saved.keys() - {UNDO, name}) >= MAX_SAVED:
            return
        state = self._state(name, at_ms, marker.move)
        if marker.move and name == UNDO:
            self._undo_of_next = state
        else:
            self._keep(state)

    def _keep(self, state: SavedState) -> None:
        self._saved.pop(state.name, None)  # the oldest comes first
        self._saved[state.name] = state

    def _state(self, name: str, at_ms: int, move: str) -> SavedState:
        present = self.snapshot()
        assert present is not None
        return SavedState(
            name=name,
            at_ms=at_ms,
            read_position=self._read_position,
            next_marker=self._next_marker,
            outstanding=tuple(sorted(present.delivery_counts().items())),
            move=move,
        )

    def _restore(self, marker: RestoreState, at_ms: int) -> None:
        state = self._saved.get(marker.name)
        if state is None or marker.next_marker not in (None, state.next_marker):
            return
        before = self._state(UNDO, at_ms, marker.move)
        self._return_to(state, at_ms)
        if not marker.move or self._state(UNDO, at_ms, marker.move) != before:
            self._keep(before)

    def _return_to(self, state: SavedState, at_ms: int) -> None:
        self._seek(state.read_position, at_ms)
        most = self._policy.max_deliveries
        for count, offsets in state.outstanding:
            # A message that was in its last delivery then has one more.
            deliveries = count if most is None else min(count, most - 1)
            self._make_available(Available(deliveries, died=False), offsets)

    def _hello(self, marker: Hello) -> None:
        if self._owner is None and not self._read_position and not self._sought:
            self._read_position = marker.position
        again = self._owner == marker.run_id
        if not again:
            # A live run takes the messages announced to it. If messages of an expired lease still wait, the
            # run of that lease has died.
            for delay, offsets in self._delayed:
                if delay.lapsed:
                    self._delayed.remove(delay, offsets)
                    self._delayed.add(delay._replace(died=True, lapsed=False), offsets)
            for wait, offsets in self._available:
                if wait.lapsed:
                    self._available.remove(wait, offsets)
                    self._available.add(wait._replace(died=True, lapsed=False), offsets)
        self._owner = marker.run_id
        if self._topic_id is None:  # the first id stays: another one is the id of a recreated topic
            self._topic_id = marker.topic_id
        for wait, offsets in self._available:
            if not (again and wait.delivery_count == 0):
                self._unannounced.add(wait, offsets)

    def _expire(self, now_ms: int) -> None:
        for lease, offsets in _over(self._leases, now_ms):
            if self._breaker.is_open:
                break
            delay_ms = self._wait_ms(lease.delivery_count, offsets)
            self._end_lease(lease, offsets, now_ms, at_ms=lease.deadline_ms, delay_ms=delay_ms)
        for delay, offsets in _over(self._delayed, now_ms):
            self._delayed.remove(delay, offsets)
            self._make_available(Available(*delay[1:]), offsets)
        self._end_exhausted(now_ms)

    def _end_exhausted(self, now_ms: int) -> None:
        # The limit was lowered while these messages were available, so no Start can lease them again.
        for wait, offsets in self._available.in_order():
            if self._is_over(wait) and not self._breaker.is_open:
                self._dead_letter(offsets, wait, MAX_DELIVERIES, now_ms)

    def _lose_member(self, marker: MemberLost, at_ms: int) -> None:
        if marker.run_id != self._owner or marker.lost_run_id == self._owner:
            return
        for lease, offsets in self._leases.in_order():
            if lease.run_id == marker.lost_run_id and not lease.left and not self._breaker.is_open:
                self._end_lease(lease, offsets, at_ms, at_ms=at_ms, delay_ms=0)

    def _end_lease(self, lease: Lease, offsets: OffsetSet, now_ms: int, *, at_ms: int, delay_ms: int) -> None:
        """Ends a lease that nobody has settled. Its messages wait for ``delay_ms`` after ``at_ms``."""
        self._tally["lease_timeouts"] += len(offsets)
        died = self._died(lease)
        lapsed = not died and lease.run_id != ""
        wait = Available(lease.delivery_count, died, lapsed=lapsed, grouped=lease.grouped)
        if self._is_over(wait):
            self._dead_letter(offsets, lease, MAX_DELIVERIES, now_ms)
            return
        self._leases.remove(lease, offsets)
        self._give_back(wait, offsets, at_ms=at_ms, delay_ms=delay_ms)

    def _end_the_old(self, now_ms: int | None) -> None:
        if self._ages.ttl_ms is None or self._breaker.is_open:
            return
        if now_ms is not None:
            self._ages = self._ages.expire(now_ms)
        self._expire_below(self._ages.expired_below)
        if self._ages.ends:
            first = self._outstanding().first
            self._ages = self._ages.without(self._read_position if first is None else first)

    def _expire_below(self, position: int) -> None:
        """Expires the messages below a position that are not leased, or the first ones of very many."""
        copied = self._policy.expired_to is ExpiredTo.DEAD_LETTERS
        waiting: list[tuple[Delayed | Available, OffsetSet]]
        waiting = [
            *self._delayed.in_order(),
            *self._available.in_order(),
            *((_unblocked(count), some) for count, some in self._blocked.some(self._blocked.offsets)),
        ]
        if copied:
            expired = OffsetSet.union(offsets.below(position) for _, offsets in waiting)
            if len(expired) > MAX_EXPIRED:
                position = next(expired.chunks(MAX_EXPIRED)).ranges[-1][1]
            else:  # unread messages come last, and may be as many as a foreign marker says
                position = min(position, self._read_position + MAX_EXPIRED - len(expired))
        for group, offsets in waiting:
            if old := offsets.below(position):
                self._take(old)
                self._tally["expired"] += len(old)
                if copied:
                    self._decide_dead_letter(old, HeldLetters(group.delivery_count, EXPIRED))
        if position > self._read_position:
            self._tally["expired"] += position - self._read_position
            if copied:
                self._decide_dead_letter(
                    OffsetSet.of((self._read_position, position)), HeldLetters(0, EXPIRED)
                )
            self._read_position = position

    def _look_at_breaker(self, now_ms: int) -> None:
        self._breaker = self._breaker.seen(now_ms, self._policy.breaker)
        closes_ms = self._breaker.closes_ms
        if closes_ms is not None and closes_ms < now_ms:
            self._close_breaker()

    def _close_breaker(self, *, troubled: bool = False) -> None:
        self._breaker = self._breaker.closed()
        for held, offsets in self._held.in_order():
            if troubled or not held.tries:
                self._let_go(held, offsets)

    def _try_again(self, now_ms: int) -> None:
        for held, offsets in self._held.in_order():
            if held.tries and held.retry_ms < now_ms and not self._breaker.is_open:
                self._let_go(held, offsets)

    def _let_go(self, held: HeldLetters, offsets: OffsetSet) -> None:
        self._held.remove(held, offsets)
        self._tally["dead_lettered"] += len(offsets)
        self._decide_dead_letter(offsets, held)

    def _withhold(self, marker: Withhold, at_ms: int) -> None:
        others = (self._leases, self._delayed, self._available)
        taken = OffsetSet.union(offsets for kind in others for offsets in kind.offsets())
        taken |= self._blocked.offsets
        letters = marker.offsets.below(self._read_position) - taken
        forgotten = len(letters) - self._held.take(letters)
        self._tally["dead_lettered"] = max(0, self._tally["dead_lettered"] - forgotten)
        if letters:
            retry_ms = _deadline(at_ms, marker.delay_ms)
            held = HeldLetters(
                marker.delivery_count,
                marker.reason,
                marker.error,
                marker.last_delivery_ms,
                marker.trouble,
                retry_ms,
                marker.tries,
            )
            self._hold(held, letters)

    def _requeue(self, marker: Requeue, at_ms: int) -> None:
        gone = marker.offsets.below(self._read_position) - self._outstanding()
        if gone:
            self._generation_ms = at_ms
            self._make_available(Available(0, died=False), gone)

    def _hold(self, letter: HeldLetters, offsets: OffsetSet) -> None:
        if letter not in self._held and len(self._held) >= MAX_ERRORS:
            letter = letter.of_many()
        self._held.add(letter, offsets)

    def _announce(self, owner: str) -> None:
        for wait, offsets in self._unannounced.in_order():
            if self._is_over(wait):
                continue  # the limit was lowered: a dead letter follows when the log is read to its end
            groups = isolation_groups(
                offsets,
                wait.delivery_count,
                died=wait.died or self._policy.exhausted(wait.delivery_count),
                max_deliveries=self._policy.max_deliveries,
                grouped=wait.grouped,
            )
            for group, alone in groups:
                self._tally["redelivered"] += len(group)
                self._decisions.append(
                    Redeliver(
                        cell=self._cell,
                        offsets=group,
                        delivery_count=wait.delivery_count,
                        run_id=owner,
                        alone=alone,
                    )
                )

    def _give_back(self, wait: Available, offsets: OffsetSet, *, at_ms: int, delay_ms: int) -> None:
        if delay_ms > 0:
            self._delayed.add(Delayed(_deadline(at_ms, delay_ms), *wait), offsets)
        else:
            self._make_available(wait, offsets)

    def _make_available(self, wait: Available, offsets: OffsetSet) -> None:
        self._available.add(wait, offsets)
        self._unannounced.add(wait, offsets)

    def _dead_letter(
        self, offsets: OffsetSet, group: Lease | Available, reason: str, at_ms: int, *, error: str = ""
    ) -> None:
        self._take(offsets)
        place = f"{self._cell.topic},{self._cell.partition}"
        self._breaker, out = self._breaker.admit(offsets, at_ms, self._policy.breaker, place=place)
        last_ms = group.started_ms if isinstance(group, Lease) else 0
        letter = HeldLetters(group.delivery_count, reason, error, last_ms)
        if out:
            self._tally["dead_lettered"] += len(out)
            self._decide_dead_letter(out, letter)
        if held := offsets - out:
            self._hold(letter, held)

    def _decide_dead_letter(self, offsets: OffsetSet, letter: HeldLetters) -> None:
        self._decisions.append(
            DeadLetter(
                cell=self._cell,
                offsets=offsets,
                delivery_count=letter.delivery_count,
                reason=letter.reason,
                error=letter.error,
                last_delivery_ms=letter.last_delivery_ms or None,
                # A message that was brought back can expire again, and that is another dead letter. The time
                # is that of a marker, so a tracker that decides again after a crash has the same one.
                generation_ms=None if letter.last_delivery_ms else self._generation_ms or None,
                first_deliveries=self._first_deliveries.since(offsets.first),
                tries=letter.tries,
            )
        )

    def _leased_at(self, offsets: OffsetSet, delivery_count: int) -> Iterator[tuple[Lease, OffsetSet]]:
        """Removes and yields the leases with that delivery count on the offsets."""
        for lease, held in self._leases.in_order():
            if lease.delivery_count == delivery_count and (taken := held & offsets):
                self._leases.remove(lease, taken)
                yield lease, taken

    def _take(self, offsets: OffsetSet) -> int:
        """Removes the offsets from all groups and returns the number of removed offsets."""
        taken = self._leases.take(offsets)
        taken += self._delayed.take(offsets)
        taken += self._available.take(offsets)
        taken += self._held.take(offsets)
        taken += self._blocked.take(offsets)
        self._unannounced.take(offsets)
        return taken

    def _outstanding(self) -> OffsetSet:
        kinds = (self._leases, self._delayed, self._available, self._held)
        groups = [offsets for kind in kinds for offsets in kind.offsets()]
        return OffsetSet.union([*groups, self._blocked.offsets])

    def _first_outstanding(self) -> int | None:
        kinds = (self._leases, self._delayed, self._available, self._held)
        groups = [self._blocked.offsets, *(offsets for kind in kinds for offsets in kind.offsets())]
        return min((offsets.first for offsets in groups if offsets.first is not None), default=None)

    def _is_over(self, wait: Delayed | Available) -> bool:
        return is_over(wait, self._policy.max_deliveries)

    def _died(self, lease: Lease) -> bool:
        return lease.run_id != (self._owner or "")


def _is_move(marker: Marker) -> bool:
    return isinstance(marker, Seek) or (isinstance(marker, EndUpTo) and marker.run_id is None)


def _unblocked(count: int) -> Available:
    # It was delivered before together with an earlier message of its key, and its run may have died of it.
    return Available(count, died=count > 0)


def _over(groups: LeaseGroups[_Timed], now_ms: int) -> list[tuple[_Timed, OffsetSet]]:
    return sorted(
        ((group, offsets) for group, offsets in groups if group[0] < now_ms), key=lambda one: one[0]
    )


def _deadline(at_ms: int, after_ms: int) -> int:
    return rounded_deadline(at_ms, min(after_ms, MAX_LEASE_MS))
