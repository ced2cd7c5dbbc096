"""Blocked messages of a running query, as an operator sees them, until an ack of the first one frees them."""

from __future__ import annotations

from typing import Any

import pytest

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from spark_cursor_source.admin import read_stuck
from spark_cursor_source.core.outcome import Release
from spark_cursor_source.spark.per_row import Message
from tests.spark.harness import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_the_view_names_what_a_message_waits_for_until_an_operator_acks_it(bench: Bench) -> None:
    # key a: 0 released for long, 1 3 4 wait for it | key b: 2 acked | an operator acks 0 | 1 3 4 acked
    topic = bench.create_topic()
    options = bench.options(topic, ordering="key")

    def handle(message: Message) -> Any:
        return Release(delay="10m", reason="not now") if message.offset == 0 else None

    bench.start(options, AckSink.per_row(handle, options))
    bench.produce(topic, [{"key": key, "value": b"x"} for key in (b"a", b"a", b"b", b"a")])
    bench.until(
        lambda: (now := bench.cursor(topic)) is not None and len(now.blocked.offsets) == 2, "1 3 wait"
    )
    bench.produce(topic, [{"key": b"a", "value": b"x"}])  # of a later batch
    bench.until(lambda: (now := bench.cursor(topic)) is not None and len(now.blocked.offsets) == 3, "4 waits")
    rows = cursorq.outstanding(bench.spark, options, payload=False)
    found = sorted((row.offset, row.state, row.delivery_count, row.behind) for row in rows.collect())
    assert found == [(0, "delayed", 1, None), *((offset, "blocked", 0, 0) for offset in (1, 3, 4))]
    stuck = read_stuck(
        bench.control.config,
        topic=topic,
        **bench.control.topics,
    )
    first = stuck.oldest[0]
    assert (first.offset, first.key_order, first.reason) == (0, "blocks 3 messages", "not now")
    assert cursorq.ack(rows.where("offset = 0")) == 1
    bench.until_acked(topic, 5)
    assert rows.count() == 0
