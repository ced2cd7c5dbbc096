"""Rows as messages: columns by the rules of Spark's Kafka sink, and what each row becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_cursor_source.errors import NoMessageColumn, UnfitMessageColumn
from spark_cursor_source.spark.message_rows import check_columns, messages, targets
from spark_cursor_source.wire.deliver_at import due

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def headers_of(value: DataType, key: str = "key") -> ArrayType:
    return ArrayType(StructType([StructField(key, StringType(), False), StructField("value", value)]))


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        ({"value": StringType()}, "t"),
        ({"value": BinaryType(), "topic": StringType()}, None),
        ({"value": BinaryType(), "key": StringType(), "offset": LongType(), "action": DateType()}, "t"),
        (
            {
                "key": BinaryType(),
                "value": StringType(),
                "topic": StringType(),
                "partition": IntegerType(),
                "headers": headers_of(BinaryType()),
                "deliverAt": TimestampType(),
            },
            "t",
        ),
    ],
)
def test_rows_that_can_be_sent(columns: dict[str, DataType], topic: str | None) -> None:
    check_columns(schema(**columns), topic=topic)


@pytest.mark.parametrize(
    ("columns", "topic", "error", "message"),
    [
        (
            {"value": StringType(), "deliver_at": TimestampType()},
            "t",
            UnfitMessageColumn,
            "column 'deliver_at' is read only if it is named deliverAt. Give it that name, or drop it.",
        ),
        (
            {"key": StringType()},
            "t",
            NoMessageColumn,
            "needs the column 'value', and the DataFrame has key. Rename",
        ),
        ({"value": StringType()}, None, NoMessageColumn, "'topic', .*Give the option topic, or a column"),
        (
            {"value": IntegerType()},
            "t",
            UnfitMessageColumn,
            "'value' has the type int. Give a STRING or BINARY",
        ),
        ({"value": StringType(), "key": LongType()}, "t", UnfitMessageColumn, "'key' has the type bigint"),
        (
            {"value": StringType(), "topic": BinaryType()},
            None,
            UnfitMessageColumn,
            "'topic' has the type binary",
        ),
        ({"value": StringType(), "topic": DateType()}, "t", UnfitMessageColumn, "'topic' has the type date"),
        ({"value": StringType(), "partition": LongType()}, "t", UnfitMessageColumn, "bigint. Give an INT"),
        ({"value": StringType(), "headers": headers_of(StringType())}, "t", UnfitMessageColumn, "'headers'"),
        ({"value": StringType(), "headers": headers_of(BinaryType(), "name")}, "t", UnfitMessageColumn, "he"),
        (
            {"value": StringType(), "headers": MapType(StringType(), BinaryType())},
            "t",
            UnfitMessageColumn,
            "Give an ARRAY<STRUCT<key: STRING, value: BINARY>>",
        ),
        ({"value": StringType(), "deliverAt": LongType()}, "t", UnfitMessageColumn, "Give a TIMESTAMP"),
        ({"value": StringType(), "deliverAt": TimestampNTZType()}, "t", UnfitMessageColumn, "timestamp_ntz"),
    ],
)
def test_rows_that_cannot_be_sent_are_refused_before_anything_is(
    columns: dict[str, DataType], topic: str | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_columns(schema(**columns), topic=topic)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_keys_values_and_topics_are_sent_as_bytes_and_nulls_stay_nulls() -> None:
    rows = batch(key=["k", None, ""], value=[b"\x00", None, b""], topic=["a", "b", "a"], other=[1, 2, 3])
    sent = [("a", b"k", b"\x00", -1, None), ("b", None, None, -1, None), ("a", b"", b"", -1, None)]
    assert list(messages(rows, None)) == sent
    assert [row[0] for row in messages(rows, "c")] == ["c", "c", "c"]
    assert list(messages(batch(value=["ü"]), "c")) == [("c", None, "ü".encode(), -1, None)]


def test_a_slice_of_a_batch_is_that_slice() -> None:
    headers = pa.array([[("a", b"1")], [], [("b", None), ("b", b"2")], None, [("c", b"3")]], HEADERS)
    rows = batch(value=list("abcde"), headers=headers, partition=pa.array([0, 1, None, 3, 4], pa.int32()))
    assert [row[2:] for row in messages(rows.slice(1, 4), "t")] == [
        (b"b", 1, None),
        (b"c", -1, [("b", None), ("b", b"2")]),
        (b"d", 3, None),
        (b"e", 4, [("c", b"3")]),
    ]


def test_the_column_deliver_at_is_the_header_that_the_source_honours() -> None:
    # rounded up to a millisecond: never before its time; after the header of the row, so that it counts
    moment = datetime(2026, 11, 21, 9, 0, 0, 1, tzinfo=UTC)
    elsewhere = moment.astimezone(tz=None)
    instants = pa.array([moment, None, elsewhere], pa.timestamp("us", "Europe/Berlin"))
    given = pa.array([[("deliverAt", b"5"), ("a", b"1")], [("a", b"1")], None], HEADERS)
    rows = batch(value=["x"] * 3, deliverAt=instants, headers=given)
    headers = [row[4] or [] for row in messages(rows, "t")]
    due_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + 1
    assert [due(one, None).at_ms for one in headers] == [due_ms, None, due_ms]
    assert headers[0][:2] == [("deliverAt", b"5"), ("a", b"1")]
    assert headers[1] == [("a", b"1")]
    assert [row[4] for row in messages(batch(value=["x"] * 3, deliverAt=instants), "t")][1] is None


def test_where_rows_go_is_told_once_for_each_topic_and_partition() -> None:
    partitions = pa.array([0, None, 0, 2], pa.int32())
    rows = batch(value=["x"] * 4, topic=["a", "a", "a", "b"], partition=partitions)
    assert targets(rows, None) == {("a", 0), ("a", None), ("b", 2)}
    assert targets(rows, "c") == {("c", 0), ("c", None), ("c", 2)}
    assert targets(batch(value=["x"], topic=["a"]), "c") == {("c", None)}
    assert targets(rows.slice(0, 0), "c") == set()


def test_a_row_without_a_topic_or_a_header_without_a_key_is_refused() -> None:
    with pytest.raises(UnfitMessageColumn, match=r"'topic' has a null. Give the option topic, which is for"):
        targets(batch(value=["x"] * 2, topic=["a", None]), None)
    nameless = batch(value=["x"], headers=pa.array([[(None, b"1")]], HEADERS))
    with pytest.raises(UnfitMessageColumn, match=r"'headers' has a header without a key. Give each header"):
        list(messages(nameless, "t"))
