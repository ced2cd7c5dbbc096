"""Positions in Spark's offset log: one line that comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.tracker_offset import TrackerOffset
from spark_cursor_source.errors import InvalidOffset
from spark_cursor_source.wire import offset_json, tracker_offset_json

positions = st.integers(0, 2**63 - 1)
topics = st.text("ab._-", min_size=1, max_size=5)
source_offsets = st.builds(
    SourceOffset,
    queue=st.dictionaries(st.tuples(topics, st.integers(0, 20)), positions, max_size=5),
    redeliveries=st.dictionaries(st.integers(0, 20), positions, max_size=5),
    topic_ids=st.dictionaries(topics, st.text(max_size=5), max_size=3),
    markers=st.dictionaries(st.integers(0, 20), positions, max_size=5),
    laps=st.just(0) | st.integers(1, 9),
    origins=st.dictionaries(st.tuples(topics, st.integers(0, 20)), positions, max_size=5),
    suspects=st.dictionaries(st.integers(0, 20), positions, max_size=5),
    cuts=st.dictionaries(st.integers(0, 20), positions, max_size=5),
    suspect_cuts=st.dictionaries(st.integers(0, 20), positions, max_size=5),
    epochs=st.dictionaries(st.tuples(topics, st.integers(0, 20)), positions, max_size=5),
    runs=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)
tracker_offsets = st.builds(
    TrackerOffset,
    tracker_id=st.text(min_size=1, max_size=5),
    next=st.dictionaries(st.integers(0, 20), positions, max_size=5),
    now_ms=st.dictionaries(st.integers(0, 20), positions, max_size=5),
    settled=st.frozensets(st.integers(0, 20), max_size=5),
    read_between=st.dictionaries(st.integers(0, 20), st.tuples(positions, positions), max_size=3),
    cursors_id=st.text(max_size=5),
)


def through_json(encoded: dict) -> dict:
    """What Spark does with it: one line in a file."""
    line = json.dumps(encoded)
    assert "\n" not in line
    return json.loads(line)


@given(source_offsets)
def test_a_position_of_the_source_comes_back_as_it_was(offset: SourceOffset) -> None:
    assert offset_json.decode(through_json(offset_json.encode(offset))) == offset


@given(tracker_offsets)
def test_a_position_of_the_tracker_comes_back_as_it_was(offset: TrackerOffset) -> None:
    assert tracker_offset_json.decode(through_json(tracker_offset_json.encode(offset))) == offset


def test_a_position_without_v1_markers_says_nothing_of_them() -> None:
    assert "markers" not in offset_json.encode(SourceOffset(queue={}, redeliveries={0: 5}))


def test_equal_positions_are_equal_text_in_whatever_order_they_were_found() -> None:
    one = SourceOffset(queue={("b", 1): 2, ("a", 10): 1, ("a", 2): 0}, redeliveries={1: 0, 0: 5})
    other = SourceOffset(queue={("a", 2): 0, ("a", 10): 1, ("b", 1): 2}, redeliveries={0: 5, 1: 0})
    assert json.dumps(offset_json.encode(one)) == json.dumps(offset_json.encode(other))


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"orders": {"0": 5}},  # of Spark's own Kafka source
        {"v": 2, "queue": {}, "redeliveries": {}, "ids": {}},
        {"v": 1, "queue": {}, "redeliveries": {}},
        {"v": 1, "queue": {"t": {"0": -1}}, "redeliveries": {}, "ids": {}},
        {"v": 1, "queue": {"t": {"0": "5"}}, "redeliveries": {}, "ids": {}},
        {"v": 1, "queue": {"t": {"0": True}}, "redeliveries": {}, "ids": {}},
        {"v": 1, "queue": {"t": {"x": 5}}, "redeliveries": {}, "ids": {}},
        {"v": 1, "queue": {"t": 5}, "redeliveries": {}, "ids": {}},
        {"v": 1, "queue": {}, "redeliveries": [], "ids": {}},
        {"v": 1, "queue": {}, "redeliveries": {}, "ids": 5},
        {"v": 1, "queue": {}, "redeliveries": {}, "ids": {}, "origins": {"t": {"0": "5"}}},
        {"v": 1, "queue": {}, "redeliveries": {}, "ids": {}, "runs": "r"},
        {"v": 1, "queue": {}, "redeliveries": {}, "ids": {}, "runs": [5]},
    ],
    ids=str,
)
def test_anything_else_is_no_position_of_the_source(stored: dict) -> None:
    with pytest.raises(InvalidOffset, match="none of cursorq's"):
        offset_json.decode(stored)


@pytest.mark.parametrize("stored", [{}, {"v": 9}, {"orders": {"0": 5}}], ids=str)
def test_anything_else_is_no_position_of_the_tracker(stored: dict) -> None:
    with pytest.raises(InvalidOffset):
        tracker_offset_json.decode(stored)


def test_an_offset_of_a_later_lap_is_another_one_and_a_first_lap_is_not_told() -> None:
    once = SourceOffset(queue={("orders", 0): 5}, redeliveries={0: 7})
    again = replace(once, laps=1)
    assert "laps" not in offset_json.encode(once)
    assert "origins" not in offset_json.encode(once)
    assert offset_json.encode(again) != offset_json.encode(once)
    assert offset_json.decode(offset_json.encode(again)) == again


def test_an_offset_without_parts_of_records_says_nothing_of_them() -> None:
    encoded = offset_json.encode(SourceOffset(queue={("orders", 0): 5}, redeliveries={1: 7}))
    assert encoded.keys() == {"v", "queue", "redeliveries", "ids"}


def test_a_position_of_an_earlier_version_names_no_runs() -> None:
    stored = {"v": 1, "queue": {"orders": {"0": 5}}, "redeliveries": {"1": 7}, "ids": {}}
    assert offset_json.decode(stored).runs == ()
