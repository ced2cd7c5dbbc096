"""Writers of one transactional id that end each other's transactions, on a clock of the test's own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from spark_cursor_source.errors import KafkaUnavailable, TrackerFenced, WriterOvertaken
from spark_cursor_source.kafka.fenced_producers import Turns

PATIENCE_S = 180.0
PIECES = 10


@dataclass
class World:
    """The clock, and the writer that has opened the id last."""

    now_s: float = 0.0
    owner: object = None


@dataclass
class Budget:
    """A deadline on the clock of the world. It notes the pause instead of sleeping."""

    world: World
    until_s: float
    paused_s: float = 0.0

    @property
    def over(self) -> bool:
        return self.world.now_s >= self.until_s

    @property
    def spent_ms(self) -> int:
        return int((PATIENCE_S - self.until_s + self.world.now_s) * 1000)

    def pause(self, seconds: float) -> None:
        self.paused_s = seconds


def turns_of(world: World, uniform: object) -> tuple[Turns, Budget]:
    budget = Budget(world, world.now_s + PATIENCE_S)
    return Turns("write", budget, clock=lambda: world.now_s, uniform=uniform), budget  # type: ignore[arg-type]


def writes(world: World, takes_s: float, chance: random.Random) -> Iterator[float]:
    """A writer of some pieces. Yields how long it is busy or pauses."""
    for _ in range(PIECES):
        turns, budget = turns_of(world, chance.uniform)
        while True:
            turns.begin()
            world.owner = mine = object()
            yield takes_s * chance.uniform(0.8, 1.2)
            if world.owner is mine:
                break
            turns.yield_to(TrackerFenced("id"))
            yield budget.paused_s


def run_together(writers: int, takes_s: float, seed: int) -> float:
    """Runs writers at the same time. Returns how long all of them take."""
    world, chance = World(), random.Random(seed)
    due = [(chance.uniform(0, takes_s), n, writes(world, takes_s, chance)) for n in range(writers)]
    heapq.heapify(due)
    while due:
        world.now_s, n, writer = heapq.heappop(due)
        if (busy_s := next(writer, None)) is not None:
            heapq.heappush(due, (world.now_s + busy_s, n, writer))
    return world.now_s


@pytest.mark.parametrize("takes_s", [0.05, 1.0, 5.0])
def test_writers_that_end_each_others_transactions_all_get_through(takes_s: float) -> None:
    took_s = [run_together(2, takes_s, seed) for seed in range(50)]
    assert sum(took_s) / len(took_s) < 2.5 * 2 * PIECES * takes_s


@pytest.mark.parametrize(
    ("takes_s", "longest_s"), [(0.01, [0.1, 0.1, 0.1, 0.16]), (1.0, [2, 4, 8, 16, 20, 20]), (30.0, [20, 20])]
)
def test_a_pause_grows_with_the_lost_attempt_and_with_each_loss(
    takes_s: float, longest_s: list[float]
) -> None:
    world = World()
    turns, budget = turns_of(world, lambda least, most: most)
    for longest in longest_s:
        turns.begin()
        world.now_s += takes_s
        turns.yield_to(TrackerFenced("id"))
        assert budget.paused_s == pytest.approx(longest, abs=0.01)


def test_a_writer_that_never_gets_through_says_so_and_not_that_kafka_is_down() -> None:
    world = World()
    turns, _ = turns_of(world, random.uniform)
    world.now_s = PATIENCE_S
    with pytest.raises(WriterOvertaken, match="other writers") as raised:
        turns.yield_to(TrackerFenced("id"))
    assert isinstance(raised.value, KafkaUnavailable), "as of any other call that a deadline ends"
    assert "brokers" not in str(raised.value)
