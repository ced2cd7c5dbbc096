"""What a commit to a table says about its messages."""

from __future__ import annotations

import json

import pytest

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.table_commit import Place, TableCommit

HERE, THERE = Place("orders", "id-1", 0), Place("orders", "id-1", 1)
RECREATED = Place("orders", "id-2", 0)
TEN = OffsetSet.of((0, 10))


def commit(**written: OffsetSet) -> TableCommit:
    places = {"here": HERE, "there": THERE}
    return TableCommit("w").next(
        {places[name]: ids for name, ids in written.items()}, {}, sequence=1, attempt="a"
    )


def test_a_commit_lists_what_earlier_ones_wrote_until_it_has_ended() -> None:
    ended = {HERE: OffsetSet.of((0, 8)), THERE: TEN}
    then = commit(here=TEN, there=TEN).next({HERE: OffsetSet.of((12, 14))}, ended, sequence=2, attempt="b")
    assert then == TableCommit("w", 2, "b", {HERE: OffsetSet.of((8, 10), (12, 14))})


def test_offsets_of_a_recreated_topic_are_other_messages() -> None:
    then = commit(here=TEN, there=TEN).next({RECREATED: TEN}, {}, sequence=2, attempt="b")
    assert then.written == {RECREATED: TEN}


def test_other_topics_are_kept() -> None:
    other = Place("refunds", "id-9", 0)
    then = commit(here=TEN).next({other: TEN}, {}, sequence=2, attempt="b")
    assert then.written == {HERE: TEN, other: TEN}


@pytest.mark.parametrize("text", [None, "", "hello", "[1]", '"cursorq"', "{}", '{"cursorq": 3}'])
def test_metadata_of_others_is_no_commit(text: str | None) -> None:
    assert TableCommit.of_json(text, "w") is None


def test_commits_of_other_writers_are_not_ours() -> None:
    text = commit(here=TEN).to_json()
    assert TableCommit.of_json(text, "w") == commit(here=TEN)
    assert TableCommit.of_json(text, "another") is None


@pytest.mark.parametrize(
    "change",
    [
        {"written": None},
        {"written": [["orders", "id-1", 0]]},
        {"written": [["orders", "id-1", 0, "no base64!"]]},
        {"written": [["orders", "id-1", 0, "AAAA"]]},
        {"sequence": "x"},
    ],
)
def test_a_damaged_commit_is_told_from_one_of_others(change: dict[str, object]) -> None:
    note = json.loads(commit(here=TEN).to_json())["cursorq"]
    with pytest.raises(ValueError, match="the note of writer 'w' is damaged"):
        TableCommit.of_json(json.dumps({"cursorq": note | change}), "w")


def test_the_size_follows_ranges_and_not_messages() -> None:
    assert len(commit(here=OffsetSet.of((0, 10_000_000))).to_json()) < 4_000
