"""What a handler may say of a message, on executors, and what becomes of it: release, reject, dead letter."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink, Reject, Release
from spark_cursor_source.core.marker import End, Start
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]


class Outcomes:
    """A ``then`` that remembers the outcomes and when they came, before any of them counts."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, Row]] = []

    def __call__(self, outcomes: DataFrame, batch_id: int) -> None:
        rows = outcomes.collect()
        now = time.monotonic()
        self.rows += [(now, row) for row in rows]

    def of(self, offset: int) -> list[tuple[float, Row]]:
        return [(at, row) for at, row in self.rows if row.offset == offset]


def test_a_released_message_comes_back_now_or_after_its_delay(bench: Bench) -> None:
    # 0: False -- S(0, 2)     1: Release(8s) ---- 8 s or more ---- S(1, 2)     2: acked
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 3)
    options = bench.options(topic, leaseTimeout="10m")
    outcomes = Outcomes()

    def handle(message: Any) -> Any:
        if message.delivery_count == 1 and message.offset < 2:
            return False if message.offset == 0 else Release(delay="8s")
        return None

    bench.start(options, AckSink.per_row(handle, options, then=outcomes))
    bench.until_acked(topic, 3)
    (first, now), (soon, _) = outcomes.of(0)
    (_, later), (at_last, _) = outcomes.of(1)
    assert (now.action, now.delay_ms, later.delay_ms) == ("release", 0, 8000)
    assert at_last - first >= 8, "not before the delay"
    assert soon < at_last
    assert [row.delivery_count for _, row in outcomes.rows] == [1, 1, 1, 2, 2]


def test_any_job_can_say_what_becomes_of_a_message_that_another_holds(bench: Bench) -> None:
    # by function, by batch write with one action for all, by batch write with a column that says it for each
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 5)
    options = bench.options(topic, leaseTimeout="10m")
    seen = Seen()

    def handle(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        cursorq.ack(batch.where("delivery_count = 2"), options)

    bench.start(options, handle)
    bench.until(lambda: len(seen.rows) == 5, "all is delivered")
    assert cursorq.release(bench.frame(topic, [(0, 0, 1)]), options) == 1
    to_cursorq = bench.frame(topic, [(0, 1, 1)]).write.format("cursorq").options(**options)
    to_cursorq.option("action", "ack").mode("append").save()
    each = bench.frame(topic, [(0, n, 1) for n in (2, 3, 4)]).selectExpr(
        "*",
        "element_at(map(2L, 'Release', 3L, 'ack', 4L, 'reject'), offset) AS action",
        "'1s' AS delay",
        "'no stock' AS reason",
    )
    each.write.format("cursorq").options(**options).mode("append").save()
    bench.until_acked(topic, 5)
    assert seen.ids(2) == [(0, 0), (0, 2)]
    assert len(seen.rows) == 7
    (letter,) = bench.dead_letters(topic)
    assert (letter.facts["offset"], letter.facts["reason"]) == ("4", "rejected")
    assert letter.facts["error"] == "no stock"


def test_a_rejected_message_is_whole_in_the_dead_letters(bench: Bench) -> None:
    # key, value (null stays null) and headers of the message; then ours: timestamp, reason, count, origin ...
    topic = bench.create_topic(2)
    headers = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None), ("raw", b"\xff\x00")]
    records = [
        {"key": b"k0", "value": b"v0", "headers": headers, "timestamp": 1_500_000_000_123},
        {"key": None, "value": b"v1", "timestamp": 1_500_000_000_001},
        {"key": b"k2", "value": None, "timestamp": 1_500_000_000_002},
        {"key": b"", "value": b"", "timestamp": 1_500_000_000_003},
        {"key": b"good", "value": b"good"},
    ]
    bench.produce(topic, records, partition=1)
    options = bench.options(topic, "billing")

    def handle(message: Any) -> Any:
        return None if message.key == b"good" else Reject(f"bad order {message.offset}: \u00fc")

    bench.start(options, AckSink.per_row(handle, options))
    bench.until_acked(topic, {1: 5}, "billing")
    letters = bench.dead_letters(topic, "billing")
    assert [(one.partition, one.key, one.value) for one in letters] == [
        (1, record["key"], record["value"]) for record in records[:4]
    ]
    assert letters[0].headers[:5] == headers
    (start,) = bench.markers(topic, "billing", Start)
    for offset, letter in enumerate(letters):
        assert start.at_ms <= int(letter.facts["first-delivery"]) < start.at_ms + 250
        assert letter.timestamp_ms >= start.at_ms, "a record with its message's timestamp would be removed"
        assert letter.facts == {
            "timestamp": str(records[offset]["timestamp"]),
            "reason": "rejected",
            "error": f"bad order {offset}: \u00fc",
            "first-delivery": letter.facts["last-delivery"],
            "last-delivery": letter.facts["last-delivery"],
            "delivery-count": "1",
            "topic": topic,
            "partition": "1",
            "offset": str(offset),
            "subscription": "billing",
        }
    assert bench.cursor(topic, "billing", 1).totals.dead_lettered == 4


def test_any_job_can_reject_what_another_holds(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"a", b"b"])
    options = bench.options(topic, leaseTimeout="10m")
    seen = Seen()
    bench.drain(options, seen)
    assert seen.ids(1) == [(0, 0), (0, 1)]
    assert cursorq.reject(bench.frame(topic, [(0, 1, 1)]), options, reason="by hand") == 1
    cursorq.ack(bench.frame(topic, [(0, 0, 1)]), options)
    bench.until_acked(topic, 2)
    (letter,) = bench.dead_letters(topic)
    assert (letter.value, letter.facts["reason"], letter.facts["error"]) == (b"b", "rejected", "by hand")


def test_a_message_that_is_never_acked_ends_in_the_dead_letters(bench: Bench) -> None:
    # S(all, 1) -- lease over -- S(all, 2) -- lease over: no third delivery, the dead letters have them
    topic = bench.create_topic()
    bench.produce(topic, [b"0", b"1"])
    options = bench.options(topic, "two-deliveries", leaseTimeout="1s")
    seen = Seen()
    bench.start(options, seen)
    bench.until_acked(topic, 2, "two-deliveries")
    # Its lease may have run out before Spark has read the last batch.
    bench.until(lambda: len(seen.rows) >= 4, "both deliveries are read")
    assert seen.ids(1) == seen.ids(2) == [(0, 0), (0, 1)]
    assert len(seen.rows) == 4
    letters = bench.dead_letters(topic, "two-deliveries")
    assert [letter.value for letter in letters] == [b"0", b"1"]
    first, last = (one.at_ms for one in bench.markers(topic, "two-deliveries", Start))
    for letter in letters:
        assert letter.facts["reason"] == "max-deliveries"
        assert letter.facts["delivery-count"] == "2"
        assert "error" not in letter.facts, "nobody said anything"
        assert first <= int(letter.facts["first-delivery"]) < first + 250
        assert last <= int(letter.facts["last-delivery"]) < last + 250


def test_a_release_at_the_last_delivery_is_a_dead_letter(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"0", b"1"])
    options = bench.options(topic, "one-delivery", leaseTimeout="10m")

    def handle(message: Any) -> Any:
        return Release(reason="no stock") if message.offset else False

    bench.start(options, AckSink.per_row(handle, options))
    bench.until_acked(topic, 2, "one-delivery")
    letters = bench.dead_letters(topic, "one-delivery")
    assert [letter.facts["reason"] for letter in letters] == ["max-deliveries"] * 2
    assert [letter.facts.get("error") for letter in letters] == [None, "no stock"]


def test_a_handler_that_raises_gives_its_row_back_with_backoff_and_its_reason_is_kept(bench: Bench) -> None:
    # 1: S(1, 1) raises ---- 2 s ---- S(1, 2) raises -- 1 s -- S(1, 3) raises, dead letter     others: acked
    topic = bench.create_topic()
    bench.produce(topic, [b"1", b"x", b"3"])
    options = bench.options(topic, "backoff", leaseTimeout="10m")
    outcomes = Outcomes()

    def handle(message: Any) -> str:
        return f"got {int(message.value)}"

    bench.start(options, AckSink.per_row(handle, options, then=outcomes, result="STRING"))
    bench.until_acked(topic, 3, "backoff")
    assert [row.result for offset in (0, 2) for _, row in outcomes.of(offset)] == ["got 1", "got 3"]
    deliveries = outcomes.of(1)
    assert [row.delivery_count for _, row in deliveries] == [1, 2, 3]
    assert {(row.action, row.delay_ms, row.result) for _, row in deliveries} == {("release", None, None)}
    times = [at for at, _ in deliveries]
    assert times[1] - times[0] >= 2
    assert times[2] - times[1] >= 1
    (letter,) = bench.dead_letters(topic, "backoff")
    assert letter.value == b"x"
    assert letter.facts["reason"] == "max-deliveries"
    assert letter.facts["error"] == "ValueError: invalid literal for int() with base 10: b'x'"
    assert letter.facts["delivery-count"] == "3"


def test_outcomes_count_only_when_their_results_are_written(bench: Bench) -> None:
    # then fails: nothing is acked, and the rows come again; then it returns: acked
    topic = bench.create_topic()
    bench.produce(topic, [b"5", b"6"])
    options = bench.options(topic)
    written: list[list[Row]] = []

    def handle(message: Any) -> dict[str, Any]:
        return {"twice": 2 * int(message["value"]), "keys": list(message.asDict())}

    def write(outcomes: DataFrame, batch_id: int) -> None:
        written.append(outcomes.orderBy("offset").collect())
        if len(written) == 1:
            raise RuntimeError("disk full")

    sink = AckSink.per_row(handle, options, then=write, result="STRUCT<twice: INT, keys: ARRAY<STRING>>")
    assert "disk full" in bench.failure(bench.start(options, sink))
    assert bench.markers(topic, kind=End) == []
    bench.start(options, sink)
    bench.until_acked(topic, 2)
    assert [len(rows) for rows in written] == [2, 2]
    first, second = written[1]
    assert (first.result.twice, second.result.twice) == (10, 12)
    assert first.result["keys"] == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "delivery_count")
    ]
    assert (first.action, first.topic, first.partition, first.delivery_count) == ("ack", topic, 0, 2)


def test_a_handler_that_returns_something_else_is_told_what_it_may_return(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"])
    options = bench.options(topic)
    query = bench.start(options, AckSink.per_row(lambda message: 42, options))
    assert "UnknownOutcome: The handler returned a value of type int" in bench.failure(query)
    assert bench.markers(topic, kind=End) == []


def test_a_slow_message_does_not_keep_the_query_from_the_next_batches(bench: Bench, tmp_path: Path) -> None:
    # 0: S(0, 1) -------- its lease of 5 s is extended by the worker -------- acked    others: later batches
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 3)
    options = bench.options(topic, leaseTimeout="5s")
    calls, go_on = tmp_path / "calls", tmp_path / "go-on"

    def handle(message: Any) -> None:
        with calls.open("a") as file:
            file.write(f"{message.offset}\n")
        while message.offset == 0 and not go_on.exists():
            time.sleep(0.05)

    sink = AckSink.per_row(handle, options, concurrency=8, stragglers="200ms", flush="200ms")
    bench.start(options, sink)
    for end in (3, 5, 8):
        bench.until(lambda end=end: _all_but_the_first(bench, topic, end), f"all to {end} but the first")
        if end < 8:
            bench.produce(topic, [b"x"] * 3 if end == 5 else [b"x"] * 2)
    until_s = time.monotonic() + 6
    bench.until(lambda: time.monotonic() > until_s, "the lease would be over")
    assert _all_but_the_first(bench, topic, 8)
    go_on.touch()
    bench.until_acked(topic, 8)
    assert sorted(calls.read_text().split()) == [str(n) for n in range(8)], "none is delivered twice"


def _all_but_the_first(bench: Bench, topic: str, end: int) -> bool:
    cursor = bench.cursor(topic)
    return cursor is not None and cursor.read_position == end and list(cursor.outstanding) == [0]
