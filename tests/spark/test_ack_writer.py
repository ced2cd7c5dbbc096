"""Writes of acks on a real broker: each row becomes part of a marker, or the write fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import spark_cursor_source as cursorq
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.marker import End, KeepAlive, Marker, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from tests.spark.control import Control, cell
from tests.spark.harness import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def control(control: Control) -> Control:
    """Control topics whose cursors know the topics of these tests."""
    control.know("t", "u")
    return control


SCHEMA = "topic STRING, partition INT, offset BIGINT, delivery_count INT"


def some(*ranges: tuple[int, int]) -> OffsetSet:
    return OffsetSet.of(*ranges)


def one_task(control: Control, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    return control.spark.createDataFrame(list(rows), schema).coalesce(1)


def marked(control: Control) -> list[Marker]:
    """All markers, without a regard to order."""
    return sorted(control.marked(), key=repr)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, lambda of, them: End(cell=of, offsets=them)),
        ({"action": "ack"}, lambda of, them: End(cell=of, offsets=them)),
        (
            {"action": "release", "delay": "30s", "reason": "later"},
            lambda of, them: Release(
                cell=of, offsets=them, delivery_count=2, delay_ms=30_000, reason="later"
            ),
        ),
        (
            {"action": "release"},
            lambda of, them: Release(cell=of, offsets=them, delivery_count=2, delay_ms=0),
        ),
        (
            {"action": "reject", "reason": "bad"},
            lambda of, them: Reject(cell=of, offsets=them, delivery_count=2, reason="bad"),
        ),
        (
            {"action": "extend", "lease": "5m"},
            lambda of, them: KeepAlive(cell=of, offsets=them, lease_ms=300_000, delivery_count=2),
        ),
    ],
)
def test_an_action_is_done_to_every_row(
    control: Control, options: dict[str, str], expected: Callable[..., Marker]
) -> None:
    rows = one_task(control, SCHEMA, ("t", 1, 5, 2), ("t", 1, 3, 2), ("t", 1, 4, 2))
    control.write(rows, **options)
    assert control.marked() == [expected(cell("t", 1), some((3, 6)))]


def test_a_column_says_the_action_the_delay_and_the_reason_of_each_row(control: Control) -> None:
    rows = one_task(
        control,
        f"{SCHEMA}, action STRING, delay STRING, reason STRING, other DOUBLE",
        ("t", 0, 0, 1, "ack", None, None, 1.0),
        ("t", 0, 1, 1, "ACK", "1h", "not used", 1.0),
        ("t", 0, 2, 1, "release", "30s", "busy", 1.0),
        ("t", 0, 3, 2, "release", None, None, 1.0),
        ("t", 0, 4, 1, "reject", None, "bad", 1.0),
        ("u", 0, 5, 3, "extend", None, None, 1.0),
    )
    control.write(rows, leaseTimeout="10s")
    of = cell("t")
    assert marked(control) == sorted(
        [
            End(cell=of, offsets=some((0, 2))),
            Release(cell=of, offsets=some((2, 3)), delivery_count=1, delay_ms=30_000, reason="busy"),
            Release(cell=of, offsets=some((3, 4)), delivery_count=2, delay_ms=None),
            Reject(cell=of, offsets=some((4, 5)), delivery_count=1, reason="bad"),
            KeepAlive(cell=cell("u"), offsets=some((5, 6)), lease_ms=10_000, delivery_count=3),
        ],
        key=repr,
    )


def test_what_an_option_says_holds_for_every_row_whatever_the_columns_say(control: Control) -> None:
    rows = one_task(
        control,
        f"{SCHEMA}, action STRING, delay_ms BIGINT, reason STRING",
        ("t", 0, 0, 1, "ack", 7_000, "column"),
    )
    control.write(rows, action="release")
    control.write(rows, action="release", delay="1s", reason="option")
    assert control.marked() == [
        Release(cell=cell("t"), offsets=some((0, 1)), delivery_count=1, delay_ms=7_000, reason="column"),
        Release(cell=cell("t"), offsets=some((0, 1)), delivery_count=1, delay_ms=1_000, reason="option"),
    ]


def test_columns_of_other_types_are_read_as_what_they_stand_for(control: Control) -> None:
    rows = one_task(
        control,
        "topic BINARY, partition BIGINT, offset INT, delivery_count STRING, delay_ms INT",
        (bytearray(b"t"), 1, 7, "2", 500),
    )
    control.write(rows, action="release")
    assert control.marked() == [
        Release(cell=cell("t", 1), offsets=some((7, 8)), delivery_count=2, delay_ms=500)
    ]


def test_a_million_acks_in_any_order_are_one_marker(control: Control) -> None:
    rows = control.spark.range(1_000_000).selectExpr(
        "'t' topic", "0 partition", "(id * 7919) % 1000000 * 2 offset"
    )
    control.write(rows.coalesce(1))
    (end,) = control.marked()
    assert isinstance(end, End)
    assert end.offsets == OffsetSet.from_offsets(range(0, 2_000_000, 2))


def test_no_rows_are_no_markers(control: Control) -> None:
    control.write(control.spark.createDataFrame([], SCHEMA))
    assert control.marked() == []


def test_what_is_outstanding_can_be_released_as_it_is_listed(control: Control) -> None:
    lease = Lease(1_700_000_000_000, 3, "run")
    control.put(
        CursorSnapshot(cell=cell("t"), read_position=9, next_marker=0, leases=((lease, some((2, 5))),))
    )
    control.write(control.view("outstanding", subscription="s"), action="release")
    assert control.marked() == [Release(cell=cell("t"), offsets=some((2, 5)), delivery_count=3, delay_ms=0)]


@pytest.mark.parametrize(
    ("schema", "row", "options", "message"),
    [
        ("topic STRING, partition INT", ("t", 0), {}, "ack needs the columns offset"),
        ("topic STRING, partition INT, offset BIGINT", ("t", 0, 1), {"action": "reject"}, "delivery_count"),
        (f"{SCHEMA}, action STRING", ("t", 0, 1, 1, "acknowledge"), {}, "Action 'acknowledge' is none of"),
        (f"{SCHEMA}, action STRING", ("t", 0, 1, 1, None), {}, "Action 'null' is none of"),
        (SCHEMA, ("t", 0, None, 1), {}, "a row has null in offset"),
        (SCHEMA, ("t", 0, 1, None), {"action": "extend"}, "a row has null in delivery_count"),
        (
            f"{SCHEMA}, delay STRING",
            ("t", 0, 1, 1, "soon"),
            {"action": "release"},
            "'soon' is not a duration",
        ),
        (f"{SCHEMA}, delay_ms INT", ("t", 0, 1, 1, -5), {"action": "release"}, "'-5ms' is not a duration"),
        (
            "topic STRING, partition BIGINT, offset INT",
            ("t", 2**40, 1),
            {},
            "Column 'partition' of type int64",
        ),
        ("topic STRING, partition INT, offset DATE", ("t", 1, None), {}, "Column 'offset' of type date32"),
    ],
)
def test_rows_that_do_not_say_what_becomes_of_which_message_fail_the_write(
    control: Control, schema: str, row: tuple[Any, ...], options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        control.write(one_task(control, schema, row), **options)
    assert control.marked() == []


def test_a_write_that_would_replace_something_is_refused(control: Control) -> None:
    with pytest.raises(PySparkException, match="A write of acks can only append"):
        control.write(one_task(control, SCHEMA, ("t", 0, 1, 1)), mode="overwrite")
    with pytest.raises(PySparkException, match="These topics do not exist: 'no-markers'"):
        control.write(one_task(control, SCHEMA, ("t", 0, 1, 1)), markersTopic="no-markers")


def start_stream(control: Control, directory: Path, **options: str) -> Any:
    source = str(directory / "rows")
    one_task(control, SCHEMA, ("t", 0, 3, 1), ("t", 0, 4, 1)).write.parquet(source)
    return (
        control.spark.readStream.schema(SCHEMA)
        .parquet(source)
        .writeStream.format("cursorq")
        .options(**control.options(subscription="s", **options))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .queryName("acks")
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_of_rows_can_be_written_as_well(control: Control, tmp_path: Path) -> None:
    query = start_stream(control, tmp_path, action="reject", reason="late")
    assert query.awaitTermination(120)
    assert control.marked() == [Reject(cell=cell("t"), offsets=some((3, 5)), delivery_count=1, reason="late")]


def test_a_stream_is_not_acked_by_a_sink_where_its_source_does_it(control: Control, tmp_path: Path) -> None:
    query = start_stream(control, tmp_path, ackMode="batch")
    with pytest.raises(PySparkException, match="With ackMode=batch and markerFormat=v2 the source acks"):
        query.awaitTermination(120)


def test_the_views_follow_a_queue_from_its_leases_to_its_last_ack(bench: Bench) -> None:
    # delivered 0-9, acked: even, rejected: 1, leased: 3, 5, 7, 9; then these are acked by a write of the view
    topic = bench.create_topic()
    bench.produce(topic, [b"%d" % n for n in range(10)])
    options = bench.options(topic)

    def view(name: str) -> DataFrame:
        return bench.spark.read.format("cursorq").options(**options).option("view", name).load()

    def handle(batch: DataFrame, batch_id: int) -> None:
        cursorq.ack(batch.where("offset % 2 = 0"), options)
        cursorq.reject(batch.where("offset = 1"), options, reason="odd one out")

    bench.start(options, handle)
    bench.until(lambda: bench.cursor(topic), "the queue has a cursor, without which a view of it is an error")
    cursors, outstanding = view("cursors"), view("outstanding")
    all_read = cursors.where("read_position = 10")
    bench.until(lambda: [row.outstanding for row in all_read.collect()] == [4], "4 are left")
    (cursor,) = cursors.collect()
    assert (cursor.mark_delete, cursor.leased, cursor.backlog) == (2, 4, 4)
    assert [tuple(one) for one in cursor.ack_holes] == [(4, 5), (6, 7), (8, 9)]
    held = [(row.offset, row.state, row.delivery_count) for row in outstanding.orderBy("offset").collect()]
    assert held == [(n, "leased", 1) for n in (3, 5, 7, 9)]
    (dead,) = view("deadletters").collect()
    assert (bytes(dead.value), dead.origin_topic, dead.origin_offset) == (b"1", topic, 1)
    assert (dead.delivery_count, dead.reason, dead.error) == (1, "rejected", "odd one out")
    assert dead.first_delivery == dead.last_delivery is not None
    assert {"HELLO", "START", "END", "REJECT"} <= {row.type for row in view("markers").collect()}

    outstanding.write.format("cursorq").options(**options).option("action", "ack").mode("append").save()
    bench.until_acked(topic, 10)
    assert outstanding.count() == 0
    assert {row.delivery_count for row in view("messages").collect()} == {None}
