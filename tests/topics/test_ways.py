"""Property: with the native reader and without it a queue has the same rows and the same missing offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.key_order import NO_KEYS, BlockedKeys, key_hash
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import KeyShare, Slice
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.consumers import close_idle_consumers
from spark_cursor_source.topics.delayed import DelayFilter
from spark_cursor_source.topics.key_order import OrderFilter
from spark_cursor_source.topics.queue import arrow_batches
from tests.kafka.everything import END, NOW_MS, fill
from tests.kafka.ways import NEEDS_NATIVE, same_on_both_ways

pytestmark = [pytest.mark.broker, NEEDS_NATIVE]


@pytest.fixture(scope="module")
def topic(broker: EmbeddedKafka) -> str:
    return fill({"bootstrap.servers": broker.bootstrap_servers})


SOME_KEYS = BlockedKeys.of(
    {3: key_hash(b"a"), 40: key_hash(None), 90: key_hash(b"none")}, OffsetSet.of((40, 41))
)
ranges = st.lists(st.tuples(st.integers(0, END), st.integers(0, 200)), min_size=1, max_size=6)


@pytest.fixture(scope="module", autouse=True)
def no_consumer_outlives_its_test() -> Iterator[None]:
    yield
    close_idle_consumers()


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    ranges=ranges | st.just([(0, END)]),
    queue_id=st.sampled_from([None, None, b"", b"a", b"none"]),
    share=st.sampled_from([None, None, KeyShare(index=0, of=2), KeyShare(index=2, of=3)]),
    headers=st.booleans(),
    held_back=st.booleans(),
    isolation=st.sampled_from(["read_committed", "read_uncommitted"]),
    blocked=st.sampled_from([None, None, NO_KEYS, SOME_KEYS]),
)
def test_both_ways_give_the_same(
    broker: EmbeddedKafka,
    topic: str,
    ranges: list[tuple[int, int]],
    queue_id: bytes | None,
    share: KeyShare | None,
    headers: bool,
    held_back: bool,
    isolation: str,
    blocked: BlockedKeys | None,
) -> None:
    offsets = OffsetSet.of(*((start, min(END, start + length)) for start, length in ranges))
    pieces = [
        Slice(topic=topic, partition=0, offsets=offsets, delivery_count=count, share=share)
        for count in (1, 2)
    ]

    def read() -> object:
        told: list[object] = []
        batches = list(
            arrow_batches(
                {"bootstrap.servers": broker.bootstrap_servers, "isolation.level": isolation},
                pieces,
                include_headers=headers,
                queue_id=queue_id,
                on_missing=lambda *missing: told.append(missing),
                hold_back=DelayFilter(now_ms=NOW_MS, on_early=lambda *early: told.append(early))
                if held_back
                else None,
                order=None
                if blocked is None
                else OrderFilter(blocked=blocked, on_blocked=lambda *waits: told.append(waits)),
            )
        )
        for batch in batches:
            batch.validate(full=True)
        return [row for batch in batches for row in batch.cast(batch.schema).to_pylist()], told

    same_on_both_ways(read)
