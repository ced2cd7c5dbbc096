"""The tracker's set algebra against a slow twin: one dict, one loop, one message at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from math import ceil, sqrt
from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_cursor_source.core import tracker
from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.limits import NO_LIMITS, Limits
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
)
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import ExpiredTo, RedeliveryPolicy, StepBackoff
from spark_cursor_source.core.tracker import (
    EXPIRED,
    MAX_DELIVERIES,
    REJECTED,
    CellTracker,
    DeadLetter,
    Decision,
    Redeliver,
)
from spark_cursor_source.core.ttl import MessageAges
from spark_cursor_source.wire import cursor as cursor_wire

CELL = Cell(subscription="s", topic="t", partition=0)
BEGINNING = CursorSnapshot(cell=CELL, read_position=0, next_marker=0)
LOG_END = 12  #: offsets in play
MAX_EXPIRED = 3  #: in place of the tracker's
Dead = tuple[int, int, str, str, int | None]  #: offset, count, reason, error, last delivery


@pytest.fixture(autouse=True, scope="module")
def small_portions() -> Iterator[None]:
    with patch.object(tracker, "MAX_EXPIRED", MAX_EXPIRED):
        yield


# ---- the twin


@dataclass
class Message:
    """One message that is outstanding."""

    state: str  # leased, delayed, available, blocked or held
    count: int
    at_ms: int | None  # deadline or due time
    run: str = ""  # of a lease
    died: bool = False  # of a delay, or where available
    lapsed: bool = False
    reason: str = ""  # where held
    error: str = ""  # where held
    started_ms: int = 0  # of a lease, or of the last one where held
    grouped: bool = False  # with other suspects, in its last delivery
    trouble: str = ""  # where held
    tries: int = 0  # where held; at_ms is the next one
    left: bool = False  # of a lease
    behind: int | None = None  # where blocked


@dataclass
class Twin:
    """The table of core/tracker.py, read out loud."""

    policy: RedeliveryPolicy
    exists: bool = True
    read_position: int = 0
    owner: str | None = None
    owner_seen_ms: int = 0
    sought: bool = False
    paused_ms: int | None = None
    limits: Limits = NO_LIMITS
    messages: dict[int, Message] = field(default_factory=dict)
    to_announce: set[int] = field(default_factory=set)
    dead: list[Dead] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    ended: set[int] = field(default_factory=set)  # acked or expired, and not to be heard of again
    trip: str = ""  # of the breaker, the last one
    opened_ms: int | None = None
    closes_ms: int | None = None
    letters: list[int] = field(default_factory=list)  # when each dead letter went out
    ages: MessageAges = field(default_factory=MessageAges)
    saved: dict[str, tuple[int, dict[int, int]]] = field(default_factory=dict)  # position, counts by offset
    undo_of_next: tuple[int, dict[int, int]] | None = None

    def __post_init__(self) -> None:
        self.ages = MessageAges(ttl_ms=self.policy.message_ttl_ms)

    def apply(self, marker: Marker, at_ms: int) -> None:
        if not self.exists and not isinstance(marker, Hello | Seek):
            return
        self.exists = True
        if isinstance(marker, Start) and self.sought and marker.run_id != self.owner:
            self.totals["overlapped"] += len(marker.offsets)
        else:
            before = self.present()
            self.take_in(marker, at_ms)
            is_move = isinstance(marker, Seek) or (isinstance(marker, EndUpTo) and marker.run_id is None)
            if self.undo_of_next is not None and is_move:
                if self.present() != before:
                    self.saved[UNDO] = self.undo_of_next
                self.undo_of_next = None
        if self.owner is not None and getattr(marker, "run_id", None) == self.owner:
            self.owner_seen_ms = at_ms

    def take_in(self, marker: Marker, at_ms: int) -> None:
        self.count_unknown(marker)
        match marker:
            case Start():
                self.start(marker, at_ms)
            case End(offsets=offsets):
                for offset in set(offsets) - self.spared(marker.run_id):
                    self.end(offset, no_message=marker.no_message)
            case EndLeased():
                for offset, message in self.leased(marker.offsets).items():
                    is_of_it = (message.run, message.count) == (marker.run_id, marker.delivery_count)
                    if is_of_it and not message.left:
                        self.end(offset)
            case Leave():
                for message in self.leased(marker.offsets).values():
                    message.left = message.left or message.count == marker.delivery_count
            case EndUpTo(position=position):
                spared = self.spared(marker.run_id)
                below = [one for one in self.messages if one < position and one not in spared]
                if self.sought and marker.run_id not in (None, self.owner):
                    self.totals["overlapped"] += len(below)
                    return
                for offset in below:
                    self.end(offset)
                self.read_position = max(self.read_position, position)
                self.ended |= set(range(position)) - spared
            case KeepAlive():
                for message in self.leased(marker.offsets).values():
                    deadline = rounded(at_ms, marker.lease_ms)
                    self.keep_alive(message, marker, deadline)
            case Release():
                for offset, message in self.leased(marker.offsets).items():
                    if message.count == marker.delivery_count:
                        if marker.due_ms is None:
                            self.totals["released"] += 1
                            self.release(offset, message, marker, at_ms)
                        elif message.started_ms <= marker.due_ms:
                            self.take_back(offset, message, marker.due_ms - at_ms, at_ms)
            case Block():
                for offset, behind in zip(marker.offsets, marker.behind, strict=True):
                    message = self.messages.get(offset, Message("unseen", 0, None))
                    if (message.state, message.count) == ("leased", marker.delivery_count):
                        self.totals["delivered"] -= 1
                        self.messages[offset] = Message("blocked", message.count - 1, None, behind=behind)
            case Reject():
                for offset, message in self.leased(marker.offsets).items():
                    if message.count == marker.delivery_count:
                        self.totals["rejected"] += 1
                        self.dead_letter(offset, message, REJECTED, at_ms, marker.reason)
            case Seek(position=position):
                self.seek(position)
            case SaveState(name=name):
                if marker.move and name == UNDO:
                    self.undo_of_next = self.present()
                else:
                    self.saved[name] = self.present()
            case ForgetState(name=name):
                self.saved.pop(name, None)
            case RestoreState(name=name):
                if name in self.saved:
                    before = self.present()
                    self.restore(*self.saved[name])
                    if not marker.move or self.present() != before:
                        self.saved[UNDO] = before
            case Hello():
                if self.owner is None and self.read_position == 0 and not self.sought:
                    self.read_position = marker.position
                again = self.owner == marker.run_id
                if not again:
                    for message in self.messages.values():
                        message.died, message.lapsed = message.died or message.lapsed, False
                self.owner = marker.run_id
                self.to_announce |= {
                    offset
                    for offset, message in self.messages.items()
                    if message.state == "available" and not (again and message.count == 0)
                }
            case CloseBreaker():
                self.close(all_of_it=True)
            case OpenBreaker(trip=trip):
                if trip != self.trip:
                    self.open(trip, at_ms)
            case EndOffsetObserved(position=position):
                self.ages = self.ages.seen(at_ms, position)
            case Withhold():
                for offset in marker.offsets:
                    self.withhold(offset, marker, at_ms)
            case Requeue():
                for offset in marker.offsets:
                    if offset < self.read_position and offset not in self.messages:
                        self.ended.discard(offset)
                        self.messages[offset] = Message("available", 0, None)
                        self.to_announce.add(offset)
            case MemberLost(run_id=run, lost_run_id=lost):
                if run == self.owner != lost:
                    self.lose_member(lost, at_ms)
            case Pause():
                self.paused_ms = at_ms if self.paused_ms is None else self.paused_ms
            case EndPause():
                self.paused_ms = None
            case SetLimits(limits=limits):
                self.limits = limits
            case Delete():
                new = Twin(self.policy, exists=False, dead=self.dead)
                self.__dict__ = new.__dict__

    def count_unknown(self, marker: Marker) -> None:
        """Count what somebody gave back, rejected or extended that is under no lease of that delivery."""
        match marker:
            case Release(due_ms=None) | Reject() | Leave() | KeepAlive(run_id=None):
                for offset in marker.offsets if marker.delivery_count is not None else ():
                    message = self.messages.get(offset)
                    if message is None:
                        over = isinstance(marker, KeepAlive) and offset < self.read_position
                        self.totals["unknown_settlements"] += not over
                    elif (message.state, message.count) != ("leased", marker.delivery_count):
                        self.totals["unknown_settlements"] += 1
            case _:
                pass

    def start(self, marker: Start, at_ms: int) -> None:
        run, least = marker.run_id, marker.delivery_count
        deadline = rounded(at_ms, marker.lease_ms)
        started = quarter_second(at_ms)
        grouped = marker.alone and len(marker.offsets) > 1
        leased = Message("leased", 0, deadline, run, started_ms=started, grouped=grouped)
        first_unseen = self.read_position
        for offset in marker.offsets:
            message = self.messages.get(offset)
            if message is None:
                if offset < first_unseen:
                    continue  # an ack wins
                self.messages[offset] = replace(leased, count=least)
                self.ended.discard(offset)
                self.totals["delivered"] += 1
                self.count_overlap(run)
            elif message.state == "leased" and message.run == run and least <= message.count:
                message.at_ms = deadline
                self.count_overlap(run)
            elif message.state != "held" and not self.is_over(message):
                self.messages[offset] = replace(leased, count=max(message.count + 1, least))
                self.to_announce.discard(offset)
                self.totals["delivered"] += 1
                self.count_overlap(run)
            self.read_position = max(self.read_position, offset + 1)
        # Positions move although nothing was taken.
        self.read_position = max([self.read_position, *(offset + 1 for offset in marker.offsets)])
        if self.owner is None:
            self.owner = run

    def count_overlap(self, run: str) -> None:
        self.totals["overlapped"] += self.owner not in (None, run)

    def end(self, offset: int, *, no_message: bool = False) -> None:
        known = self.messages.pop(offset, None)
        self.to_announce.discard(offset)
        if not no_message:
            self.totals["acked" if known else "unknown_ends"] += 1
        elif known:
            self.totals["gaps"] += 1
            self.totals["delivered"] -= known.state == "leased"
        if offset < self.read_position:
            self.ended.add(offset)

    @staticmethod
    def keep_alive(message: Message, marker: KeepAlive, deadline: int) -> None:
        if marker.delivery_count not in (None, message.count):
            return
        if marker.run_id is not None:
            if marker.run_id != message.run:
                return
            deadline = max(deadline, message.at_ms or 0)
        message.at_ms = deadline

    def release(self, offset: int, message: Message, marker: Release, at_ms: int) -> None:
        if self.policy.exhausted(message.count):
            self.dead_letter(offset, message, MAX_DELIVERIES, at_ms, marker.reason)
            return
        delay_ms = marker.delay_ms
        if delay_ms is None:
            delay_ms = self.policy.backoff.delay_ms(message.count)
        self.give_back(offset, message, at_ms, delay_ms)

    def seek(self, position: int) -> None:
        self.messages.clear()
        self.to_announce.clear()
        self.read_position = position
        self.ended -= set(range(position, LOG_END))
        self.owner, self.owner_seen_ms, self.sought = None, 0, True

    def present(self) -> tuple[int, dict[int, int]]:
        return self.read_position, {offset: message.count for offset, message in self.messages.items()}

    def restore(self, position: int, counts: dict[int, int]) -> None:
        self.seek(position)
        for offset, count in counts.items():
            limit = self.policy.max_deliveries
            given = count if limit is None else min(count, limit - 1)
            self.messages[offset] = Message("available", given, None)
            self.to_announce.add(offset)
            self.ended.discard(offset)

    def lose_member(self, lost: str, at_ms: int) -> None:
        for group in self.grouped("leased", lambda message: message.run == lost and not message.left):
            if self.opened_ms is not None:
                break
            for offset, message in group:
                self.end_lease(offset, message, at_ms, at_ms=at_ms, delay_ms=0)

    def end_lease(self, offset: int, message: Message, now_ms: int, *, at_ms: int, delay_ms: int) -> None:
        self.totals["lease_timeouts"] += 1
        one_more = message.grouped and message.count == self.policy.max_deliveries
        if self.policy.exhausted(message.count) and not one_more:
            self.dead_letter(offset, message, MAX_DELIVERIES, now_ms)
        else:
            self.give_back(offset, message, at_ms, delay_ms, over=True)

    def take_back(self, offset: int, message: Message, delay_ms: int, at_ms: int) -> None:
        self.totals["delivered"] -= 1
        message.count, message.run, message.grouped = 0, self.owner or "", False
        self.give_back(offset, message, at_ms, max(delay_ms, 0))

    def spared(self, run: str | None) -> set[int]:
        """What the End of a whole batch leaves: it was never delivered."""
        return {offset for offset, message in self.messages.items() if run and not message.count}

    def give_back(
        self, offset: int, message: Message, at_ms: int, delay_ms: int, *, over: bool = False
    ) -> None:
        died = message.run != (self.owner or "")
        lapsed = over and not died and message.run != ""
        grouped = message.grouped and (died or over)
        told = {"died": died, "lapsed": lapsed, "grouped": grouped}
        if delay_ms:
            due_ms = rounded(at_ms, delay_ms)
            self.messages[offset] = Message("delayed", message.count, due_ms, **told)
        else:
            self.messages[offset] = Message("available", message.count, None, **told)
            self.to_announce.add(offset)

    def dead_letter(self, offset: int, message: Message, reason: str, at_ms: int, error: str = "") -> None:
        self.to_announce.discard(offset)
        last = message.started_ms if message.state == "leased" else 0
        held = Message("held", message.count, None, reason=reason, error=error, started_ms=last)
        breaker = self.policy.breaker
        if breaker.limit is not None:
            recent = sum(then > at_ms - breaker.window_ms for then in self.letters)
            if self.opened_ms is None and recent >= breaker.limit:
                self.open(f"{at_ms}@t,0", at_ms)
            if self.opened_ms is not None:
                self.messages[offset] = held
                return
        self.letters.append(at_ms)
        self.bury(offset, held)

    def bury(self, offset: int, held: Message) -> None:
        self.messages.pop(offset)
        self.totals["dead_lettered"] += 1
        self.dead.append((offset, held.count, held.reason, held.error, held.started_ms or None))

    def open(self, trip: str, at_ms: int) -> None:
        breaker = self.policy.breaker
        if breaker.limit is None:
            return
        self.trip = trip
        self.opened_ms = at_ms if self.opened_ms is None else self.opened_ms
        self.closes_ms = None if breaker.pause_ms is None else 0

    def see(self, now_ms: int) -> None:
        if self.closes_ms == 0 and self.policy.breaker.pause_ms is not None:
            self.closes_ms = now_ms + self.policy.breaker.pause_ms

    def close(self, *, all_of_it: bool = False) -> None:
        self.opened_ms = self.closes_ms = None
        self.letters = []
        for offset, message in list(self.messages.items()):
            if message.state == "held" and (all_of_it or not message.tries):
                self.bury(offset, message)

    def withhold(self, offset: int, marker: Withhold, at_ms: int) -> None:
        known = self.messages.get(offset)
        if offset >= self.read_position or (known is not None and known.state != "held"):
            return
        if known is None and self.totals["dead_lettered"]:
            self.totals["dead_lettered"] -= 1
        self.ended.discard(offset)
        self.messages[offset] = Message(
            "held",
            marker.delivery_count,
            rounded(at_ms, marker.delay_ms),
            reason=marker.reason,
            error=marker.error,
            started_ms=marker.last_delivery_ms,
            trouble=marker.trouble,
            tries=marker.tries,
        )

    def advance(self, now_ms: int | None) -> tuple[list[Dead], list[tuple[int, int, str, bool]]]:
        """Dead letters, and announcements (offset, count, run, alone)."""
        if now_ms is not None:
            self.see(now_ms)
            if self.closes_ms is not None and self.closes_ms < now_ms:
                self.close()
            for offset, message in list(self.messages.items()):
                over = message.tries and message.at_ms is not None and message.at_ms < now_ms
                if over and self.opened_ms is None:
                    self.bury(offset, message)
            self.tick(now_ms)
            self.see(now_ms)
        if self.opened_ms is None:
            self.expire(now_ms)
        while self.unblock():
            if now_ms is not None:
                self.bury_exhausted(now_ms)
        announced = []
        for offset in self.to_announce:
            message = self.messages[offset]
            if self.owner is not None and not self.is_over(message):
                announced.append((offset, message.count, self.owner, self.alone(message)))
                self.totals["redelivered"] += 1
        self.to_announce = set()
        dead, self.dead = self.dead, []
        return sorted(dead), sorted(announced)

    def tick(self, now_ms: int) -> None:
        over = self.grouped("leased", lambda message: message.at_ms is not None and message.at_ms < now_ms)
        for group in over:
            if self.opened_ms is not None:
                break  # no lease runs out
            for offset, message in group:
                delay_ms = self.policy.backoff.delay_ms(message.count)
                assert message.at_ms is not None
                self.end_lease(offset, message, now_ms, at_ms=message.at_ms, delay_ms=delay_ms)
        for offset, message in list(self.messages.items()):
            if message.state == "delayed" and message.at_ms is not None and message.at_ms < now_ms:
                self.messages[offset] = replace(message, state="available", at_ms=None)
                self.to_announce.add(offset)
        self.bury_exhausted(now_ms)

    def unblock(self) -> bool:
        free = [
            offset
            for offset, message in self.messages.items()
            if message.behind is not None and message.behind not in self.messages
        ]
        for offset in free:
            count = self.messages[offset].count
            self.messages[offset] = Message("available", count, None, died=count > 0)
            self.to_announce.add(offset)
        return bool(free)

    def bury_exhausted(self, now_ms: int) -> None:
        for group in self.grouped("available", self.is_over):
            for offset, message in group if self.opened_ms is None else ():
                self.dead_letter(offset, message, MAX_DELIVERIES, now_ms)

    def grouped(self, state: str, where: Callable[[Message], bool]) -> list[list[tuple[int, Message]]]:
        """Messages of a state by what they have in common, in its order."""
        groups: dict[tuple[int, int, str, int, bool, bool, bool, bool], list[tuple[int, Message]]] = {}
        for offset, message in sorted(self.messages.items()):
            if message.state == state and where(message):
                key = (
                    *(message.at_ms or 0, message.count, message.run),
                    *(message.started_ms, message.died, message.lapsed, message.grouped),
                    message.left,
                )
                groups.setdefault(key, []).append((offset, message))
        return [groups[key] for key in sorted(groups)]

    def expire(self, now_ms: int | None) -> None:
        if now_ms is not None:
            self.ages = self.ages.expire(now_ms)
        expired = self.expired()
        copied = self.policy.expired_to is ExpiredTo.DEAD_LETTERS
        for offset in expired[:MAX_EXPIRED] if copied else expired:
            message = self.messages.pop(offset, None)
            self.to_announce.discard(offset)
            self.ended.add(offset)
            self.totals["expired"] += 1
            self.read_position = max(self.read_position, offset + 1)
            if copied:
                self.dead.append((offset, 0 if message is None else message.count, EXPIRED, "", None))
        self.ages = self.ages.without(min([self.read_position, *self.messages]))

    def expired(self) -> list[int]:
        """The offsets that are too old and that nobody has."""
        waiting = {n for n, one in self.messages.items() if one.state in ("delayed", "available", "blocked")}
        return [n for n in range(self.ages.expired_below) if n in waiting or n >= self.read_position]

    def alone(self, message: Message) -> bool:
        limit = self.policy.max_deliveries or 5
        suspect = message.died or self.policy.exhausted(message.count)
        return suspect and message.count + 1 >= limit - 1

    def is_over(self, message: Message) -> bool:
        """A lease at the limit takes no Start; what died in a group at the limit has one more delivery."""
        last_in_group = message.grouped and message.count == self.policy.max_deliveries
        return self.policy.exhausted(message.count) and (message.state == "leased" or not last_in_group)

    def leased(self, offsets: OffsetSet) -> dict[int, Message]:
        groups = self.grouped("leased", lambda message: True)
        return {offset: message for group in groups for offset, message in group if offset in offsets}


def quarter_second(moment_ms: int) -> int:
    return ceil(moment_ms / 250) * 250


def rounded(at_ms: int, after_ms: int) -> int:
    """A deadline, on a grain of a 50th of its wait or finer."""
    after_ms = min(after_ms, MAX_LEASE_MS)
    grain_ms = min(grain for grain in (1, 5, 25, 50, 100, 200) if grain == 200 or after_ms / grain < 256)
    return ceil((at_ms + after_ms) / grain_ms) * grain_ms


# ---- what they are told

sets = st.builds(
    OffsetSet.from_offsets,
    st.one_of(
        st.frozensets(st.integers(0, LOG_END - 1), max_size=LOG_END),
        st.builds(range, st.integers(0, LOG_END - 1), st.integers(1, LOG_END)),
    ),
)
counts = st.integers(1, 4)
saved_names = st.sampled_from(["before", UNDO])
runs = st.sampled_from(["a", "b"])
positions = st.integers(0, LOG_END)
spans_ms = st.sampled_from([0, 1, 999, 1_000, 5_000, 20_000, 20_001, 13 * 3_600_000])
cell = st.just(CELL)
starts = st.builds(
    Start,
    cell=cell,
    offsets=sets,
    lease_ms=spans_ms,
    delivery_count=counts,
    run_id=runs,
    alone=st.booleans(),
)
keep_alives = st.builds(
    KeepAlive,
    cell=cell,
    offsets=sets,
    lease_ms=spans_ms,
    delivery_count=st.none() | counts,
    run_id=st.none() | runs,
)
releases = st.builds(
    Release,
    cell=cell,
    offsets=sets,
    delivery_count=counts,
    delay_ms=st.none() | spans_ms,
    reason=st.sampled_from(["", "boom"]),
    due_ms=st.none() | st.sampled_from([0, 1_000_250, 1_001_000, 1_020_000, 10**12]),
)
runs_of_ends = st.sampled_from([None, None, "a"])


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    offsets = draw(sets).starting_at(1)
    behind = tuple(draw(st.integers(0, offset - 1)) for offset in offsets)
    return Block(cell=CELL, offsets=offsets, behind=behind, delivery_count=draw(counts))


markers = st.one_of(
    starts,
    starts,
    starts,
    st.builds(
        End, cell=cell, offsets=sets, run_id=runs_of_ends, no_message=st.sampled_from([False, False, True])
    ),
    keep_alives,
    releases,
    blocks(),
    blocks(),
    st.builds(Reject, cell=cell, offsets=sets, delivery_count=counts, reason=st.just("bad")),
    st.builds(EndLeased, cell=cell, offsets=sets, run_id=runs, delivery_count=counts),
    st.builds(EndLeased, cell=cell, offsets=sets, run_id=st.just("a"), delivery_count=st.just(1)),
    st.builds(Leave, cell=cell, offsets=sets, delivery_count=st.just(1) | counts),
    st.builds(EndUpTo, cell=cell, position=positions, run_id=runs_of_ends),
    st.builds(Seek, cell=cell, position=positions),
    st.builds(Hello, cell=cell, run_id=runs, position=positions),
    st.builds(CloseBreaker, cell=cell),
    st.builds(Pause, cell=cell),
    st.builds(EndPause, cell=cell),
    st.builds(SetLimits, cell=cell, limits=st.sampled_from([NO_LIMITS, Limits(rate=2.5, max_outstanding=7)])),
    st.builds(Requeue, cell=cell, offsets=sets),
    st.builds(MemberLost, cell=cell, run_id=runs, lost_run_id=runs),
    st.builds(SaveState, cell=cell, name=saved_names, move=st.sampled_from(["", "m"])),
    st.builds(RestoreState, cell=cell, name=saved_names, move=st.sampled_from(["", "m"])),
    st.builds(ForgetState, cell=cell, name=saved_names),
    st.builds(OpenBreaker, cell=cell, trip=st.sampled_from(["x", "y"])),
    st.builds(EndOffsetObserved, cell=cell, position=positions),
    st.builds(Delete, cell=cell),
    st.builds(
        Withhold,
        cell=cell,
        offsets=sets,
        delivery_count=st.just(0) | counts,
        reason=st.just(REJECTED),
        error=st.sampled_from(["", "bad"]),
        last_delivery_ms=st.just(0),
        trouble=st.just("no leader"),
        tries=st.integers(1, 2),
        delay_ms=spans_ms,
    ),
)
backoffs = st.sampled_from([(), (1_000,), (0, 5_000), (2_500, 0)])


@dataclass(frozen=True)
class Settle:
    """The end of a batch; in one that does not reach the end of the log, no lease runs out."""

    timed: bool


@dataclass(frozen=True)
class Restart:
    """The tracker begins again, with another limit perhaps."""

    max_deliveries: int | None


limits = st.sampled_from([None, 1, 2, 3, 4])
steps = st.one_of(
    markers,
    markers,
    markers,
    st.builds(Settle, st.sampled_from([True, True, True, False])),
    st.builds(Restart, limits),
)
# Windows that slide by the millisecond, or not at all: nothing is rounded.
breakers = st.builds(
    BreakerPolicy,
    limit=st.none() | st.integers(1, 4),
    window_ms=st.sampled_from([2, 10**9]),
    pause_ms=st.sampled_from([None, 2_000]),
)
policies = st.builds(
    RedeliveryPolicy,
    max_deliveries=limits,
    backoff=st.builds(StepBackoff, delays_ms=backoffs),
    message_ttl_ms=st.sampled_from([None, 1_000, 6_000]),
    expired_to=st.sampled_from(ExpiredTo),
    breaker=breakers,
)
pauses_ms = st.sampled_from([0, 1, 700, 1_000, 5_001, 21_000])
histories = st.lists(st.tuples(pauses_ms, steps), min_size=4, max_size=40)


# ---- the comparison


def assert_same_state(state: CursorSnapshot | None, twin: Twin) -> None:
    if state is None:
        assert not twin.exists
        return
    assert twin.exists
    assert_same_groups(state, twin)
    assert_same_cursor(state, twin)


def assert_same_groups(state: CursorSnapshot, twin: Twin) -> None:
    told = {}
    for lease, offsets in state.leases:
        told |= {
            offset: Message(
                *("leased", lease.delivery_count, lease.deadline_ms, lease.run_id),
                started_ms=lease.started_ms,
                grouped=lease.grouped,
                left=lease.left,
            )
            for offset in offsets
        }
    for delay, offsets in state.delayed:
        told |= {
            offset: Message(
                *("delayed", delay.delivery_count, delay.due_ms, "", delay.died, delay.lapsed),
                grouped=delay.grouped,
            )
            for offset in offsets
        }
    for wait, offsets in state.available:
        told |= {
            offset: Message(
                *("available", wait.delivery_count, None, "", wait.died, wait.lapsed), grouped=wait.grouped
            )
            for offset in offsets
        }
    for held, offsets in state.held:
        letter = Message(
            *("held", held.delivery_count, held.retry_ms if held.tries else None),
            reason=held.reason,
            error=held.error,
            started_ms=held.last_delivery_ms,
            trouble=held.trouble,
            tries=held.tries,
        )
        told |= dict.fromkeys(offsets, letter)
    blocked = state.blocked
    for offset, behind, count in zip(blocked.offsets, blocked.behind, blocked.delivery_counts, strict=True):
        told[offset] = Message("blocked", count, None, behind=behind)
    assert told == twin.messages
    groups = [offsets for _, offsets in (*state.leases, *state.delayed, *state.available, *state.held)]
    assert all(groups), "no group is empty"
    number = sum(map(len, groups)) + len(blocked.offsets)
    assert number == len(told) == len(state.outstanding), "no offset is in two groups"
    assert (state.read_position, state.owner) == (twin.read_position, twin.owner)
    assert (state.sought, state.owner_seen_ms) == (twin.sought, twin.owner_seen_ms)
    assert (state.paused_ms, state.limits) == (twin.paused_ms, twin.limits)
    saved = {
        one.name: (one.read_position, {n: count for count, offsets in one.outstanding for n in offsets})
        for one in state.saved
    }
    assert saved == twin.saved
    breaker = state.breaker
    assert (breaker.trip, breaker.opened_ms, breaker.closes_ms) == (
        twin.trip,
        twin.opened_ms,
        twin.closes_ms,
    )
    assert {name: count for name, count in asdict(state.totals).items() if count} == +twin.totals


def assert_same_cursor(state: CursorSnapshot, twin: Twin) -> None:
    outstanding = set(twin.messages)
    mark_delete = -1
    while mark_delete + 1 < twin.read_position and mark_delete + 1 not in outstanding:
        mark_delete += 1
    assert set(state.outstanding) == outstanding
    assert state.mark_delete == mark_delete
    assert set(state.ack_holes) == set(range(mark_delete + 1, twin.read_position)) - outstanding
    by_count = {offset: message.count for offset, message in twin.messages.items()}
    assert {n: c for c, offsets in state.delivery_counts().items() for n in offsets} == by_count
    waiting = [one for one in twin.messages.values() if one.state == "delayed" or twin.opened_ms is None]
    times = [message.at_ms for message in waiting]
    times.append(twin.ages.next_ms if twin.opened_ms is None else twin.closes_ms)
    times += [0] if twin.opened_ms is None and twin.expired() else []
    assert state.next_event_ms == min((time for time in times if time is not None), default=None)


def dead_letters(decisions: list[Decision]) -> list[Dead]:
    dead = [decision for decision in decisions if isinstance(decision, DeadLetter)]
    return sorted(
        (offset, one.delivery_count, one.reason, one.error, one.last_delivery_ms)
        for one in dead
        for offset in one.offsets
    )


def announcements(decisions: list[Decision]) -> list[tuple[int, int, str, bool]]:
    redelivers = [decision for decision in decisions if isinstance(decision, Redeliver)]
    return sorted(
        (offset, one.delivery_count, one.run_id, one.alone) for one in redelivers for offset in one.offsets
    )


@settings(max_examples=200, deadline=None)
@given(histories, policies)
def test_the_tracker_does_what_its_slow_twin_does_through_every_restart(
    history: list[tuple[int, Marker | Settle | Restart]], policy: RedeliveryPolicy
) -> None:
    def restarted(state: CursorSnapshot | None) -> CellTracker:
        stored = None if state is None else cursor_wire.decode(cursor_wire.encode(state))
        assert stored == state
        return CellTracker.resume(stored, cell=CELL, policy=twin.policy)

    twin = Twin(policy)
    tracker = CellTracker.resume(BEGINNING, cell=CELL, policy=twin.policy)
    other = CellTracker.resume(
        BEGINNING, cell=CELL, policy=twin.policy
    )  # stored and resumed after every batch
    now_ms = 1_000_000
    for marker_offset, (pause_ms, step) in enumerate([*history, (0, Settle(timed=True))]):
        now_ms += pause_ms
        if isinstance(step, Settle | Restart):
            timed = step.timed if isinstance(step, Settle) else False
            decisions = tracker.advance(now_ms if timed else None)
            assert other.advance(now_ms if timed else None) == decisions
            assert (dead_letters(decisions), announcements(decisions)) == twin.advance(
                now_ms if timed else None
            )
            announced = {offset for offset, *_ in announcements(decisions)}
            assert not announced & twin.ended, "nothing is announced after its End"
            if isinstance(step, Restart):
                twin.policy = replace(policy, max_deliveries=step.max_deliveries)
                tracker = restarted(tracker.snapshot())
            other = restarted(other.snapshot())
        else:
            tracker.apply(step, at_ms=now_ms, marker_offset=marker_offset)
            other.apply(step, at_ms=now_ms, marker_offset=marker_offset)
            twin.apply(step, now_ms)
        state = tracker.snapshot()
        assert state == other.snapshot()
        assert_same_state(state, twin)


@settings(max_examples=100, deadline=None)
@given(st.lists(markers, max_size=15), limits, backoffs, st.lists(st.integers(0, 70_000), max_size=6))
def test_how_often_a_tracker_looks_at_the_clock_changes_nothing(
    history: list[Marker], limit: int | None, delays_ms: tuple[int, ...], looks_ms: list[int]
) -> None:
    policy = RedeliveryPolicy(max_deliveries=limit, backoff=StepBackoff(delays_ms=delays_ms))
    often, once = (CellTracker.resume(BEGINNING, cell=CELL, policy=policy) for _ in range(2))
    for marker_offset, marker in enumerate(history):
        often.apply(marker, at_ms=0, marker_offset=marker_offset)
        once.apply(marker, at_ms=0, marker_offset=marker_offset)
    several = [decision for now_ms in sorted(looks_ms) for decision in often.advance(now_ms)]
    several += often.advance(70_000)
    at_once = once.advance(70_000)
    one, other = often.snapshot(), once.snapshot()
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert (one.outstanding, one.leases) == (other.outstanding, other.leases)
    assert dead_letters(several) == dead_letters(at_once)
    assert announcements(several) == announcements(at_once)


@settings(max_examples=100, deadline=None)
@given(st.lists(markers, max_size=15), st.lists(markers, max_size=5))
def test_markers_that_come_twice_change_nothing(history: list[Marker], more: list[Marker]) -> None:
    policy = RedeliveryPolicy()
    tracker = CellTracker.resume(BEGINNING, cell=CELL, policy=policy)
    for marker_offset, marker in enumerate(history):
        tracker.apply(marker, at_ms=0, marker_offset=marker_offset)
    tracker.advance(30_000)
    state = tracker.snapshot()
    assume(state is not None)  # of a cell that is gone, the tracker does not know how far it has read
    again = CellTracker.resume(state, cell=CELL, policy=policy)
    for marker_offset, marker in enumerate(history):
        again.apply(marker, at_ms=0, marker_offset=marker_offset)
    assert again.snapshot() == state
    for marker_offset, marker in enumerate(more, start=len(history)):
        tracker.apply(marker, at_ms=0, marker_offset=marker_offset)
        again.apply(marker, at_ms=0, marker_offset=marker_offset)
    assert again.advance(60_000) == tracker.advance(60_000)
    assert again.snapshot() == tracker.snapshot()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5_000), st.integers(3, 6))
def test_suspects_part_into_groups_of_about_the_root_of_their_number(size: int, limit: int) -> None:
    tracker = CellTracker.resume(BEGINNING, cell=CELL, policy=RedeliveryPolicy(max_deliveries=limit))
    held = OffsetSet.of((0, size))
    start = Start(cell=CELL, offsets=held, lease_ms=1_000, delivery_count=limit - 2, run_id="a")
    tracker.apply(start, at_ms=0, marker_offset=0)
    tracker.apply(Hello(cell=CELL, run_id="b", position=0), at_ms=0, marker_offset=1)
    announced = [one for one in tracker.advance(2_000) if isinstance(one, Redeliver)]
    assert OffsetSet.union(one.offsets for one in announced) == held
    assert all(one.alone for one in announced)
    assert max(len(one.offsets) for one in announced) == ceil(sqrt(size))
