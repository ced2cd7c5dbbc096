"""Leases on real Kafka and real Spark: what is not acked comes back, in place, and nothing else does."""

from __future__ import annotations

import pytest

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from spark_cursor_source.core.marker import KeepAlive
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_what_is_not_acked_comes_back_in_place_when_its_lease_is_over(bench: Bench) -> None:
    # batch 0: S(0-9, count 1) ---- acked: even ---- lease over ---- S(odd, count 2), acked
    topic = bench.create_topic()
    bench.produce(topic, [b"%d" % n for n in range(10)])
    options = bench.options(topic, leaseTimeout="2s")
    seen = Seen()

    def handle(batch, batch_id):
        seen(batch, batch_id)
        cursorq.ack(batch.where("offset % 2 = 0 or delivery_count > 1"), options)

    bench.start(options, handle)
    bench.until_acked(topic, 10)
    odd = [(0, n) for n in range(1, 10, 2)]
    assert seen.ids(1) == [(0, n) for n in range(10)]
    assert seen.ids(2) == odd
    assert len(seen.rows) == 15
    again = [row for row in seen.rows if row.delivery_count == 2]
    assert all(row.value == b"%d" % row.offset and row.topic == topic for row in again)
    assert seen.when(2) - seen.when(1) >= 1.5  # rows come after their Start, so a little less than the lease
    assert bench.ends(topic) == {0: 10}, "nothing was appended to the queue"
