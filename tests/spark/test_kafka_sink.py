"""KafkaSink: outputs and acks in one transaction. What survives kills is in ``e2e/test_kafka_sink.py``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_cursor_source import KafkaSink
from spark_cursor_source.errors import AckedBySource, ConflictingOptions, InvalidOption, OutputOfNoMessage
from spark_cursor_source.spark.output_task import ID, IS_OUTPUT, LANE, chunks
from tests.spark.harness import Bench

OPTIONS = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders", "subscription": "s"}


def values(bench: Bench, topic: str) -> Counter[str]:
    """How often each value is in a topic, for readers of committed messages."""
    return Counter((message.value() or b"").decode() for message in bench.records(topic))


def until_written(bench: Bench, topic: str, count: int) -> list[Message]:
    """Return the records of a topic when there are so many.

    The end of their transaction may reach the markers topic, and so the cursor, before their own topic.
    """
    bench.until(lambda: len(bench.records(topic)) >= count, "all is written")
    return bench.records(topic)


@pytest.mark.spark
def test_a_message_is_copied_with_key_and_headers_in_the_order_of_its_partition(bench: Bench) -> None:
    source, target = bench.create_topic(3), bench.create_topic(1)
    for partition in range(3):
        rows = [{"key": b"k%d" % partition, "value": b"%d-%d" % (partition, n)} for n in range(200)]
        rows[7]["headers"] = [("trace", b"abc"), ("empty", None)]
        rows[8]["key"] = None
        bench.produce(source, rows, partition=partition)
    bench.start(bench.options(source, includeHeaders="true"), KafkaSink(target))
    bench.until_acked(source, dict.fromkeys(range(3), 200))
    found = until_written(bench, target, 600)
    assert Counter(one.value() for one in found) == Counter(
        b"%d-%d" % (partition, n) for partition in range(3) for n in range(200)
    )
    for partition in range(3):
        own = [one for one in found if (one.value() or b"").startswith(b"%d-" % partition)]
        assert [one.value() for one in own] == [b"%d-%d" % (partition, n) for n in range(200)]
        assert [one.key() for one in own] == [None if n == 8 else b"k%d" % partition for n in range(200)]
        assert own[7].headers() == [("trace", b"abc"), ("empty", None)]


@pytest.mark.spark
def test_a_message_has_any_number_of_outputs_and_is_acked_with_them(bench: Bench) -> None:
    source, small, large = bench.create_topic(2), bench.create_topic(2), bench.create_topic(2)
    bench.produce(source, [b"%d" % n for n in range(5)])
    bench.produce(source, [b"%d" % n for n in range(5, 9)], partition=1)

    def repeated(batch: DataFrame) -> DataFrame:
        number = F.col("value").cast("string").cast("int")
        rows = batch.select("message", F.explode(F.sequence(F.lit(1), number)).alias("n"), number.alias("of"))
        return rows.where("of % 4 != 0").select(
            "message",
            F.concat_ws("/", "n", "of").alias("value"),
            F.when(F.col("of") < 5, small).otherwise(large).alias("topic"),
            F.lit(1).alias("partition"),
        )

    bench.start(bench.options(source), KafkaSink(transform=repeated))
    bench.until_acked(source, {0: 5, 1: 4})
    # 0: the sequence from 1 to 0 has two elements, and 0 is a multiple of 4
    for topic, numbers in ((small, (1, 2, 3)), (large, (5, 6, 7))):
        found = until_written(bench, topic, sum(numbers))
        assert {one.partition() for one in found} == {1}
        wanted = [f"{n}/{of}" for of in numbers for n in range(1, of + 1)]
        of_number: dict[str, list[str]] = {}
        for one in found:
            text = (one.value() or b"").decode()
            of_number.setdefault(text.split("/")[1], []).append(text)
        assert sorted(text for texts in of_number.values() for text in texts) == sorted(wanted)
        for texts in of_number.values():
            assert texts == sorted(texts), "the outputs of a message keep their order"


@pytest.mark.spark
def test_messages_that_come_again_are_not_written_again(bench: Bench) -> None:
    # the batch is written and acked, and then written by sinks that do not know it, some at once
    source, target = bench.create_topic(2), bench.create_topic(1)
    bench.produce(source, [b"0-%d" % n for n in range(100)])
    bench.produce(source, [b"1-%d" % n for n in range(100)], partition=1)
    failures: list[BaseException] = []

    def twice_at_once(batch: DataFrame, batch_id: int) -> None:
        def write() -> None:
            try:
                KafkaSink(target)(batch, batch_id)
            except BaseException as failure:
                failures.append(failure)
                raise

        both = [threading.Thread(target=write) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join()
        KafkaSink(target)(batch, batch_id)

    bench.start(bench.options(source), twice_at_once)
    bench.until_acked(source, {0: 100, 1: 100})
    until_written(bench, target, 200)
    assert not failures
    assert values(bench, target) == Counter(f"{p}-{n}" for p in range(2) for n in range(100))


@pytest.mark.spark
def test_a_rival_that_writes_between_look_and_write_is_noticed(bench: Bench) -> None:
    source, target = bench.create_topic(), bench.create_topic(1)
    bench.produce(source, [b"%d" % n for n in range(50)])

    def late(batch: DataFrame) -> DataFrame:
        again = batch.select("*", "message.*")
        KafkaSink(target, bench.options(source))(again.drop("message"), 0)
        return batch.select("message", "value")

    bench.start(bench.options(source), KafkaSink(target, transform=late))
    bench.until_acked(source, 50)
    until_written(bench, target, 50)
    assert values(bench, target) == Counter(str(n) for n in range(50))


def _elsewhere(batch: DataFrame) -> DataFrame:
    moved = F.col("message").withField("offset", F.col("message.offset") + 1_000)
    return batch.select(moved.alias("message"), "value")


def _large(batch: DataFrame) -> DataFrame:
    return batch.select("message", F.expr("repeat(cast(value AS STRING), 2000000)").alias("value"))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("transform", "error"),
    [
        (lambda batch: batch.select("value"), "MissingColumns: KafkaSink"),
        (lambda batch: batch.select("value", F.lit(1).alias("message")), "column 'message' has the type int"),
        (lambda batch: batch.select("message"), "NoMessageColumn"),
        (_elsewhere, "OutputOfNoMessage: KafkaSink: the column message of a row names offset 100"),
        (_large, "MessageRefused: Kafka refused a message of 2000000 bytes"),
    ],
    ids=["no message", "no message id", "no value", "another message", "too large"],
)
def test_what_transform_returns_is_checked_and_nothing_is_written(
    bench: Bench, transform: Callable[[DataFrame], DataFrame], error: str
) -> None:
    source, target = bench.create_topic(), bench.create_topic(1)
    bench.produce(source, [b"x"] * 3)
    query = bench.start(bench.options(source), KafkaSink(target, transform=transform))
    assert error in bench.failure(query)
    assert not bench.records(target)
    bench.start(bench.options(source), KafkaSink(target))
    bench.until_acked(source, 3)
    until_written(bench, target, 3)
    assert values(bench, target) == {"x": 3}


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({"markerFormat": "v1"}, "markerFormat"),
        ({"action": "release"}, "action"),
        ({"ackMode": "batch"}, "ackMode"),
    ],
)
def test_options_without_exactly_once_are_refused(more: dict[str, str], names: str) -> None:
    with pytest.raises(ConflictingOptions, match=names):
        KafkaSink("target", OPTIONS | more)


def test_a_source_that_acks_before_the_write_and_an_illegal_topic_are_refused() -> None:
    with pytest.raises(AckedBySource, match="cumulative"):
        KafkaSink("target", OPTIONS | {"ackMode": "cumulative"})
    with pytest.raises(InvalidOption, match="topic"):
        KafkaSink("a topic", OPTIONS)


@given(
    numbers=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 4)), max_size=12),
    sizes=st.lists(st.integers(1, 7), min_size=30, max_size=30),
    most_rows=st.integers(1, 9),
)
def test_all_rows_of_a_message_are_in_one_piece(
    numbers: list[tuple[int, int, int]], sizes: list[int], most_rows: int
) -> None:
    rows: list[dict[str, Any]] = []
    for lane, partition, outputs in sorted(numbers):
        own = {LANE: lane, ID[0]: f"t{lane}", ID[1]: partition, ID[2]: len(rows)}
        rows += [own | {IS_OUTPUT: False}, *([own | {IS_OUTPUT: True}] * outputs)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    batches, at = [], 0
    for size in sizes:
        batches += table.slice(at, size).to_batches()
        at += size
    batches += table.slice(at).to_batches()
    pieces = list(chunks(batches, most_rows=most_rows))
    assert [row for piece in pieces for row in piece.to_pylist()] == rows
    for piece in pieces:
        found = piece.to_pylist()
        assert not found[0][IS_OUTPUT]
        assert len({row[LANE] for row in found}) == 1
        assert len(found) <= most_rows or sum(not row[IS_OUTPUT] for row in found) <= 2
    for before, after in pairwise(pieces):
        assert before.to_pylist()[-1][ID[2]] != after.to_pylist()[0][ID[2]]


SCHEMA = pa.schema(
    [
        (LANE, pa.int32()),
        (ID[0], pa.string()),
        (ID[1], pa.int32()),
        (ID[2], pa.int64()),
        (IS_OUTPUT, pa.bool_()),
    ]
)


def test_an_output_before_its_message_belongs_to_none() -> None:
    row = {LANE: 0, ID[0]: "orders", ID[1]: 3, ID[2]: 7, IS_OUTPUT: True}
    with pytest.raises(OutputOfNoMessage, match="offset 7 of topic 'orders' partition 3"):
        list(chunks(pa.Table.from_pylist([row], schema=SCHEMA).to_batches()))
