"""A run and a tracker that does not answer, without either."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_cursor_source.consumer.session import REPEATS, TrackerAddress, TrackerSession
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, MarkersLog
from spark_cursor_source.core.marker import Delete, Hello
from spark_cursor_source.errors import MarkersNotDurable, NoTracker, TrackedElsewhere
from tests.logged import names

CELL = Cell(subscription="s", topic="t", partition=0)
TIMEOUT_S = 0.4


class Sought:
    """The cursors of a subscription that somebody has sought, and nobody owns since."""

    def refresh(self) -> bool:
        return False

    def get(self, cell: Cell) -> CursorSnapshot:
        return CursorSnapshot(cell=cell, read_position=4, next_marker=2, sought=True)


def test_a_seek_before_the_answer_is_met_anew_once_and_then_the_tracker_is_missed() -> None:
    # Hello -- Seek -- Hello under another id, and no third one: the tracker is away
    said: list[Hello] = []
    address = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=int(TIMEOUT_S * 1000))
    run = TrackerSession("run", address, Sought(), said.extend)
    run.greet({CELL: 0}, {})
    assert run.taken_over() == {}, "it may yet answer"
    time.sleep(TIMEOUT_S / REPEATS)
    assert run.taken_over() == {CELL: None}
    run.give_up([CELL])
    run.greet({CELL: 0}, {})
    assert [hello.run_id for hello in said] == ["run", "run.1"]
    time.sleep(TIMEOUT_S)
    assert run.taken_over() == {}
    with pytest.raises(NoTracker, match="No tracker answered for 1 queue"):
        run.listen()


def test_a_run_that_waits_says_hello_again_only_for_what_is_still_its_own() -> None:
    # Hello for two cells -- it stands still, and the group gives one of them to another -- Hello for one
    said: list[Hello] = []
    address = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=int(TIMEOUT_S * 1000))
    run = TrackerSession("run", address, Sought(), said.extend)
    other = replace(CELL, partition=1)
    run.greet({CELL: 0, other: 0}, {})
    said.clear()
    with pytest.raises(NoTracker):
        run.wait_for([CELL, other], lambda cells: [CELL])
    assert {hello.cell for hello in said} == {CELL}


def test_a_run_that_has_lost_everything_waits_for_no_answer() -> None:
    said: list[Hello] = []
    address = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=int(TIMEOUT_S * 1000))
    run = TrackerSession("run", address, Sought(), said.extend)
    run.greet({CELL: 0}, {})

    def give_up(cells: Sequence[Cell]) -> Sequence[Cell]:
        run.give_up(cells)
        return []

    run.wait_for([CELL], give_up)
    assert len(said) == 1


def test_a_hello_that_another_run_overtakes_is_said_again_without_the_timeout_of_the_tracker() -> None:
    # Hello -- Hello of another run, before the answer is read -- a quarter of the timeout -- Hello
    said: list[Hello] = []
    address = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=60_000)
    cursors, now_s = Owned("before"), [0.0]
    run = TrackerSession("run", address, cursors, said.extend, now_s=lambda: now_s[0])
    run.greet({CELL: 0}, {})
    now_s[0] = 60 / REPEATS + 1
    assert run.taken_over() == {}, "the tracker has read neither Hello"
    cursors.owner = "another"
    assert run.taken_over() == {CELL: None}
    run.give_up([CELL])
    run.greet({CELL: 0}, {})
    assert [hello.run_id for hello in said] == ["run", "run.1"]
    cursors.owner = "run.1"
    run.listen()
    assert CELL in run.answers


def test_a_hello_that_is_not_confirmed_is_said_again_under_another_run_id() -> None:
    # Hello, stored without an answer -- Seek -- Hello: with one id, the Seek would stay unnoticed
    said: list[Hello] = []

    def send(hellos: Sequence[Hello | Delete]) -> None:
        said.extend(hello for hello in hellos if isinstance(hello, Hello))
        if len(said) == 1:
            raise MarkersNotDurable("m", 1, "no answer")

    address = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=60_000)
    cursors = Owned("before")
    run = TrackerSession("run", address, cursors, send)
    with pytest.raises(MarkersNotDurable):
        run.greet({CELL: 0}, {})
    run.greet({CELL: 0}, {})
    assert [hello.run_id for hello in said] == ["run", "run.1"]
    cursors.owner = "run"
    run.listen()
    assert not run.answers


def test_a_run_that_waits_for_its_tracker_says_so_once_long_before_it_gives_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Hello | 6 s | 7 s | the answer -- Hello for another cell | 6 s
    address = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=60_000)
    cursors, now_s = Owned("before"), [0.0]
    run = TrackerSession("run", address, cursors, [].extend, now_s=lambda: now_s[0])
    run.greet({CELL: 0}, {})
    for now_s[0] in (1.0, 6.0, 7.0):
        run.listen()
    assert names(caplog.records) == ["tracker_awaited"]
    assert "start one (cursorq tracker" in caplog.text
    cursors.owner = "run"
    run.listen()
    cursors.owner = "before"
    run.greet({replace(CELL, partition=1): 0}, {})
    for now_s[0] in (8.0, 14.0):
        run.listen()
    assert names(caplog.records) == ["tracker_awaited"] * 2


class Owned:
    """The cursors of a subscription whose redeliveries go to one run."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def refresh(self) -> bool:
        return False

    def get(self, cell: Cell) -> CursorSnapshot:
        return CursorSnapshot(cell=cell, read_position=4, next_marker=2, owner=self.owner)


class Elsewhere(Sought):
    """The cursors of a subscription that the tracker of another markers topic has."""

    def get(self, cell: Cell) -> CursorSnapshot:
        return CursorSnapshot(cell=cell, read_position=4, next_marker=2, log=MarkersLog("others", "id"))


def test_a_subscription_of_another_markers_topics_tracker_is_refused_before_it_is_greeted() -> None:
    said: list[Hello] = []
    address = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=1_000)
    with pytest.raises(TrackedElsewhere, match="through markers topic 'others', not 'm'"):
        TrackerSession("run", address, Elsewhere(), said.extend).greet({CELL: 0}, {})
    assert said == []
    told = TrackerAddress(markers_topic="others", cursors_topic="c", timeout_ms=1_000)
    TrackerSession("run", told, Elsewhere(), said.extend).greet({CELL: 0}, {})
    assert len(said) == 1
