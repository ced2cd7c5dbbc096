"""Order of the messages of a key: the rules, and planner, sink and tracker in a world of crashes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.batch import Delivery, SourceOffset, StartedDeliveries
from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.key_order import (
    BlockedKeys,
    KeyGate,
    UnfinishedMessages,
    key_hash,
    unfinished_outside,
)
from spark_cursor_source.core.marker import (
    Block,
    End,
    EndLeased,
    EndUpTo,
    Hello,
    Leave,
    Marker,
    Reject,
    Release,
    Requeue,
    Start,
)
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from tests.core.test_protocol_model import ACCIDENTS, CELL, LEASE_MS, Run, World, finish, live
from tests.core.timeline import A, B, Log, dead, offsets, redeliver


def block(held: OffsetSet, *behind: int, count: int = 1) -> Block:
    return Block(cell=log_cell, offsets=held, behind=behind, delivery_count=count)


log_cell = Log().tracker.cell


# ---- the tracker


def test_a_blocked_message_waits_until_the_one_before_it_is_acked_and_its_delivery_does_not_count() -> None:
    # 0 S(0,1,2) Block(1,2 behind 0) | 70 the lease of 0 is over | 71 S(0) | 72 End(0): 1 and 2 come
    log = Log()
    log.hello(A)
    log.start(offsets((0, 3)), at=0)
    log.append(block(offsets(1, 2), 0, 0), at=1)
    assert log.advance(1) == []
    assert log.state.blocked == Blocked(offsets=offsets(1, 2), behind=(0, 0), delivery_counts=(0, 0))
    assert log.state.totals.delivered == 1
    assert log.advance(70) == [redeliver(offsets(0), 1)], "what waits is not announced"
    log.start(offsets(0), at=71, count=2)
    log.end_of(offsets(0), at=72)
    assert log.advance(72) == [redeliver(offsets(1, 2), 0)], "all that wait for it, together"
    assert not log.state.blocked.offsets


def test_what_was_delivered_before_keeps_its_count() -> None:
    log = Log(max_deliveries=9)
    log.hello(A)
    log.start(offsets(0, 1), at=0)
    log.start(offsets(0, 1), at=0, count=2, run=B)
    log.append(block(offsets(1), 0, count=2), at=1)
    assert log.state.blocked.delivery_counts == (1,)
    log.end_of(offsets(0))
    ((wait, held),) = [log.advance(1), log.state.available][1]
    assert (wait.delivery_count, wait.died, held) == (1, True, offsets(1))


def test_a_dead_letter_and_a_reject_let_the_next_one_go() -> None:
    log = Log(max_deliveries=1)
    log.hello(A)
    log.start(offsets((0, 3)), at=0)
    log.append(block(offsets(1), 0), at=1)
    log.append(block(offsets(2), 1), at=1)
    log.advance(1)
    assert log.advance(61) == [
        dead(offsets(0), 1, "max-deliveries"),
        redeliver(offsets(1), 0),
    ], "2 waits for 1"
    log.start(offsets(1), at=62)
    log.reject(offsets(1), at=63)
    assert log.advance(63) == [
        dead(offsets(1), 1, "rejected", "bad", 62),
        redeliver(offsets(2), 0),
    ]


def test_a_late_block_and_one_behind_a_message_that_is_gone() -> None:
    log = Log()
    log.hello(A)
    log.start(offsets((0, 4)), at=0)
    log.end_of(offsets(0, 2))
    log.append(block(offsets(1, 2, 3), 0, 0, 0), at=1)
    assert log.advance(1) == [redeliver(offsets(1, 3), 0)], "0 is gone, and so is 2"
    log.append(block(offsets(1), 0), at=2)
    assert log.state.blocked.offsets == EMPTY, "no lease of that delivery"


def test_an_ack_a_seek_and_a_start_end_the_wait() -> None:
    log = Log()
    log.hello(A)
    log.start(offsets((0, 5)), at=0)
    log.append(block(offsets((1, 5)), 0, 0, 0, 0), at=1)
    log.end_of(offsets(1))
    log.start(offsets(2), at=2)
    assert log.state.blocked.offsets == offsets(3, 4)
    log.end_of(offsets((0, 5)), run=A)
    assert log.state.blocked.offsets == offsets(3, 4), "a planner's End spares what was never delivered"
    log.seek(0)
    assert log.state.outstanding == EMPTY


# ---- what a planner knows


def marker_log(*markers: object) -> UnfinishedMessages:
    start = CursorSnapshot(cell=CELL, read_position=0, next_marker=0, owner="r")
    unfinished = UnfinishedMessages(start)
    for at, marker in enumerate(markers):
        unfinished.apply(marker, marker_offset=at)  # type: ignore[arg-type]
    return unfinished


def started(held: OffsetSet, count: int = 1) -> Start:
    return Start(cell=CELL, offsets=held, lease_ms=LEASE_MS, delivery_count=count, run_id="r")


def test_a_planner_knows_what_has_not_ended() -> None:
    held = offsets((0, 9))
    assert marker_log(started(held), End(cell=CELL, offsets=offsets(1, 2))).offsets == held - offsets(1, 2)
    assert marker_log(started(held), EndUpTo(cell=CELL, position=4)).offsets == offsets((4, 9))
    requeue = Requeue(cell=CELL, offsets=offsets(20))
    assert marker_log(requeue).offsets == offsets(20)


def test_the_end_of_a_batch_ends_what_was_not_given_back_since_its_start() -> None:
    held = offsets((0, 5))
    markers = (
        started(held),
        Release(cell=CELL, offsets=offsets(0), delivery_count=1),
        Leave(cell=CELL, offsets=offsets(1), delivery_count=1),
        Block(cell=CELL, offsets=offsets(2), behind=(0,), delivery_count=1),
    )
    end = EndLeased(cell=CELL, offsets=held, run_id="r", delivery_count=1)
    assert marker_log(*markers, end).offsets == offsets(0, 1, 2)
    again = started(offsets(0, 2), 2)
    end_again = EndLeased(cell=CELL, offsets=offsets(0, 2), run_id="r", delivery_count=2)
    assert marker_log(*markers, end, again, end_again).offsets == offsets(1)


def test_a_rejected_message_has_ended_when_a_cursor_says_so() -> None:
    held = offsets((0, 3))
    reject = Reject(cell=CELL, offsets=offsets(1), delivery_count=1)
    end = EndLeased(cell=CELL, offsets=held, run_id="r", delivery_count=1)
    unfinished = marker_log(started(held), reject, end)
    assert unfinished.offsets == offsets(1), "the tracker ignores a Reject that comes late"
    unfinished.see(CursorSnapshot(cell=CELL, read_position=3, next_marker=3))
    assert unfinished.offsets == EMPTY


@pytest.mark.parametrize(
    "late",
    [
        Reject(cell=log_cell, offsets=offsets(0), delivery_count=1),
        Reject(cell=log_cell, offsets=offsets(0), delivery_count=2, topic_id="deleted"),
        End(cell=log_cell, offsets=offsets(0), topic_id="deleted"),
        EndLeased(cell=log_cell, offsets=offsets(0), run_id=A, delivery_count=1),
    ],
    ids=["delivery", "topic of a Reject", "topic of an End", "run"],
)
def test_a_late_marker_that_the_tracker_ignores_ends_nothing_for_the_planner_either(late: Marker) -> None:
    log = Log()
    log.hello(A, topic_id="present")
    log.start(offsets(0), at=0)
    log.advance(61)
    log.hello(B, topic_id="present")
    log.start(offsets(0), at=62, count=2, run=B)
    planner = UnfinishedMessages(log.state)
    planner.apply(late, marker_offset=log.end)
    log.append(late, at=63)
    assert log.state.outstanding == planner.offsets == offsets(0)


def test_a_marker_that_the_answer_includes_changes_nothing() -> None:
    answer = CursorSnapshot(cell=CELL, read_position=5, next_marker=7)
    unfinished = UnfinishedMessages(answer)
    unfinished.apply(started(offsets(3)), marker_offset=6)
    assert unfinished.offsets == EMPTY
    unfinished.apply(started(offsets(5)), marker_offset=7)
    assert (unfinished.offsets, unfinished.next_marker) == (offsets(5), 8)


def test_a_cursor_tells_what_the_tracker_has_ended() -> None:
    unfinished = marker_log(started(offsets((0, 6))))
    blocked = Blocked(offsets=offsets(3), behind=(2,), delivery_counts=(0,))
    available = CursorSnapshot(cell=CELL, read_position=5, next_marker=1, blocked=blocked)
    unfinished.see(available)
    assert unfinished.offsets == offsets(3, 5), "5 is beyond its read position"
    assert unfinished.blocked == offsets(3)


# ---- the gate


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12), st.integers(0, 12))
def test_the_gate_lets_no_message_pass_an_earlier_one_of_its_key_and_blocks_no_other(
    unfinished: list[tuple[int, bool]], offset: int
) -> None:
    keys = BlockedKeys(
        hashes=tuple(key for key, _ in unfinished),
        offsets=tuple(range(len(unfinished))),
        waits=tuple(waits for _, waits in unfinished),
    )
    gate = KeyGate(keys)
    for key in range(3):
        earlier = [at for at, (of, _) in enumerate(unfinished) if of == key and at < offset]
        first_hand = [at for at in earlier if not unfinished[at][1]]
        assert gate.blocker(offset, key) == max(first_hand or earlier, default=None)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12))
def test_what_is_left_out_of_the_keys_of_a_batch_changes_nothing(
    unfinished: list[tuple[int, bool]],
) -> None:
    hashes = {offset: key for offset, (key, _) in enumerate(unfinished)}
    waiting = OffsetSet.from_offsets([offset for offset, (_, waits) in enumerate(unfinished) if waits])
    every = BlockedKeys(
        hashes=tuple(hashes.values()),
        offsets=tuple(hashes),
        waits=tuple(offset in waiting for offset in hashes),
    )
    some = KeyGate(BlockedKeys.of(hashes, waiting))
    for offset in range(13):
        for key in range(3):
            assert some.blocker(offset, key) == KeyGate(every).blocker(offset, key)


def test_a_cancelled_delivery_makes_no_announcement_stale() -> None:
    taken = StartedDeliveries()
    taken.add(Delivery(cell=CELL, offsets=offsets((0, 4)), delivery_count=2))
    taken.cancel(CELL, offsets(1, 2), delivery_count=2)
    assert taken.fresh(CELL, offsets((0, 4)), delivery_count=1) == offsets(1, 2)


# ---- everything together


@dataclass
class OrderedWorld(World):
    """A world whose messages have keys, and whose judge looks at each call of the user's code."""

    keys: dict[int, bytes] = field(default_factory=dict)
    unfinished: UnfinishedMessages | None = None  # what the planner that is alive knows
    blocked: BlockedKeys = field(default_factory=BlockedKeys)  # of the batch in progress
    passed: set[int] = field(default_factory=set)  # handled with success at least once
    blocks: Counter[int] = field(default_factory=Counter)

    def do_hear(self, chance: Random) -> None:
        super().do_hear(chance)
        assert self.run is not None
        assert self.run.answer is not None
        self.unfinished = UnfinishedMessages(self.run.answer)

    def next_offset(self, run: Run) -> SourceOffset:
        self.follow(run)
        return super().next_offset(run)

    def follow(self, run: Run) -> UnfinishedMessages:
        assert self.unfinished is not None
        for at in range(self.unfinished.next_marker, len(self.log)):
            marker, _ = self.log[at]
            if isinstance(marker, Block):
                run.taken.cancel(CELL, marker.offsets, delivery_count=marker.delivery_count)
            self.unfinished.apply(marker, marker_offset=at)
        return self.unfinished

    def do_plan(self, chance: Random) -> None:
        run = self.run
        assert run is not None
        super().do_plan(chance)
        unfinished = self.follow(run)
        if self.cursor is not None and self.cursor.owner == run.run_id:
            unfinished.see(self.cursor)
        batch = OffsetSet.union(one.offsets for one in run.batch or ())
        outside = unfinished_outside(unfinished, batch)
        hashes = {one: key_hash(self.keys[one]) for one in outside}
        self.blocked = BlockedKeys.of(hashes, unfinished.blocked)

    def do_handle(self, chance: Random) -> None:
        """The user's code gets one message after another. The process may die at any of them."""
        run = self.run
        assert run is not None
        assert run.batch is not None
        gate = KeyGate(self.blocked)
        held: dict[bytes, int] = {}  # by the sink, behind a message of this batch
        dies_at = chance.choice([None, None, None, 0, 1, 2])
        counts = {offset: one.delivery_count for one in run.batch for offset in one.offsets}
        for number, (offset, count) in enumerate(sorted(counts.items())):
            if number == dies_at:
                self.run = None
                return
            key = self.keys[offset]
            behind = gate.blocker(offset, key_hash(key))
            assert behind is None or behind not in self.acked, "it waits for what has ended"
            behind = held.get(key) if behind is None else behind
            if behind is not None:
                assert self.keys[behind] == key, "another key is blocked"
                only = OffsetSet.of((offset, offset + 1))
                self.append(Block(cell=CELL, offsets=only, behind=(behind,), delivery_count=count))
                self.blocks[offset] += 1
            else:
                self.call(offset, count, held, chance)
        run.handled = True

    def call(self, offset: int, count: int, held: dict[bytes, int], chance: Random) -> None:
        key, only = self.keys[offset], OffsetSet.of((offset, offset + 1))
        gone = self.passed | self.dead.keys()
        for earlier in range(offset):
            assert self.keys[earlier] != key or earlier in gone, f"{offset} passes {earlier}"
        self.delivered[offset] += 1
        match chance.choice(["ack", "ack", "release", "release later", "leave"]):
            case "ack":
                self.append(End(cell=CELL, offsets=only))
                self.acked.add(offset)
                self.passed.add(offset)
                return
            case "release":
                self.append(Release(cell=CELL, offsets=only, delivery_count=count, delay_ms=0))
            case "release later":
                self.append(Release(cell=CELL, offsets=only, delivery_count=count, delay_ms=LEASE_MS))
        held.setdefault(key, offset)


def ordered_world(
    chance: Random, limit: int | None, messages: int, *, releases: bool = False
) -> OrderedWorld:
    keys = {offset: chance.choice([b"a", b"a", b"b"]) for offset in range(messages)}
    policy, budget = RedeliveryPolicy(max_deliveries=limit), chance.choice([None, 1, 2])
    return OrderedWorld(policy, messages=messages, budget=budget, keys=keys, releases=releases)


@pytest.mark.parametrize("limit", [2, 3, 5, None])
def test_no_message_is_handled_before_an_earlier_one_of_its_key_whatever_crashes_when(
    limit: int | None,
) -> None:
    blocked = 0
    for seed in range(200):
        chance = Random(seed)
        world = ordered_world(chance, limit, chance.choice([2, 3, 3, 5]))
        live(world, chance, steps=chance.randrange(80), accidents=chance.randrange(8))
        finish(world, chance)
        blocked += world.blocks.total()
    assert blocked > 50


def test_the_order_holds_where_leases_end_with_their_run() -> None:
    released = 0
    for seed in range(200):
        chance = Random(seed)
        world = ordered_world(chance, chance.choice([2, 3, None]), 3, releases=True)
        for _ in range(chance.randrange(120)):
            crashes = chance.random() < 0.1 and "crash" in world.actions()
            actions = [one for one in world.actions() if one not in (*ACCIDENTS, "pass")]
            world.act("crash" if crashes else chance.choice(actions or ["pass"]), chance)
            world.check()
        finish(world, chance)
        released += world.released
    assert released > 50


def test_without_crashes_a_key_that_fails_holds_back_no_other_key() -> None:
    # Key a fails until it is dead. All of b is acked before anything of a comes for the second time.
    world = OrderedWorld(RedeliveryPolicy(max_deliveries=2), messages=4)
    world.keys = {0: b"a", 1: b"b", 2: b"a", 3: b"b"}
    chance = Random(1)
    world.call = lambda offset, count, held, chance: (  # type: ignore[method-assign]
        OrderedWorld.call(world, offset, count, held, Always("ack" if offset % 2 else "release"))
    )
    dies = Always(None)
    order = ("hear", "commit", "handle", "plan", "track", "offer", "restart")
    while not world.done:
        possible = world.actions()
        action = next((one for one in order if one in possible), "pass")
        world.act(action, dies if action == "handle" else chance)
        world.check()
    assert world.dead.keys() == {0, 2}
    assert world.delivered == {0: 2, 1: 1, 2: 2, 3: 1}
    counted = {offset: world.starts[offset] - world.blocks[offset] for offset in range(4)}
    assert counted == world.delivered, "what was held back did not count"
    hellos = [marker for marker, _ in world.log if isinstance(marker, Hello)]
    assert len(hellos) == 1


class Always(Random):
    """A chance that always says the same."""

    def __new__(cls, answer: object) -> Always:
        return super().__new__(cls)

    def __init__(self, answer: object) -> None:
        super().__init__()
        self._answer = answer

    def choice(self, seq: object) -> object:  # type: ignore[override]
        return self._answer
