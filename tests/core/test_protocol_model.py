"""Planner, sink and tracker together, in a world of one cell: crashes at every step, and nothing is lost.

The rules under test are the real ones (``core.planning``, ``core.tracker``); topics are lists, and time
passes when the world says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import isqrt
from random import Random

import pytest

from spark_cursor_source.core.admission import Turns, admit
from spark_cursor_source.core.batch import (
    Delivery,
    RedeliveryRecord,
    SourceOffset,
    StartedDeliveries,
    plan,
    redelivered_between,
)
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import End, EndOffsetObserved, Hello, Marker, MemberLost, Release, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import ExpiredTo, RedeliveryPolicy
from spark_cursor_source.core.replay import plan_replay
from spark_cursor_source.core.tracker import EXPIRED, CellTracker, DeadLetter

CELL = Cell(subscription="s", topic="t", partition=0)
QUEUE = ("t", 0)
LEASE_MS = 60_000
BEGINNING = SourceOffset(queue={QUEUE: 0}, redeliveries={0: 0})


@dataclass
class Run:
    """One life of the query: its driver, and nothing that outlives it."""

    run_id: str
    answer: CursorSnapshot | None = None  # what the tracker said to its Hello
    taken: StartedDeliveries = field(default_factory=StartedDeliveries)
    offered: bool = False  # the batch in progress is its own idea, no replay
    batch: tuple[Delivery, ...] | None = None
    handled: bool = False
    planned_ms: int = 0  # the instant by which the batch in progress judges what is due
    turns: Turns = field(default_factory=Turns)
    since: int = 0  # where the redeliveries ended when it said Hello
    told: set[str] = field(default_factory=set)  # runs whose leases it has ended


@dataclass
class World:
    """What is durable, and the one run that is alive."""

    policy: RedeliveryPolicy
    messages: int
    poison: int | None = None
    budget: int | None = None
    now_ms: int = 0
    log: list[tuple[Marker, int]] = field(default_factory=list)  # the markers topic
    read: int = 0  # by the tracker
    cursor: CursorSnapshot | None = None  # the cursors topic
    redeliveries: list[RedeliveryRecord] = field(default_factory=list)
    dead: dict[int, int] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    expired: set[int] = field(default_factory=set)
    starts: Counter[int] = field(default_factory=Counter)
    first: SourceOffset = BEGINNING  # of the checkpoint
    planned: list[SourceOffset] = field(default_factory=list)  # Spark's offset log
    committed: int = 0  # batches
    runs: int = 0
    batches: int = 0
    run: Run | None = None
    due_ms: dict[int, int] = field(default_factory=dict)  # of messages that ask for a later delivery
    delivered: Counter[int] = field(default_factory=Counter)  # to the user's code
    releases: bool = False  # a run ends the leases of those that died before it
    released: int = 0  # leases that were ended so

    # ---- what may happen next

    def actions(self) -> list[str]:
        possible = ["pass"]
        if self.policy.message_ttl_ms is not None:
            possible.append("look")
        if self.read < len(self.log) or self.something_is_due():
            possible.append("track")
        run = self.run
        if run is None:
            return [*possible, "restart", "restore", "delete"]
        possible.append("crash")
        if run.answer is None:
            if self.cursor is not None and self.cursor.owner == run.run_id:
                possible.append("hear")
        elif run.handled:
            possible.append("commit")
        elif run.batch is not None:
            possible.append("handle")
        elif self.committed < len(self.planned):
            possible.append("plan")
        elif self.releases and self.lost_runs(run):
            possible.append("release")
        elif self.next_offset(run) != self.start:
            possible.append("offer")
        return possible

    def lost_runs(self, run: Run) -> list[str]:
        """Runs that died with leases, once this run has replayed what was logged before it."""
        if self.cursor is None or self.cursor.owner != run.run_id:
            return []
        runs = {lease.run_id for lease, _ in self.cursor.leases} - {run.run_id}
        return sorted(runs - run.told)

    def something_is_due(self) -> bool:
        event_ms = None if self.cursor is None else self.cursor.next_event_ms
        return event_ms is not None and event_ms < self.now_ms

    @property
    def start(self) -> SourceOffset:
        if self.committed:
            return self.planned[self.committed - 1]
        return self.first

    def next_offset(self, run: Run) -> SourceOffset:
        assert run.answer is not None
        start, end = self.start, len(self.redeliveries)
        own = [one for one in self.redeliveries[run.since :] if one.redeliver.run_id == run.run_id]
        fresh = [
            one
            for one in own
            if run.taken.fresh(CELL, one.redeliver.offsets, delivery_count=one.redeliver.delivery_count)
        ]
        origin = max(start.queue[QUEUE], self.read_position(run))
        admitted = admit(
            fresh,
            start,
            {0: end},
            origin={QUEUE: origin},
            queue_ends={QUEUE: self.messages},
            budget=self.budget,
            room=None,
            turns=run.turns,
            is_enough=lambda waiting: True,
        )
        if admitted is None:
            return start
        offset = SourceOffset(queue=admitted.queue, redeliveries=start.redeliveries)
        return offset.with_lanes(admitted.ordinary, admitted.suspects)

    def read_position(self, run: Run) -> int:
        """As the run knows it: from its answer, and from the cursor as it is now."""
        assert run.answer is not None
        assert self.cursor is not None
        return max(run.answer.read_position, self.cursor.read_position)

    # ---- what happens

    def act(self, action: str, chance: Random) -> None:
        getattr(self, f"do_{action}")(chance)

    def append(self, *markers: Marker) -> None:
        self.log += [(marker, self.now_ms) for marker in markers]

    def do_pass(self, chance: Random) -> None:
        """Time passes: every lease that is not renewed is over."""
        self.now_ms += LEASE_MS + 2_000

    def do_look(self, chance: Random) -> None:
        """The tracker's driver sees where the log ends."""
        self.append(EndOffsetObserved(cell=CELL, position=self.messages))

    def do_restart(self, chance: Random) -> None:
        self.runs += 1
        self.run = Run(f"run-{self.runs}", since=len(self.redeliveries))
        self.append(Hello(cell=CELL, run_id=self.run.run_id, position=0))

    def do_crash(self, chance: Random) -> None:
        self.run = None

    def do_restore(self, chance: Random) -> None:
        """Somebody puts an older checkpoint in place."""
        self.committed = chance.randint(0, self.committed)
        self.planned = self.planned[: chance.randint(self.committed, len(self.planned))]

    def do_delete(self, chance: Random) -> None:
        """Somebody deletes the checkpoint: the next run begins at the cursor."""
        position = 0 if self.cursor is None else self.cursor.read_position
        self.first = SourceOffset(queue={QUEUE: position}, redeliveries={0: len(self.redeliveries)})
        self.planned, self.committed = [], 0

    def do_hear(self, chance: Random) -> None:
        assert self.run is not None
        self.run.answer = self.cursor

    def do_release(self, chance: Random) -> None:
        assert self.run is not None
        for lost in self.lost_runs(self.run):
            self.append(MemberLost(cell=CELL, run_id=self.run.run_id, lost_run_id=lost))
            self.run.told.add(lost)
            self.released += 1

    def do_offer(self, chance: Random) -> None:
        assert self.run is not None
        self.planned.append(self.next_offset(self.run))
        self.run.offered = True

    def do_plan(self, chance: Random) -> None:
        run = self.run
        assert run is not None
        assert run.answer is not None
        start, end = self.start, self.planned[self.committed]
        records = [one.redeliver for one in redelivered_between(self.redeliveries, start, end)]
        if run.offered:
            own = [redeliver for redeliver in records if redeliver.run_id == run.run_id]
            positions = {CELL: self.read_position(run)}
            batch = plan("s", start, end, own, read_positions=positions, taken=run.taken)
        else:
            batch = plan_replay("s", start, end, records, cursors={CELL: run.answer})
        run.turns.planned(alone=batch.alone)
        self.batches += 1
        for one in batch.deliveries:
            self.append(
                Start(
                    cell=CELL,
                    offsets=one.offsets,
                    lease_ms=LEASE_MS,
                    delivery_count=one.delivery_count,
                    run_id=run.run_id,
                    alone=batch.alone,
                )
            )
            self.starts.update(one.offsets)
            gone = OffsetSet.of((0, run.answer.read_position)) - run.answer.outstanding
            assert one.offsets.isdisjoint(gone), "what had ended when the run began is delivered"
            if run.offered and one.delivery_count == 1:
                assert not self.expired & set(one.offsets), "what expired unread is delivered"
            run.taken.add(one)
        for back in batch.hand_backs:
            self.append(
                Release(cell=CELL, offsets=back.offsets, delivery_count=back.delivery_count, delay_ms=0)
            )
        run.batch, run.planned_ms = batch.deliveries, self.now_ms

    def do_handle(self, chance: Random) -> None:
        """The user's code: most is acked, some released, some left to its lease; the poison kills."""
        assert self.run is not None
        assert self.run.batch is not None
        self.hold_back(self.run)
        if chance.random() < 0.3:
            self.hold_back(self.run)  # a second action reads the batch again
        if self.poison is not None and any(self.poison in one.offsets for one in self.run.batch):
            self.run = None
            return
        for one in self.run.batch:
            if self.poison is not None and not self.due_ms:
                self.append(End(cell=CELL, offsets=one.offsets))
                self.acked |= set(one.offsets)
                self.delivered.update(one.offsets)
                continue
            for offset in one.offsets:
                if not self.is_due(offset, self.run):
                    continue
                assert self.now_ms >= self.due_ms.get(offset, 0), "before it was due"
                self.delivered[offset] += 1
                only = OffsetSet.of((offset, offset + 1))
                match self.outcome(chance):
                    case "ack":
                        self.append(End(cell=CELL, offsets=only))
                        self.acked.add(offset)
                    case "release":
                        release = Release(
                            cell=CELL, offsets=only, delivery_count=one.delivery_count, delay_ms=0
                        )
                        self.append(release)
        self.run.handled = True

    def is_due(self, offset: int, run: Run) -> bool:
        return self.due_ms.get(offset, 0) <= run.planned_ms

    def hold_back(self, run: Run) -> None:
        """The executor's part: what is not due is released as never delivered."""
        for one in run.batch or ():
            for offset in one.offsets:
                if not self.is_due(offset, run):
                    only, due_ms = OffsetSet.of((offset, offset + 1)), self.due_ms[offset]
                    count = one.delivery_count
                    self.append(Release(cell=CELL, offsets=only, delivery_count=count, due_ms=due_ms))

    def outcome(self, chance: Random) -> str:
        return "ack" if self.poison is not None else chance.choice(["ack", "ack", "release", "leave"])

    def do_commit(self, chance: Random) -> None:
        assert self.run is not None
        self.committed += 1
        self.run.batch, self.run.handled, self.run.offered = None, False, False

    def do_track(self, chance: Random) -> None:
        """A batch of the tracker: some markers or all there are; in the latter case, time passes too."""
        tracker = CellTracker.resume(self.cursor, cell=CELL, policy=self.policy)
        stop = len(self.log) if chance.random() < 0.6 else min(self.read + 1, len(self.log))
        for marker_offset in range(self.read, stop):
            marker, at_ms = self.log[marker_offset]
            tracker.apply(marker, at_ms=at_ms, marker_offset=marker_offset)
        for decision in tracker.advance(self.now_ms if stop == len(self.log) else None):
            if isinstance(decision, DeadLetter) and decision.reason == EXPIRED:
                assert not self.expired & set(decision.offsets), "it expires twice"
                self.expired |= set(decision.offsets)
            elif isinstance(decision, DeadLetter):
                self.dead |= dict.fromkeys(decision.offsets, decision.delivery_count)
            else:
                at = len(self.redeliveries)
                self.redeliveries.append(RedeliveryRecord(partition=0, offset=at, redeliver=decision))
        self.read, self.cursor = stop, tracker.snapshot()

    # ---- what must hold

    def check(self) -> None:
        limit = self.policy.max_deliveries
        for offset, count in self.dead.items():
            assert limit is not None
            assert count >= limit
            assert self.starts[offset] >= limit, "a dead letter before its last delivery"
        if self.cursor is None:
            return
        known = set(self.cursor.outstanding) | self.acked | set(self.dead) | self.expired
        assert set(range(self.cursor.read_position)) <= known, "lost"

    @property
    def done(self) -> bool:
        return self.acked | set(self.dead) | self.expired == set(range(self.messages))


ACCIDENTS = ("crash", "restore", "delete")


def live(world: World, chance: Random, *, steps: int, accidents: int) -> None:
    """Anything may happen, in any order."""
    for _ in range(steps):
        actions = [one for one in world.actions() if accidents or one not in ACCIDENTS]
        action = chance.choice(actions)
        accidents -= action in ACCIDENTS
        world.act(action, chance)
        world.check()


def finish(world: World, chance: Random) -> None:
    """From here on everybody does his work; time passes when there is none."""
    for _ in range(400):
        if world.done:
            return
        actions = [one for one in world.actions() if one not in (*ACCIDENTS, "pass", "look")]
        world.act(chance.choice(actions) if actions else "pass", chance)
        world.check()
    raise AssertionError(f"stuck: acked {world.acked}, dead {world.dead}, cursor {world.cursor}")


@pytest.mark.parametrize("limit", [2, 3, 5])
def test_every_message_is_acked_or_dies_after_its_last_delivery_whatever_crashes_when(limit: int) -> None:
    for seed in range(150):
        chance = Random(seed)
        budget = chance.choice([None, 1, 2])
        policy = RedeliveryPolicy(max_deliveries=limit)
        world = World(policy, messages=chance.choice([1, 2, 3]), budget=budget)
        live(world, chance, steps=chance.randrange(60), accidents=chance.randrange(8))
        finish(world, chance)


@pytest.mark.parametrize("limit", [2, 3, None])
def test_with_leases_that_end_with_their_run_every_message_is_acked_or_dies_after_its_last_delivery(
    limit: int | None,
) -> None:
    released = 0
    for seed in range(150):
        chance = Random(seed)
        policy = RedeliveryPolicy(max_deliveries=limit)
        world = World(policy, messages=chance.choice([2, 3]), budget=1, releases=True)
        for _ in range(chance.randrange(120)):
            crashes = chance.random() < 0.1 and "crash" in world.actions()
            actions = [one for one in world.actions() if one not in (*ACCIDENTS, "pass")]
            world.act("crash" if crashes else chance.choice(actions or ["pass"]), chance)
            world.check()
        finish(world, chance)
        released += world.released
    assert released > 50


def test_every_delayed_message_comes_when_it_is_due_or_dies_after_its_last_delivery() -> None:
    for seed in range(300):
        chance = Random(seed)
        policy = RedeliveryPolicy(max_deliveries=chance.choice([2, 3, None]))
        world = World(policy, messages=3, due_ms=due_times(chance))
        live(world, chance, steps=chance.randrange(80), accidents=chance.randrange(8))
        finish(world, chance)


def test_without_accidents_a_delayed_message_is_delivered_once() -> None:
    for seed in range(300):
        chance = Random(seed)
        world = World(RedeliveryPolicy(max_deliveries=1), messages=3, due_ms=due_times(chance))
        world.poison = 3  # a message that there is not: every other one is acked
        finish(world, chance)
        assert world.delivered == {0: 1, 1: 1, 2: 1}


def due_times(chance: Random) -> dict[int, int]:
    """Of some messages; sooner and later than a lease."""
    times = [1_000, 30_000, 130_000, 500_000]
    return {offset: chance.choice(times) for offset in range(3) if chance.random() < 0.7}


def test_without_a_limit_every_message_is_acked_in_the_end() -> None:
    for seed in range(150):
        chance = Random(seed)
        world = World(RedeliveryPolicy(max_deliveries=None), messages=3)
        live(world, chance, steps=chance.randrange(60), accidents=chance.randrange(8))
        finish(world, chance)
        assert world.acked == {0, 1, 2}


@pytest.mark.parametrize("limit", [2, 3, 4, 5])
def test_a_message_that_kills_the_process_dies_alone_and_its_neighbours_are_acked(limit: int) -> None:
    for seed in range(60):
        chance = Random(seed)
        poison = chance.randrange(4)
        world = World(RedeliveryPolicy(max_deliveries=limit), messages=4, poison=poison)
        finish(world, chance)
        assert world.dead.keys() == {poison}
        assert world.acked == {0, 1, 2, 3} - {poison}
        assert world.starts[poison] == limit


@pytest.mark.parametrize("limit", [2, 3, 5, None])
def test_innocent_neighbours_of_a_poison_message_outlive_it_whatever_crashes_when(limit: int | None) -> None:
    # Accidents take deliveries, and then the last one of an innocent may be in a group that dies.
    for seed in range(20):
        chance = Random(seed)
        poison = chance.randrange(12)
        world = World(RedeliveryPolicy(max_deliveries=limit), messages=12, poison=poison)
        for _ in range(3 * (limit or 8) * 40):
            if len(world.acked) == 11:
                break
            actions = [one for one in world.actions() if one not in (*ACCIDENTS, "pass", "look")]
            world.act(chance.choice(actions) if actions else "pass", chance)
            world.check()
        assert world.acked == set(range(12)) - {poison}


@pytest.mark.parametrize("limit", [2, 3, 4, 5, 6, None])
@pytest.mark.parametrize("messages", [100, 10_000])
def test_a_death_costs_batches_in_the_order_of_the_root_of_the_batch(
    limit: int | None, messages: int
) -> None:
    # Two groupings: into about the root of the batch's size, and of one group into its messages.
    chance, poison = Random(0), messages // 3
    world = World(RedeliveryPolicy(max_deliveries=limit), messages=messages, poison=poison)
    order = ("hear", "commit", "handle", "plan", "track", "offer", "restart")
    while len(world.acked) < messages - 1 or (limit and not world.dead):
        possible = world.actions()
        world.act(next((one for one in order if one in possible), "pass"), chance)
    assert world.acked == set(range(messages)) - {poison}
    # A death parts those anew that had not come to their turn, too.
    assert world.batches <= 3 * isqrt(messages) + 10
    if limit:
        assert world.dead.keys() == {poison}
        assert world.starts[poison] <= limit + 1
        if limit > 3:
            assert world.starts[poison] == limit


def test_with_a_ttl_every_message_is_acked_or_dies_or_expires_whatever_crashes_when() -> None:
    policy = RedeliveryPolicy(max_deliveries=3, message_ttl_ms=100_000, expired_to=ExpiredTo.DEAD_LETTERS)
    expired = 0
    for seed in range(250):
        chance = Random(seed)
        world = World(policy, messages=chance.choice([1, 2, 3]))
        live(world, chance, steps=chance.randrange(80), accidents=chance.randrange(8))
        finish(world, chance)
        expired += len(world.expired)
    assert expired > 100, "else nothing was tried"
