"""Messages of one task that wait behind an earlier message of their key, read from a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from spark_cursor_source.core.key_order import BlockedKeys, key_hash
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.topics.delayed import DelayFilter
from spark_cursor_source.topics.key_order import OrderFilter
from spark_cursor_source.topics.queue import arrow_batches
from tests.kafka.control_plane import produce

pytestmark = pytest.mark.broker

MESSAGES = 600
KEYS = [None, *(b"customer-%d" % number for number in range(40))]


class Queue:
    """A topic of one partition, and reads of slices of it."""

    def __init__(self, broker: EmbeddedKafka, topic: str) -> None:
        self.config = {"bootstrap.servers": broker.bootstrap_servers}
        self.topic = topic
        self.early: dict[int, int] = {}

    def read(self, *pieces: Slice, blocked: BlockedKeys, now_ms: int = 0) -> tuple[list[int], dict[int, int]]:
        """The delivered offsets, and the ones that wait, each with what it waits for."""
        waits: dict[int, int] = {}

        def on_blocked(piece: Slice, offsets: OffsetSet, behind: tuple[int, ...]) -> None:
            assert not offsets - piece.offsets
            waits.update(zip(offsets, behind, strict=True))

        def on_early(piece: Slice, offsets: OffsetSet, due_ms: int) -> None:
            self.early.update(dict.fromkeys(offsets, due_ms))

        batches = arrow_batches(
            self.config,
            pieces,
            include_headers=False,
            queue_id=None,
            on_missing=lambda *missing: pytest.fail(str(missing)),
            hold_back=DelayFilter(now_ms=now_ms, on_early=on_early) if now_ms else None,
            order=OrderFilter(blocked=blocked, on_blocked=on_blocked),
        )
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()], waits

    def piece(self, offsets: OffsetSet, count: int = 1) -> Slice:
        return Slice(topic=self.topic, partition=0, offsets=offsets, delivery_count=count)


@pytest.fixture
def queue(broker: EmbeddedKafka, create_topic: Callable[..., str]) -> Queue:
    return Queue(broker, create_topic())


def test_a_message_waits_for_the_last_unfinished_one_before_it_of_its_key(queue: Queue) -> None:
    chance = Random(0)
    keys = [chance.choice(KEYS) for _ in range(MESSAGES)]
    records: list[dict[str, Any]] = [{"key": key, "value": b"v"} for key in keys]
    produce(queue.config, queue.topic, records)
    batch = OffsetSet.from_offsets([offset for offset in range(MESSAGES) if chance.random() < 0.7])
    outside = [offset for offset in range(MESSAGES) if offset not in batch and chance.random() < 0.3]
    waiting = OffsetSet.from_offsets([offset for offset in outside if chance.random() < 0.3])
    blocked = BlockedKeys.of({offset: key_hash(keys[offset]) for offset in outside}, waiting)
    first, again = batch.below(400), batch.starting_at(400)
    delivered, waits = queue.read(queue.piece(first, 2), queue.piece(again), blocked=blocked)

    def expected(offset: int) -> int | None:
        earlier = [one for one in outside if one < offset and keys[one] == keys[offset]]
        return max((one for one in earlier if one not in waiting), default=max(earlier, default=None))

    found = {offset: expected(offset) for offset in batch}
    assert delivered == [offset for offset, behind in found.items() if behind is None]
    assert waits == {offset: behind for offset, behind in found.items() if behind is not None}
    assert len(waits) > 50


def test_a_message_that_is_not_due_holds_back_the_later_ones_of_its_key(queue: Queue) -> None:
    now_ms = int(time.time() * 1000)
    later = [("deliverAt", str(now_ms + 60_000).encode())]
    records: list[dict[str, Any]] = [
        {"key": b"a", "value": b"0"},
        {"key": b"a", "value": b"1", "headers": later},
        {"key": b"b", "value": b"2"},
        {"key": b"a", "value": b"3"},
        {"key": b"a", "value": b"4", "headers": later},
        {"key": b"a", "value": b"5"},
    ]
    produce(queue.config, queue.topic, records)
    none = BlockedKeys.of({}, EMPTY)
    delivered, waits = queue.read(queue.piece(OffsetSet.of((0, 6))), blocked=none, now_ms=now_ms)
    assert delivered == [0, 2]
    assert queue.early.keys() == {1, 4}
    assert waits == {3: 1, 5: 4}
