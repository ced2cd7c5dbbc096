"""Rows and messages of ``AckSink.per_row``, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from spark_cursor_source.spark.per_row import Message, Rows
from spark_cursor_source.topics.message_columns import message_schema

IDS = ("topic", "partition", "offset")
MESSAGES = [
    {
        "key": None if offset == 1 else b"k",
        "value": b"v%d" % offset,
        "topic": "orders",
        "partition": 3,
        "offset": offset,
        "timestamp": datetime(2024, 1, 2, tzinfo=UTC),
        "timestampType": None if offset == 2 else 0,
        "headers": [{"key": "trace", "value": b"1"}],
        "delivery_count": 1,
    }
    for offset in range(4)
]


@pytest.fixture
def rows() -> Rows:
    return Rows(pa.RecordBatch.from_pylist(MESSAGES, message_schema(include_headers=True)))


def test_a_message_has_the_values_that_arrow_gives(rows: Rows) -> None:
    expected = rows.batch.to_pylist()
    assert [Message(rows, index).asDict() for index in range(4)] == expected
    assert [getattr(Message(rows, 2), name) for name in rows.names] == list(expected[2].values())


def test_a_column_that_is_not_of_a_source_is_a_field_too() -> None:
    rows = Rows(pa.RecordBatch.from_pydict({"value": [b"a"], "amount": [1.5]}))
    assert (Message(rows, 0).amount, Message(rows, 0)["amount"]) == (1.5, 1.5)


@pytest.mark.parametrize("name", ["offset", "amount"])
def test_a_field_that_is_missing_is_named_beside_those_there_are(name: str) -> None:
    message = Message(Rows(pa.RecordBatch.from_pydict({"value": [b"a"], "topic": ["t"]})), 0)
    with pytest.raises(AttributeError, match=f"a message has no field '{name}'; it has value, topic"):
        getattr(message, name)


def test_rows_that_are_done_are_taken_once(rows: Rows) -> None:
    rows.done += [2, 0]
    assert rows.take_done() == [2, 0]
    assert rows.take_done() == []
    rows.done.append(3)
    assert rows.take_done() == [3]


def test_acks_alone_need_no_columns_of_an_outcome(rows: Rows) -> None:
    assert rows.settled([3, 1], IDS).to_pylist() == [
        {"topic": "orders", "partition": 3, "offset": offset} for offset in (3, 1)
    ]


@pytest.mark.parametrize("indexes", [[3, 1, 0, 2], [2, 1], [1]])
def test_each_row_has_its_own_outcome_in_whichever_order_they_are_done(
    rows: Rows, indexes: list[int]
) -> None:
    rows.odd[1] = ("release", 5, "later", None)
    found = rows.settled(indexes, IDS).to_pylist()
    assert {row["offset"]: (row["action"], row["delay_ms"], row["reason"]) for row in found} == {
        index: ("release", 5, "later") if index == 1 else ("ack", None, None) for index in indexes
    }
