"""What records of the streams topic add up to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.client.streams.subjects import attached, matches, why_no_subject
from spark_cursor_source.core.batch import paused_queue_ends
from spark_cursor_source.core.stream_state import (
    MadeReadonly,
    PartitionState,
    Paused,
    StreamConfigured,
    StreamRecord,
    StreamSettings,
    StreamView,
)
from spark_cursor_source.errors import ReadonlyPartition

PLACE = ("orders", 1)


def view_of(*records: StreamRecord) -> StreamView:
    """The view after records written at 1, 2, 3 and so on."""
    return StreamView().after((record, at_ms) for at_ms, record in enumerate(records, 1))


def test_the_last_record_of_each_kind_counts_and_says_since_when() -> None:
    view = view_of(
        Paused(place=PLACE, paused=True, resume_all=True),
        MadeReadonly(place=PLACE, readonly=True),
        Paused(place=PLACE, paused=False),
    )
    expected = PartitionState(pause_changed_ms=3, readonly=True, readonly_changed_ms=2)
    assert view.state(PLACE) == expected
    assert view.state(("orders", 0)) == view.state(("returns", 1)) == PartitionState()
    with pytest.raises(ReadonlyPartition, match="Partition 1 of stream 'orders' is readonly"):
        view.check_writable(PLACE)
    view.check_writable(("orders", 0))


def test_a_message_resumes_its_partition_and_those_that_any_message_resumes() -> None:
    view = view_of(
        Paused(place=("orders", 0), paused=True),
        Paused(place=("orders", 1), paused=True, resume_all=True),
        Paused(place=("returns", 0), paused=True, resume_all=True),
    )
    assert view.resumed_by(("orders", 0)) == [0, 1]
    assert view.resumed_by(("orders", 2)) == [1]
    assert view.resumed_by(("others", 0)) == []


def test_a_stream_that_is_made_again_begins_with_nothing() -> None:
    view = view_of(
        StreamConfigured(stream="orders", settings=StreamSettings(subject="o.*")),
        Paused(place=PLACE, paused=True),
        MadeReadonly(place=("orders", 4), readonly=True),
        StreamConfigured(stream="returns", settings=StreamSettings(retention_messages=5)),
    )
    after = view.after((record, 9) for record in view.records_of("orders"))
    assert after.of("orders") == StreamSettings()
    assert after.state(PLACE) == after.state(("orders", 4)) == PartitionState()
    assert after.of("returns").kept_offsets == 5


@pytest.mark.parametrize(
    ("pattern", "subject", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("*.eu", "orders.eu", True),
        ("*.eu", "orders.us", False),
        (">", "orders.eu.paid", True),
        ("orders.>", "orders.eu.paid", True),
        ("orders.>", "returns.eu", False),
        ("orders.*.>", "orders.eu", False),
    ],
)
def test_wildcards_stand_for_a_word_or_for_the_rest(pattern: str, subject: str, is_match: bool) -> None:
    assert matches(pattern, subject) is is_match


words = st.lists(st.sampled_from(["a", "b", "1", "2"]), min_size=1, max_size=4)
pattern_words = st.lists(st.sampled_from(["a", "b", "1", "*"]), min_size=0, max_size=3)


@given(pattern_words, st.booleans(), words)
def test_wildcards_match_as_an_expression_would(pattern: list[str], tail: bool, subject: list[str]) -> None:
    import re

    parts = [*pattern, ">"] if tail or not pattern else pattern
    expression = r"\.".join({"*": r"[^.]+", ">": r".+"}.get(part, part) for part in parts)
    expected = re.fullmatch(expression, ".".join(subject)) is not None
    assert matches(".".join(parts), ".".join(subject)) is expected


def test_each_partition_but_the_first_listens_to_a_subject_of_its_own() -> None:
    assert attached("orders.*", 3, "orders.eu") == [0]
    assert attached("orders.*", 3, "orders.eu.2") == [2]
    assert attached("orders.*", 3, "orders.2") == [0]
    assert attached("orders.>", 3, "orders.eu.2") == [0]
    assert attached("orders", 3, "orders.02") == attached("orders", 3, "orders.0") == []


@pytest.mark.parametrize("subject", ["", ".", "a..b", "a b", "a\n", ">.a"])
def test_what_is_no_subject_is_told_why(subject: str) -> None:
    assert why_no_subject(subject, wildcards=True) is not None


def test_a_batch_holds_nothing_of_a_paused_partition() -> None:
    ends, origin = {("t", 0): 9, ("t", 1): 9}, {("t", 0): 4, ("t", 1): 4}
    assert paused_queue_ends(ends, origin, frozenset()) == ends
    assert paused_queue_ends(ends, origin, {("t", 1), ("u", 0)}) == {("t", 0): 9, ("t", 1): 4}
