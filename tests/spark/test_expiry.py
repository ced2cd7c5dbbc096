"""What the tracker does of itself: messages that get too old, and dead letters that come too fast."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from spark_cursor_source import AckSink, Reject, Release
from spark_cursor_source.cli import main
from tests.kafka.control_plane import transaction
from tests.logged import events
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_messages_expire_while_no_consumer_runs_and_the_next_one_sees_none_of_them(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    # 0 acked, 1 released for long | nobody reads: 2-3 aborted, 4 control, 5-7 plain; all expire | new
    topic, name = bench.create_topic(), "short-lived-kept"
    options = bench.options(topic, name)

    def handle(message: Any) -> Any:
        return Release(delay="10m") if message.offset == 1 else None

    query = bench.start(options, AckSink.per_row(handle, options))
    # A query that begins may take longer to its first batch than messages live.
    bench.until(lambda: "Waiting" in query.status["message"], "the query is at work")
    bench.produce(topic, [b"0", b"1"])

    def handled() -> bool:
        totals = bench.cursor(topic, name).totals
        return totals.acked + totals.released + totals.expired >= 2

    bench.until(handled, "both are handled")
    query.stop()
    transaction(bench.control.config, [(topic, {"value": b"aborted"})] * 2, commit=False)
    # Their producer's clock is not believed.
    written = time.monotonic()
    bench.produce(topic, [{"value": b"%d" % n, "timestamp": 1_000_000} for n in (5, 6, 7)])
    bench.until_acked(topic, 8, name)
    assert time.monotonic() - written > 3.0, "no message expires before its time"
    totals = bench.cursor(topic, name).totals
    assert (totals.acked, totals.expired, totals.dead_lettered) == (1, 7, 0)
    letters = bench.dead_letters(topic, name)
    assert sorted((one.value, one.facts["reason"], one.facts["delivery-count"]) for one in letters) == [
        (b"1", "expired", "1"),
        *((b"%d" % n, "expired", "0") for n in (5, 6, 7)),
    ]
    assert not [one for one in caplog.records if "have no dead letter" in one.getMessage()]
    seen = Seen()
    bench.start(options, AckSink(seen, options))
    until_delivered(bench, topic, seen)
    assert min(seen.ids()) >= (0, 8)


def test_a_running_query_neither_leases_nor_delivers_what_expired_before_its_turn(bench: Bench) -> None:
    # one message a batch, and a batch takes long: those that wait for their turn expire
    topic = bench.create_topic()
    options = bench.options(topic, "short-lived", maxOffsetsPerTrigger=1)
    seen = Seen()

    def handle(batch: Any, batch_id: int) -> None:
        seen(batch, batch_id)
        if len(seen.rows) == 1:
            bench.until(lambda: expired(bench, topic) >= 3, "those that wait expire")

    bench.produce(topic, [b"%d" % n for n in range(4)])
    bench.start(options, AckSink(handle, options))
    bench.until_acked(topic, 4, "short-lived")
    until_delivered(bench, topic, seen)
    assert not {(0, 1), (0, 2), (0, 3)} & set(seen.ids())
    assert not {1, 2, 3} & set(bench.started(topic, "short-lived"))
    assert bench.dead_letters(topic, "short-lived") == []


def expired(bench: Bench, topic: str) -> int:
    cursor = bench.cursor(topic, "short-lived")
    return 0 if cursor is None else cursor.totals.expired


def until_delivered(bench: Bench, topic: str, seen: Seen) -> None:
    """New messages until one more is delivered: on a slow machine some expire before their turn."""
    before = len(seen.rows)

    def delivered() -> bool:
        bench.produce(topic, [b"new"])
        return len(seen.rows) > before

    bench.until(delivered, "a new message is delivered")


def test_a_breaker_holds_dead_letters_that_come_too_fast_until_it_is_told_to_close(
    bench: Bench, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    # of "guarded" two a minute may go; a handler rejects three in partition 0 and one in partition 1
    topic = bench.create_topic(2)
    options = bench.options(topic, "guarded", leaseTimeout="1s")
    bench.produce(topic, [b"0", b"1", b"2"])
    query = bench.start(options, AckSink.per_row(lambda message: Reject("broken deploy"), options))

    def held(partition: int) -> set[int]:
        cursor = bench.cursor(topic, "guarded", partition)
        assert cursor is not None
        return {offset for _, offsets in cursor.held for offset in offsets}

    def is_open(partition: int) -> bool:
        cursor = bench.cursor(topic, "guarded", partition)
        return cursor is not None and cursor.breaker.is_open

    bench.until(lambda: is_open(0) and is_open(1), "one partition trips the breaker of both")
    bench.until(lambda: held(0) == {2}, "the third letter is held")
    bench.produce(topic, [b"3"], partition=1)
    bench.until(lambda: held(1) == {0}, "what is rejected while it is open is held")
    assert [one.value for one in bench.dead_letters(topic, "guarded")] == [b"0", b"1"]
    (opened,) = [one for one in caplog.records if "subscription=guarded" in one.getMessage()]
    assert opened.levelno == logging.ERROR
    assert events([opened])[0].startswith("breaker_opened subscription=guarded ")
    query.stop()
    told = ["resume", "--subscription", "guarded", "--topic", topic, "--bootstrap-servers", bench.servers]
    names = ["--markers-topic", bench.control.markers, "--cursors-topic", bench.control.cursors]
    assert main([*told, *names]) == 0
    assert capsys.readouterr().out == "the breaker of guarded closes, on 2 partitions\n"
    bench.until_acked(topic, {0: 3, 1: 1}, "guarded")
    bench.until(lambda: not is_open(0) and not is_open(1), "it is closed")
    letters = bench.dead_letters(topic, "guarded")
    assert sorted(one.value for one in letters) == [b"0", b"1", b"2", b"3"], "each once"
    assert all("broken deploy" in one.facts.values() for one in letters)
    bench.until(lambda: "breaker_closed subscription=guarded" in caplog.text, "it is told")
