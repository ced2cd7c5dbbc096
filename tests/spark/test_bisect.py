"""``AckSink(fn, on_error="bisect")``: failing rows are left out, and an outage still ends the query."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_cursor_source import AckSink
from spark_cursor_source.core.marker import Release
from spark_cursor_source.errors import ConflictingOptions, InvalidOption, NullMessageId
from spark_cursor_source.spark.bisected import _Parts
from tests.spark.harness import Bench, wait_until

pytestmark = pytest.mark.spark

BAD = b"bad"
SCHEMA = "topic STRING, partition INT, offset BIGINT, delivery_count INT"
TWICE = "two-deliveries"  # a subscription whose messages are delivered twice


class Store:
    """A batch function that stores all rows of a call or none. It fails on bad values and in an outage."""

    def __init__(self) -> None:
        self.calls = 0
        self.stored: Counter[tuple[int, int]] = Counter()
        self.is_down = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows: list[Any] = batch.collect()
        if not rows:
            return
        self.calls += 1
        if self.is_down:
            raise ConnectionError("the store is down")
        bad = [row.offset for row in rows if row.value == BAD]
        if bad:
            raise ValueError(f"cannot store offset {bad[0]}")
        self.stored.update((row.partition, row.offset) for row in rows)


def test_bad_rows_end_as_dead_letters_and_all_others_are_acked_in_their_batch(bench: Bench) -> None:
    topic = bench.create_topic(2)
    options = bench.options(topic, TWICE)
    bench.produce(topic, [BAD if number in (7, 100) else b"good" for number in range(150)])
    bench.produce(topic, [BAD if number == 31 else b"good" for number in range(50)], partition=1)
    store = Store()
    bench.start(options, AckSink(store, options, on_error="bisect"))
    letters = bench.until(
        lambda: found if len(found := bench.dead_letters(topic, TWICE)) == 3 else None, "three dead letters"
    )
    bench.until_acked(topic, {0: 150, 1: 50}, TWICE)
    assert sorted((int(one.facts["partition"]), int(one.facts["offset"])) for one in letters) == [
        (0, 7),
        (0, 100),
        (1, 31),
    ]
    assert {one.facts["error"] for one in letters} == {
        f"ValueError: cannot store offset {offset}" for offset in (7, 31, 100)
    }
    assert set(store.stored.values()) == {1}, "no row was stored twice"
    assert len(store.stored) == 197
    delays = {one.marker.delay_ms for one in bench.markers(topic, TWICE, Release)}
    assert delays == {None}, "the tracker's backoff decides"


def test_an_outage_ends_the_query_and_acks_nothing(bench: Bench) -> None:
    topic = bench.create_topic()
    options = bench.options(topic)
    bench.produce(topic, [b"good"] * 20)
    store = Store()
    store.is_down = True
    query = bench.start(options, AckSink(store, options, on_error="bisect"))
    assert "ConnectionError: the store is down" in bench.failure(query)
    assert store.calls == 4
    store.is_down = False
    bench.start(options, AckSink(store, options, on_error="bisect"))
    bench.until_acked(topic, 20)
    assert set(store.stored.values()) == {1}


def test_a_bad_row_that_is_alone_ends_no_query_but_the_third_such_batch_does(bench: Bench) -> None:
    topic = bench.create_topic()
    options = bench.options(topic, TWICE)
    bench.produce(topic, [BAD])
    store = Store()
    query = bench.start(options, AckSink(store, options, on_error="bisect"))
    bench.until(lambda: len(bench.dead_letters(topic, TWICE)) == 1, "it fails twice")
    bench.produce(topic, [b"good"])
    bench.until(lambda: store.stored, "the query goes on")
    store.is_down = True
    for number in range(3):
        bench.produce(topic, [b"good"])
        # Not `bench.until`: for that, a failure between its two looks is an error.
        wait_until(lambda calls=store.calls: store.calls > calls or query.exception(), f"call {number}")
    assert "ConnectionError" in bench.failure(query)


def test_with_ack_mode_batch_only_the_bad_row_is_given_back(bench: Bench) -> None:
    topic = bench.create_topic()
    options = bench.options(topic, TWICE, ackMode="batch")
    bench.produce(topic, [BAD if number == 3 else b"good" for number in range(20)])
    store = Store()
    bench.start(options, AckSink(store, options, on_error="bisect"))
    bench.until(lambda: len(bench.dead_letters(topic, TWICE)) == 1, "a dead letter")
    bench.until_acked(topic, 20, TWICE)
    assert (len(store.stored), set(store.stored.values())) == (19, {1})


def test_all_rows_of_a_message_are_in_the_same_part(spark: SparkSession) -> None:
    # (partition, offset) x delivery count: (0, 5) x 2 was delivered before, and (1, 7) has three rows
    rows = [("t", 1, 7, 1), ("t", 0, 5, 2), ("t", 1, 7, 1), ("t", 0, 6, 1), ("t", 1, 7, 1), ("t", 1, 9, 1)]
    parts = _Parts(spark.createDataFrame(rows, SCHEMA))
    assert ([tuple(one) for one in parts.deliveries], parts.suspects) == (
        [("t", 0, 5, 2), ("t", 0, 6, 1), ("t", 1, 7, 1), ("t", 1, 9, 1)],
        1,
    )
    assert [tuple(row) for row in parts.of(range(2, 3)).collect()] == [("t", 1, 7, 1)] * 3
    assert {row.offset for row in parts.of(range(1, 4)).collect()} == {6, 7, 9}
    assert sum(parts.of(part).count() for part in (range(1), range(1, 2), range(2, 4))) == len(rows)


def test_rows_without_an_id_are_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("t", 0, None, 1)], SCHEMA)
    with pytest.raises(NullMessageId, match="offset"):
        _Parts(rows)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidOption, match=r"on_error.*it is neither raise nor bisect"):
        AckSink(print, on_error="halve")
    with pytest.raises(InvalidOption, match="max_calls"):
        AckSink(print, on_error="bisect", max_calls=4)
    with pytest.raises(InvalidOption, match=r"max_calls.* is invalid: it is not a whole number"):
        AckSink(print, on_error="bisect", max_calls="64")  # type: ignore[arg-type]
    with pytest.raises(ConflictingOptions, match="persist"):
        AckSink(print, on_error="bisect", persist=False)
