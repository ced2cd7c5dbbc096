"""The option subscribePattern takes a Java regular expression where Python has the same, and no other."""

from __future__ import annotations

import pytest

from spark_cursor_source.errors import InvalidOption
from spark_cursor_source.options.source import SourceOptions

BASE = {"kafka.bootstrap.servers": "b:9092", "subscription": "s"}


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("orders-.*", ["orders-eu", "orders-"], ["my-orders-eu", "orders"]),
        (r"\Qa.b\E-(?<region>eu|us)", ["a.b-eu", "a.b-us"], ["axb-eu", "a.b-"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"(?<year>\d+)-\k<year>", ["7-7"], ["7-8"]),
        (r"(?i)ORDERS", ["orders"], []),
        (r"a++b|c{2,3}+", ["aab", "ccc"], ["c"]),
        (r"[^\[-]+", ["orders"], ["orders-eu"]),
    ],
    ids=str,
)
def test_a_pattern_of_java_selects_what_java_selects(pattern: str, taken: list[str], left: list[str]) -> None:
    options = SourceOptions.parse({**BASE, "subscribePattern": pattern})
    assert [name for name in (*taken, *left) if options.selects(name)] == taken


@pytest.mark.parametrize(
    "pattern",
    [
        "orders-[",
        r"\p{Alpha}+",
        r"\h",
        "[a-z&&[^x]]+",  # Python reads a set of other characters, and says nothing
        "[a[bc]]",
        "(?P<name>a)",  # of Python alone
        r"(?P=name)",
    ],
    ids=str,
)
def test_a_pattern_that_python_does_not_read_as_java_does_is_refused(pattern: str) -> None:
    with pytest.raises(
        InvalidOption, match="Java regular expression that Python supports as well"
    ) as refusal:
        SourceOptions.parse({**BASE, "subscribePattern": pattern})
    assert refusal.value.option == "subscribePattern"
