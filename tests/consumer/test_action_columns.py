"""Columns of messages and of settlements: each has one declaration, and the pages and errors say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from spark_cursor_source.consumer.action_columns import ACTION_COLUMNS, ActionColumns
from spark_cursor_source.errors import MissingColumns, UnfitColumn, UnknownAction
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.topics.message_columns import message_columns

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscription": "billing"}
PAGE = Path(__file__).resolve().parents[2] / "docs/reference/sinks-and-columns.md"
ROW = {"topic": ["t"], "partition": [1], "offset": [2], "delivery_count": [3]}


def read(row: dict[str, list[object]], **options: str) -> dict[str, object]:
    rows = pa.RecordBatch.from_pydict(row)
    columns = ActionColumns.of(AckOptions.parse(OPTIONS | options), rows.schema.names)
    (settled,) = columns.read(rows).to_pylist()
    return settled


def table(heading: str) -> dict[str, str]:
    """The columns and types of a table of the page."""
    section = PAGE.read_text(encoding="utf-8").split(heading)[1]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", section.split("\n## ")[0], re.MULTILINE)
    return {
        name: kind.replace("\\", "") for names, kind in rows for name in re.findall(r"`(\w+)`", names) if kind
    }


def test_the_reference_page_has_the_columns_of_the_source() -> None:
    assert table("## Columns of the source") == message_columns(include_headers=True)


def test_the_reference_page_and_the_error_have_the_columns_of_a_settlement() -> None:
    told = table("| column | type | meaning |\n| --- | --- | --- |\n| `topic`, `partition`, `offset`")
    assert told == {name: ACTION_COLUMNS[name] for name in told}
    assert set(ACTION_COLUMNS) - set(told) == {"topic", "partition", "offset"}
    said = str(UnfitColumn("offset", "date", "why"))
    assert [
        name for name, kind in ACTION_COLUMNS.items() if name != "key" and f"{name} {kind}" not in said
    ] == []


def test_an_option_wins_over_a_column_and_a_release_without_a_delay_is_for_now() -> None:
    row = {**ROW, "action": ["ack"], "delay_ms": [7], "reason": ["column"]}
    assert read(row) == {**{name: value[0] for name, value in row.items()}}
    told = read(row, action="release", delay="1s", reason="option")
    assert (told["delay_ms"], told["reason"], "action" in told) == (1000, "option", False)
    assert read(ROW, action="release")["delay_ms"] == 0
    assert read({**ROW, "delay": ["2s"], "delay_ms": [5]}, action="release")["delay_ms"] == 5


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ({"topic": ["t"], "partition": [1]}, MissingColumns, "ack needs the columns offset"),
        ({**ROW, "action": [None]}, UnknownAction, "null"),
        ({**ROW, "action": ["Block"], "reason": ["1"]}, UnknownAction, "'block' is none of"),
        ({**ROW, "partition": [2**40]}, UnfitColumn, "Column 'partition' of type int64"),
        ({**ROW, "delay": ["soon"]}, UnfitColumn, "'soon' is not a duration"),
    ],
)
def test_columns_that_cannot_be_read_are_named(
    row: dict[str, list[object]], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(row)
