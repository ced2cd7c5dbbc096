"""Acks on real Kafka and real Spark: in any order, from any job, and the cursor that they make."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink, KafkaSink, Leave, Release
from spark_cursor_source import Reject as Rejected
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Delete, End, EndLeased, EndUpTo, Hello, Reject, Start
from spark_cursor_source.core.offsets import OffsetSet
from tests.kafka.control_plane import transaction
from tests.spark.harness import Bench, Seen

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def nothing(batch: DataFrame, batch_id: int) -> None:
    """A sink that looks at nothing and acks nothing."""


def test_acks_in_random_order_give_the_cursor_and_the_holes_that_a_set_gives(bench: Bench) -> None:
    topic, partitions, each = bench.create_topic(3), 3, 300
    for partition in range(partitions):
        bench.produce(topic, [b"x"] * each, partition=partition)
    options = bench.options(topic)
    seen = Seen()
    bench.start(options, seen)
    bench.until(lambda: len(seen.rows) == partitions * each, "all is delivered")
    chance = random.Random(7)
    left = [(p, n) for p in range(partitions) for n in range(each)]
    chance.shuffle(left)
    outstanding = {p: set(range(each)) for p in range(partitions)}

    def agrees(partition: int) -> bool:
        cursor = bench.cursor(topic, partition=partition)
        model = outstanding[partition]
        first = min(model, default=each)
        holes = set(range(first, each)) - model if model else set()
        return (
            cursor is not None
            and cursor.read_position == each
            and set(cursor.outstanding) == model
            and cursor.mark_delete == first - 1
            and set(cursor.ack_holes) == holes
        )

    while left:
        size = chance.randint(100, 500)
        now, left = left[:size], left[size:]
        rows = [(partition, offset, 1) for partition, offset in now]
        # Some rows twice, and some that were acked before: an ack is an ack.
        rows += chance.sample(rows, 20)
        assert cursorq.ack(bench.frame(topic, rows).repartition(3), options) == len(rows)
        for partition, offset in now:
            outstanding[partition].discard(offset)
        for partition in range(partitions):
            bench.until(lambda p=partition: agrees(p), f"the cursor of partition {partition} follows")
    for partition in range(partitions):
        cursor = bench.cursor(topic, partition=partition)
        assert cursor.mark_delete == each - 1
        assert cursor.ack_holes.ranges == ()
        assert cursor.totals.acked == each


def test_the_cursor_catches_up_when_the_last_batch_is_acked_and_nothing_new_comes(bench: Bench) -> None:
    # Spark's commit of a batch comes with the next one, and here there is none.
    topic = bench.create_topic(2)
    bench.produce(topic, [b"x"] * 7, partition=0)
    bench.produce(topic, [b"x"] * 3, partition=1)
    options = bench.options(topic)
    bench.start(options, AckSink(nothing, options))
    bench.until_acked(topic, {0: 7, 1: 3})
    bench.until(
        lambda: [bench.group(topic, partition=p) for p in (0, 1)] == [7, 3],
        "the consumer group has no lag",
    )


@pytest.mark.parametrize(("persist", "reads"), [(True, 1), (False, 3)])
def test_several_actions_on_a_batch_read_kafka_once_if_it_is_persisted(
    bench: Bench, persist: bool, reads: int
) -> None:
    # Each read ends the control record of the transaction, which nobody can ack: its Ends count the reads.
    topic = bench.create_topic()
    transaction(bench.control.config, [(topic, {"value": b"%d" % n}) for n in range(5)])
    options = bench.options(topic)
    found: list[Any] = []

    def two_actions(batch: DataFrame, batch_id: int) -> None:
        found.append((batch.count(), sorted(row.value for row in batch.collect())))

    bench.start(options, AckSink(two_actions, options, persist=persist))
    bench.until_acked(topic, 6)
    assert found == [(5, [b"%d" % number for number in range(5)])]
    ends = [one.marker.offsets for one in bench.markers(topic, kind=End)]
    assert sum(5 in offsets for offsets in ends) == reads
    assert sum(0 in offsets for offsets in ends) == 1


@pytest.mark.parametrize("mode", ["batch", "cumulative"])
def test_the_source_acks_what_spark_has_committed(bench: Bench, mode: str) -> None:
    # With any sink, here noop; also the last batch, which no other follows.
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 6)
    options = bench.options(topic, ackMode=mode)
    bench.begin(bench.read(options).writeStream.format("noop").trigger(processingTime="100 milliseconds"))
    bench.until_acked(topic, 6)
    bench.produce(topic, [b"x"] * 4)
    bench.until_acked(topic, 10)
    kinds = {type(one.marker) for one in bench.markers(topic)}
    assert (EndUpTo in kinds) == (mode == "cumulative")
    bench.until(lambda: bench.group(topic) == 10, "the consumer group has no lag")


@pytest.mark.parametrize("mode", ["batch", "cumulative"])
def test_the_source_acks_nothing_of_a_batch_that_fails(bench: Bench, mode: str) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 6)
    options = bench.options(topic, ackMode=mode)
    attempts: list[int] = []

    def fail_once(batch: DataFrame, batch_id: int) -> None:
        attempts.append(batch.count())
        if len(attempts) == 1:
            raise RuntimeError("no database today")

    assert "no database today" in bench.failure(bench.start(options, fail_once))
    assert [bench.markers(topic, kind=kind) for kind in (End, EndLeased, EndUpTo)] == [[], [], []]
    bench.start(options, fail_once)
    bench.until_acked(topic, 6)
    assert attempts == [6, 6]


def test_a_handler_settles_the_exceptions_of_a_batch_that_the_source_acks(bench: Bench) -> None:
    # 0-9: the query drops 0 and 1; 2 is released, 3 rejected, 4 left; the source acks the others, and then 2
    topic = bench.create_topic()
    bench.produce(topic, [b"%d" % n for n in range(10)])
    options = bench.options(topic, ackMode="batch", leaseTimeout="5s")

    def handle(message: Any) -> Any:
        if message.delivery_count > 1:
            return None
        return {2: Release(), 3: Rejected("no"), 4: Leave()}.get(message.offset)

    kept = bench.read(options).where("offset > 1")
    seen = Seen()

    def sink(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        AckSink.per_row(handle)(batch, batch_id)

    bench.begin(kept.writeStream.foreachBatch(sink).trigger(processingTime="100 milliseconds"))
    bench.until(
        lambda: (c := bench.cursor(topic)) is not None and c.read_position == 10 and not c.outstanding,
        "all is acked or dead",
    )
    again = {(row.offset, row.delivery_count) for row in seen.rows if row.delivery_count > 1}
    assert again == {(2, 2), (4, 2)}
    assert bench.markers(topic, kind=End) == []
    assert bench.cursor(topic).totals.acked == 9


def test_a_sink_says_once_that_its_query_drops_rows(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 8)

    def said() -> list[str]:
        return [one.message for one in caplog.records if "dropped_rows_not_acked" in one.message]

    def run(name: str, sink: Any, where: str) -> None:
        rows = bench.read(bench.options(topic, name, maxOffsetsPerTrigger=4)).where(where)
        writer = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
        bench.begin(writer, checkpoint=name).awaitTermination()

    run("all", AckSink(nothing), "true")
    assert said() == []
    run("some", AckSink(nothing), "offset % 4 <> 1")
    (text,) = said()
    assert "delivered=4 acked=3" in text
    run("one", AckSink.per_row(lambda message: None), "offset % 4 = 1")
    assert ["delivered=4 acked=1" in text for text in said()] == [False, True]


def test_a_sink_of_a_table_whose_messages_the_source_acks_is_refused(bench: Bench, tmp_path: Path) -> None:
    # The column offset of the files still carries the options of the source.
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 3)
    rows = bench.read(bench.options(topic, ackMode="batch")).select("topic", "partition", "offset")
    rows = rows.withColumn("delivery_count", F.lit(1))
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "table"))
    bench.begin(writer.trigger(availableNow=True), checkpoint="table").awaitTermination()
    called: list[int] = []
    stored = bench.spark.readStream.schema(rows.schema).parquet(str(tmp_path / "table"))
    for number, sink in enumerate(
        (AckSink(lambda batch, batch_id: called.append(batch_id)), AckSink.per_row(lambda message: None))
    ):
        query = stored.writeStream.foreachBatch(sink).trigger(availableNow=True)
        text = bench.failure(bench.begin(query, checkpoint=f"sink-{number}"))
        assert "AckSink in a query that does not read the queue itself" in text
    assert called == []


def test_an_ack_sink_keeps_and_acks_nothing_where_the_source_acks(bench: Bench) -> None:
    # 1 is released by the function, and comes back; the other messages are acked with their batch
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 4)
    options = bench.options(topic, ackMode="batch")
    seen = Seen()

    def give_back(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        cursorq.release(batch.where("offset = 1 AND delivery_count = 1"))

    bench.start(options, AckSink(give_back))
    bench.until_acked(topic, 4)
    assert [(row.offset, row.delivery_count) for row in seen.rows if row.delivery_count > 1] == [(1, 2)]
    assert bench.markers(topic, kind=End) == []


def test_a_batch_whose_function_raises_is_not_acked_and_comes_again(bench: Bench) -> None:
    # S(0-3, 1) -- raises -- the query fails -- started again: S(0-3, 2), acked
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 4)
    options = bench.options(topic)
    seen = Seen()

    def fail_once(batch: DataFrame, batch_id: int) -> None:
        seen(batch, batch_id)
        if len(seen.batches) == 1:
            raise RuntimeError("no database today")

    query = bench.start(options, AckSink(fail_once, options))
    assert "no database today" in bench.failure(query)
    assert bench.markers(topic, kind=End) == []
    bench.start(options, AckSink(fail_once, options))
    bench.until_acked(topic, 4)
    assert [row.delivery_count for row in seen.rows] == [1] * 4 + [2] * 4
    assert seen.ids(2) == [(0, n) for n in range(4)]


def test_what_a_handler_leaves_any_other_job_can_ack_later(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 6)
    options = bench.options(topic)

    def leave_odd(message: Any) -> Leave | None:
        return Leave() if message.offset % 2 else None

    query = bench.start(options, AckSink.per_row(leave_odd, options))
    bench.until(
        lambda: (
            (cursor := bench.cursor(topic)) is not None
            and cursor.read_position == 6
            and cursor.outstanding.ranges == ((1, 2), (3, 4), (5, 6))
        ),
        "the odd ones are left",
    )
    query.stop()
    later = bench.frame(topic, [(0, n, 1) for n in (5, 1, 3)]).drop("delivery_count")
    assert cursorq.ack(later, options) == 3
    bench.until_acked(topic, 6)
    assert bench.cursor(topic).totals.redelivered == 0


def test_an_ack_counts_whoever_holds_the_lease(bench: Bench) -> None:
    # S(0, 1) -- lease over -- available, no consumer runs -- End: nothing is redelivered
    topic = bench.create_topic()
    bench.produce(topic, [b"x"])
    options = bench.options(topic, leaseTimeout="1s")
    seen = Seen()
    bench.drain(options, seen)
    bench.until(lambda: (c := bench.cursor(topic)) is not None and c.available, "the lease is over")
    cursorq.ack(bench.frame(topic, [(0, 0, 1)]), options)
    bench.until_acked(topic, 1)
    bench.drain(options, seen)
    assert [row.delivery_count for row in seen.rows] == [1]


def test_acks_of_messages_that_were_never_delivered_change_nothing(bench: Bench) -> None:
    topic = bench.create_topic()
    options = bench.options(topic)
    seen = Seen()
    bench.drain(options, AckSink(seen, options))
    bench.produce(topic, [b"x"] * 3)
    assert cursorq.ack(bench.frame(topic, [(0, 1, 1)]), options) == 1
    bench.drain(options, AckSink(seen))
    bench.until_acked(topic, 3)
    assert seen.ids(1) == [(0, 0), (0, 1), (0, 2)]
    assert bench.cursor(topic).outstanding == OffsetSet.of()


def test_acks_of_what_cannot_be_there_are_refused_and_nothing_is_written(bench: Bench) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 3)
    options = bench.options(topic)
    bench.drain(options, nothing)
    misspelled = {**options, "subscription": "bilingg"}
    for frame, given, text in (
        (bench.frame(topic, [(0, 0, 1)]), misspelled, "no cursor of subscription 'bilingg'"),
        (bench.frame("ordres", [(0, 0, 1)]), options, "no cursor of topic 'ordres'. It has cursors of"),
        (
            bench.frame(topic, [(99, 0, 1)]),
            options,
            r"no cursor of partition 99 of topic .*of partitions 0",
        ),
        (
            bench.frame(topic, [(0, 1, 1), (0, 10**9, 1)]),
            options,
            "no message 1000000000. Correct",
        ),
    ):
        one_task = frame.coalesce(1)
        with pytest.raises(PySparkException, match=text):
            cursorq.ack(one_task, given)
        write = one_task.write.format("cursorq").options(**given).option("action", "reject")
        with pytest.raises(PySparkException, match=text):
            write.mode("append").save()
    assert bench.markers(topic, kind=End) == bench.markers(topic, kind=Reject) == []


def test_a_sink_whose_rows_do_not_say_their_source_is_checked_before_its_function_is_called(
    bench: Bench,
) -> None:
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * 3)
    options, called = bench.options(topic), []

    def handle(batch: DataFrame, batch_id: int) -> None:
        called.append(batch_id)

    anew = bench.read(options).withColumn("offset", F.expr("offset + 0"))
    wrong = AckSink(handle, {**options, "subscription": "bilingg"})
    query = bench.begin(anew.writeStream.foreachBatch(wrong).trigger(availableNow=True))
    assert "no cursor of subscription 'bilingg'" in bench.failure(query)
    assert called == []
    bench.begin(anew.writeStream.foreachBatch(AckSink(handle, options)).trigger(availableNow=True))
    bench.until_acked(topic, 3)
    assert called


@pytest.mark.parametrize("sink", ["AckSink", "per_row", "ack", "KafkaSink"])
def test_a_late_ack_of_a_deleted_topic_ends_no_message_of_the_new_one(bench: Bench, sink: str) -> None:
    # S(0-4, 1) | the topic is created again, another query begins it anew: S(0-4, 1) | acks of the first five
    topic = bench.create_topic()
    bench.produce(topic, [b"old"] * 5)
    options = bench.options(topic, failOnDataLoss="false")
    cell, leased = Cell(subscription="s", topic=topic, partition=0), OffsetSet.of((0, 5))

    def handed_over(batch: DataFrame, batch_id: int) -> None:
        if batch_id:
            return
        assert batch.persist().count() == 5
        new = bench.recreate(topic)
        bench.control.write(
            Delete(cell=cell),
            Hello(cell=cell, run_id="another", position=0, topic_id=new),
            Start(cell=cell, offsets=leased, lease_ms=600_000, delivery_count=1, run_id="another"),
        )

    def then(settle: Callable[[DataFrame, int], object]) -> Callable[[DataFrame, int], None]:
        def process(batch: DataFrame, batch_id: int) -> None:
            handed_over(batch, batch_id)
            settle(batch, batch_id)

        return process

    transformed = count()

    def transform(batch: DataFrame) -> DataFrame:
        handed_over(batch, next(transformed))
        return batch.select("message", "value")

    sinks = {
        "AckSink": AckSink(handed_over),
        "per_row": then(AckSink.per_row(lambda message: None)),
        "ack": then(lambda batch, _: cursorq.ack(batch)),
        "KafkaSink": KafkaSink(bench.create_topic(1), transform=transform),
    }

    query = bench.start(options, sinks[sink])

    def settled() -> CursorSnapshot | None:
        cursor = bench.cursor(topic)
        ends = cursor is not None and cursor.totals.unknown_ends + cursor.totals.acked == 5
        return cursor if ends else None

    cursor = bench.until(settled, "the acks are read")
    query.stop()
    assert (cursor.totals.acked, cursor.totals.unknown_ends) == (0, 5)
    assert [offsets for _, offsets in cursor.leases] == [leased]


@pytest.mark.parametrize("on_error", ["raise", "bisect"])
def test_a_sink_with_another_action_does_that_with_each_message_of_its_batches(
    bench: Bench, on_error: str
) -> None:
    topic, seen = bench.create_topic(), Seen()
    options = bench.options(topic)
    bench.produce(topic, [b"x"] * 3)
    rejecting = AckSink(seen, options | {"action": "reject", "reason": "no place"}, on_error=on_error)
    bench.start(options, rejecting)
    letters = bench.until(
        lambda: found if len(found := bench.dead_letters(topic)) == 3 else None, "three dead letters"
    )
    assert seen.ids() == [(0, 0), (0, 1), (0, 2)]
    assert {(one.facts["reason"], one.facts["error"]) for one in letters} == {("rejected", "no place")}
