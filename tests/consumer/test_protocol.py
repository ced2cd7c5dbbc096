"""The consumer protocol of a query and of the plain client, in a world where anything may happen."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

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
        member = front(world)
        live(world, member, chance, steps=chance.randrange(120))
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
        query = OrderedFront(world)
        live(world, query, chance, steps=chance.randrange(120), happenings=WITHOUT_MOVES)
        world.outcome = lambda: "ack"
        finish(world, query, chance)
        blocked += query.blocked
    assert blocked > 300


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
