"""Durations are strict, and what is written out is read back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.duration import format_duration, parse_duration
from spark_cursor_source.errors import InvalidDuration


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("500ms", 500), ("0s", 0), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_a_number_and_a_unit_are_a_duration(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("30 seconds", 30_000),
        ("1 second", 1_000),
        ("1 minute", 60_000),
        ("5 Minutes", 300_000),
        ("interval 10 seconds", 10_000),
        (" INTERVAL  2  hours  30 minutes ", 9_000_000),
        ("1 week 1 day", 691_200_000),
        ("500 milliseconds", 500),
    ],
)
def test_the_intervals_of_spark_are_durations_too(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "interval 30",
        "interval30 seconds",
        "30seconds",
        "-30 seconds",
        "1.5 seconds",
        "1 month",
        "1 second, 2 seconds",
        "30 seconds ago",
        "5 microseconds",
        "9223372036854775807 seconds",
        "30",
        "s",
        "-1s",
        "+1s",
        "1.5s",
        " 1s",
        "1s ",
        "1 s",
        "1S",
        "1min",
        "1s\n",
        "1_0s",
        "٣s",
        "1m30s",
        "9223372036854775808ms",
        "9" * 5000 + "s",
        30,
        None,
        b"30s",
    ],
)
def test_anything_else_is_refused_and_says_what_to_write(text: Any) -> None:
    with pytest.raises(InvalidDuration, match="Write a whole number with a unit") as refusal:
        parse_duration(text)
    assert len(str(refusal.value)) < 400


def test_a_negative_duration_has_no_text() -> None:
    with pytest.raises(InvalidDuration):
        format_duration(-1)


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_the_text_of_a_duration_gives_the_duration_back(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms)) == duration_ms
