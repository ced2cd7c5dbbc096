"""The consumer protocol of a query and of the plain client, in a world where anything may happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from spark_cursor_source.core.limits import NO_LIMITS, Limits
from spark_cursor_source.core.marker import End, EndPause, Start
from spark_cursor_source.core.policy import RedeliveryPolicy
from tests.consumer.protocol_world import (
    CELLS,
    FRONTS,
    LEASE_MS,
    PARTITIONS,
    ClientFront,
    OrderedFront,
    SparkFront,
    World,
)

Front = type[SparkFront] | type[ClientFront]
HAPPENINGS = (
    "rebalance",
    "take_over",
    "pause",
    "pause_subscription",
    "limit",
    "leave_group",
    "seek",
    "save",
    "restore",
    "let_time_pass",
    "settle",
    "repeat",
    "disturb",
    "track",
)

# An operator's move makes messages unread that have ended, also of a batch that is at work.
WITHOUT_MOVES = tuple(one for one in HAPPENINGS if one not in ("seek", "save", "restore"))


def live(
    world: World,
    front: SparkFront | ClientFront,
    chance: Random,
    *,
    steps: int,
    happenings: Sequence[str] = HAPPENINGS,
) -> None:
    for _ in range(steps):
        if chance.random() < 0.4:
            front.step(chance.choice([1, 2, 5]))
        elif chance.random() < 0.03:
            world.held.clear()
            front.restart()
        else:
            getattr(world, chance.choice(happenings))(chance)


def finish(world: World, front: SparkFront | ClientFront, chance: Random) -> None:
    """From here on the group is quiet, every delivery is acked, and time passes when there is no work."""
    world.assigned, world.paused, world.trouble = set(range(PARTITIONS)), set(), None
    world.send([EndPause(cell=cell) for cell in CELLS])
    world.set_limits(NO_LIMITS)
    for _ in range(400):
        if world.done and world.is_read:
            return
        world.track(chance, everything=True)
        held, world.held = world.held, []
        if not held:
            world.now_ms += 20_000
        for delivery in held:
            world.ack(delivery)
        front.step(2)
    raise AssertionError(f"lost: {PARTITIONS * world.messages - len(world.ended)} messages")


@pytest.mark.parametrize("front", FRONTS, ids=["query", "query that acks by batch", "client"])
def test_all_is_started_once_for_each_announcement_and_only_by_its_owner_whatever_happens(
    front: Front,
) -> None:
    again = alone = released = restored = 0
    for seed in range(150):
        chance = Random(seed)
        policy = RedeliveryPolicy(max_deliveries=chance.choice([3, 3, None]))
        foreign = frozenset(chance.choice([(), (), (1, 2), (5,)]))
        messages = chance.choice([1, 3, 6])
        world = World(messages=messages, policy=policy, foreign=foreign & set(range(messages)))
        world.releases = chance.random() < 0.5
        world.standstills = chance
        member = front(world)
        live(world, member, chance, steps=chance.randrange(120))
        world.standstills = None
        finish(world, member, chance)
        again, alone = again + world.started_again, alone + world.started_alone
        released, restored = released + world.released_leases, restored + world.restored
    assert again > 200
    assert alone > 20
    assert released > 20
    assert restored > 20


def test_a_query_handles_no_message_before_an_earlier_one_of_its_key_whatever_happens() -> None:
    blocked = 0
    for seed in range(300):
        chance = Random(seed)
        policy = RedeliveryPolicy(max_deliveries=chance.choice([3, 3, None]))
        world = World(messages=chance.choice([2, 4, 6]), policy=policy)
        world.releases = chance.random() < 0.5
        world.outcome = lambda chance=chance: chance.choice(["ack", "ack", "release", "leave"])  # type: ignore[misc]
        world.standstills = chance
        query = OrderedFront(world)
        live(world, query, chance, steps=chance.randrange(120), happenings=WITHOUT_MOVES)
        world.outcome, world.standstills = lambda: "ack", None
        finish(world, query, chance)
        blocked += query.blocked
    assert blocked > 300


def test_a_query_ends_no_batch_that_has_no_messages_although_a_topic_was_created_again() -> None:
    # A batch to that end would begin where the last one began, if that was not at the end before it.
    world, chance = World(messages=1, policy=RedeliveryPolicy()), Random(0)
    query = SparkFront(world)
    while not world.held:
        query.step(5)
        world.track(chance, everything=True)
    last = query._start
    query._parts.here = lambda offset: replace(offset, redeliveries_id="created again")
    assert query._phase.next_end(last, max_offsets=None) is last


@pytest.mark.parametrize("front", FRONTS, ids=["query", "query that acks by batch", "client"])
def test_a_rate_of_an_operator_holds_from_the_next_look_until_it_is_removed(front: Front) -> None:
    # 0 five start ---- 2 per second: 2 in each second, redeliveries too ---- no limit: all start
    world, chance = World(messages=60, policy=RedeliveryPolicy()), Random(0)
    member = front(world)
    for _ in range(3):
        member.step(5)
        world.track(chance, everything=True)
    world.held.clear()
    world.now_ms += LEASE_MS + 2_000  # what was started comes again
    world.track(chance, everything=True)
    world.set_limits(Limits(rate=2.0))
    world.track(chance, everything=True)
    member.step(5)
    before = started(world)
    for second in range(1, 8):
        world.now_ms += 1_000
        for _ in range(4):
            world.held.clear()
            member.step(5)
            world.track(chance, everything=True)
        assert 2 * second - 1 <= started(world) - before <= 2 * second + 1
    world.set_limits(NO_LIMITS)
    world.track(chance, everything=True)
    member.step(5)
    for _ in range(4):
        world.held.clear()
        member.step(5)
    assert started(world) - before > 20


@pytest.mark.parametrize("front", FRONTS, ids=["query", "query that acks by batch", "client"])
def test_a_limit_of_outstanding_messages_holds_also_for_markers_that_nobody_has_read(front: Front) -> None:
    world, chance = World(messages=60, policy=RedeliveryPolicy()), Random(0)
    member = front(world)
    member.step(1)
    world.track(chance, everything=True)
    world.set_limits(Limits(max_outstanding=7))
    world.track(chance, everything=True)
    for _ in range(9):
        world.held.clear()
        member.step(5)
    assert started(world) == 7, "although the tracker has not read the last Starts"


def started(world: World) -> int:
    """The number of deliveries so far."""
    return sum(len(marker.offsets) for marker, _ in world.log if isinstance(marker, Start))


def test_a_client_does_not_skip_what_came_again_after_a_start_that_nobody_confirmed() -> None:
    # Start(1) is stored, and its write fails | the lease ends | Start(2) | the client fetches them again
    world, chance = World(messages=1, policy=RedeliveryPolicy()), Random(0)
    client = ClientFront(world)
    client.step(9)
    world.track(chance, everything=True)
    world.trouble = "unconfirmed"
    client.step(9)
    assert not world.held, "the application has received nothing"
    world.track(chance, everything=True)
    world.now_ms += LEASE_MS + 2_000
    world.track(chance, everything=True)
    for _ in range(2 * PARTITIONS):
        client.step(9)
        world.track(chance, everything=True)
    assert sorted(one.cell.partition for one in world.held) == [0, 1, 2]
    counts = [marker.delivery_count for marker, _ in world.log if isinstance(marker, Start)]
    assert counts == [1, 1, 1, 2, 2, 2]
    assert not [marker for marker, _ in world.log if isinstance(marker, End)], "nobody has acked"
