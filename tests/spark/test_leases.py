"""Leases on real Kafka and real Spark: what is not acked comes back, in place, and nothing else does."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import KeepAlive, Release
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_no_row_reaches_user_code_before_its_start_is_durable(bench: Bench) -> None:
    # Each handler looks, from its executor, for the Start of its own message in the markers topic.
    topic = bench.create_topic(2)
    for partition in (0, 1):
        bench.produce(topic, [b"x"] * 2, partition=partition)
    options = bench.options(topic)
    before = bench.ends(bench.control.markers)
    servers, markers_topic = bench.servers, bench.control.markers
    cell_of = {p: Cell(subscription="s", topic=topic, partition=p) for p in (0, 1)}
    found: list[tuple[int, int, str]] = []

    def handle(message: Any) -> str:
        from spark_cursor_source.core.marker import Start
        from spark_cursor_source.kafka.admin import ClusterAdmin
        from spark_cursor_source.kafka.range_reader import RangeReader
        from spark_cursor_source.wire import marker as marker_wire

        cell = cell_of[message.partition]
        config = {"bootstrap.servers": servers}
        at = cell.control_partition(len(before))
        end = ClusterAdmin(config).end_offsets([(markers_topic, at)], committed=True)[markers_topic, at]
        with closing(RangeReader(config, committed=True)) as reader:
            for record in reader.read(markers_topic, {at: (before[at], end)}):
                if record.key() != cell.key:
                    continue
                marker = marker_wire.decode(record.key(), record.value())
                if isinstance(marker, Start) and message.offset in marker.offsets:
                    return f"started {marker.delivery_count}"
        return "not started"

    def remember(outcomes: DataFrame, batch_id: int) -> None:
        found.extend((row.partition, row.offset, row.result) for row in outcomes.collect())

    bench.start(options, AckSink.per_row(handle, options, then=remember, result="STRING"))
    bench.until_acked(topic, {0: 2, 1: 2})
    assert sorted(found) == [(p, n, "started 1") for p in (0, 1) for n in range(2)]


def test_what_is_not_acked_comes_back_in_place_when_its_lease_is_over(bench: Bench) -> None:
    # S(0-9, 1) ---- even acked ---- lease over ---- S(odd, 2) ---- acked
    topic = bench.create_topic()
    bench.produce(topic, [b"%d" % n for n in range(10)])
    options = bench.options(topic, leaseTimeout="5s")
    seen = Seen()

    def handle(batch: DataFrame, batch_id: int) -> None:
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
    assert bench.ends(topic) == {0: 10}, "nothing was appended to the queue"


def test_another_subscription_sees_nothing_of_a_redelivery(bench: Bench) -> None:
    # billing:   S(0-4, 1) ---- lease over ---- S(0-4, 2), acked
    # shipping:  S(0-4, 1), acked
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 5)
    billing = bench.options(topic, "billing", leaseTimeout="2s")
    shipping = bench.options(topic, "shipping")
    seen_by_billing, seen_by_shipping = Seen(), Seen()

    def ack_the_second(batch: DataFrame, batch_id: int) -> None:
        seen_by_billing(batch, batch_id)
        cursorq.ack(batch.where("delivery_count = 2"), billing)

    bench.start(shipping, AckSink(seen_by_shipping, shipping), checkpoint="shipping")
    bench.start(billing, ack_the_second, checkpoint="billing")
    bench.until_acked(topic, 5, "billing")
    bench.until_acked(topic, 5, "shipping")
    assert seen_by_billing.ids(2) == [(0, n) for n in range(5)]
    assert seen_by_shipping.ids() == seen_by_shipping.ids(1) == [(0, n) for n in range(5)]
    cursor = bench.cursor(topic, "shipping")
    assert (cursor.totals.redelivered, cursor.totals.unknown_ends) == (0, 0)


def test_leases_hold_during_a_batch_that_is_longer_than_the_lease(bench: Bench) -> None:
    # S(0-4) -- K -- K -- K ... when the last of them is two leases later -- End: nothing comes twice
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 5)
    options = bench.options(topic, leaseTimeout="5s")
    seen = Seen()

    def deadline_ms() -> int:
        cursor = bench.cursor(topic)
        return max((lease.deadline_ms for lease, _ in cursor.leases), default=0) if cursor else 0

    def take_long(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        first_ms: int = bench.until(deadline_ms, "the tracker knows of the lease")
        bench.until(lambda: deadline_ms() > first_ms + 10_000, "the lease has been extended")

    bench.start(options, AckSink(take_long, options))
    bench.until_acked(topic, 5)
    assert seen.ids() == seen.ids(1) == [(0, n) for n in range(5)]
    assert bench.cursor(topic).totals.redelivered == 0
    kept = bench.markers(topic, kind=KeepAlive)
    assert len(kept) >= 3
    assert {one.marker.offsets.ranges for one in kept} == {((0, 5),)}


def test_an_extended_lease_outlasts_one_that_was_not(bench: Bench) -> None:
    # 0 and 1 leased for 5 s; 0 extended to 10 min: 1 comes back and 0 does not
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 2)
    options = bench.options(topic, leaseTimeout="5s")
    seen = Seen()

    def handle(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        cursorq.extend(batch.where("offset = 0"), options, lease="10m")
        cursorq.ack(batch.where("delivery_count = 2"), options)

    bench.start(options, handle)
    bench.until(lambda: bench.cursor(topic) and bench.cursor(topic).totals.acked == 1, "1 is acked")
    assert seen.ids(2) == [(0, 1)]
    assert seen.ids(1) == [(0, 0), (0, 1)]
    (lease, offsets), *others = bench.cursor(topic).leases
    assert not others
    assert (lease.delivery_count, offsets.ranges) == (1, ((0, 1),))
    extension = bench.markers(topic, kind=KeepAlive)
    held = [one for one in extension if one.marker.delivery_count == 1]
    assert lease.deadline_ms >= held[0].at_ms + 600_000


def test_a_release_of_an_old_delivery_leaves_the_present_lease_alone(bench: Bench) -> None:
    # S(0, 1) -- lease over -- S(0, 2), extended -- late release, reject and extend of 1: nothing
    #   -- release of 2 -- S(0, 3), acked
    topic = bench.create_topic()
    bench.produce(topic, [b"x"])
    options = bench.options(topic, leaseTimeout="5s")
    seen = Seen()

    def handle(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        cursorq.extend(batch.where("delivery_count = 2"), options, lease="10m")
        cursorq.ack(batch.where("delivery_count = 3"), options)

    bench.start(options, handle)

    def held_for_long() -> bool:
        cursor = bench.cursor(topic)
        leases = [] if cursor is None else [lease for lease, _ in cursor.leases]
        return [lease.delivery_count for lease in leases] == [2] and bool(
            [one for one in bench.markers(topic, kind=KeepAlive) if one.marker.delivery_count == 2]
        )

    bench.until(held_for_long, "the second delivery is leased")
    late, present = bench.frame(topic, [(0, 0, 1)]), bench.frame(topic, [(0, 0, 2)])
    cursorq.release(late, options)
    cursorq.reject(late, options, reason="too late")
    cursorq.extend(late, options, lease="1s")
    last = bench.markers(topic)[-1].offset
    bench.until(lambda: bench.cursor(topic).next_marker > last, "the late ones are read")
    (lease, offsets), *others = bench.cursor(topic).leases
    assert (lease.delivery_count, offsets.ranges, others) == (2, ((0, 1),), [])
    assert seen.ids(3) == []
    cursorq.release(present, options)
    bench.until_acked(topic, 1)
    assert [row.delivery_count for row in seen.rows] == [1, 2, 3]
    assert bench.dead_letters(topic) == []
    assert len(bench.markers(topic, kind=Release)) == 2


def test_a_message_that_comes_back_can_be_selected_as_any_other(bench: Bench) -> None:
    # Filters and projections between the source and the sink; what they take out is left to its lease.
    topic = bench.create_topic()
    bench.produce(topic, [b"%d" % n for n in range(4)])
    options = bench.options(topic, leaseTimeout="5s")
    seen = Seen()
    rows = bench.read(options).where((F.col("offset") > 1) | (F.col("delivery_count") > 1))
    ids = rows.select("topic", "partition", "offset", "delivery_count")
    sink = AckSink(seen, options)
    bench.begin(ids.writeStream.foreachBatch(sink).trigger(processingTime="100 milliseconds"))
    bench.until_acked(topic, 4)
    assert seen.ids(1) == [(0, 2), (0, 3)]
    assert seen.ids(2) == [(0, 0), (0, 1)]
