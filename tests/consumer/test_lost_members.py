"""Who is taken for a lost member, and what is written about it."""

from __future__ import annotations

from collections.abc import Collection

from spark_cursor_source.consumer.lost_members import LostMembers
from spark_cursor_source.consumer.session import TrackerAddress, TrackerSession
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.marker import MemberLost
from spark_cursor_source.core.offsets import OffsetSet

CELL = Cell(subscription="s", topic="t", partition=0)
TRACKER = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=60_000)


class Cursors:
    """The cursor of one cell, whose owner is ``me``, with a lease of each of these runs."""

    def __init__(self, *runs: str, owner: str = "me", left: Collection[str] = ()) -> None:
        leases = [
            (Lease(60_000, 1, run, 0, False, run in left), OffsetSet.of((n, n + 1)))
            for n, run in enumerate(runs)
        ]
        self._cursor = CursorSnapshot(
            cell=CELL, read_position=9, next_marker=9, owner=owner, leases=tuple(leases)
        )

    def refresh(self) -> bool:
        return True

    def get(self, cell: Cell) -> CursorSnapshot | None:
        return self._cursor if cell == CELL else None


def looks(cursors: Cursors, *looks: Collection[str]) -> list[list[str]]:
    """The runs that are told to the tracker at each look; a look sees these members in the group."""
    written: list[MemberLost] = []
    members: list[Collection[str]] = [()]
    session = TrackerSession("me", TRACKER, cursors, lambda markers: None)
    lost = LostMembers(cursors, session, lambda: members[0], written.extend, look_ms=0)
    told = []
    for seen in looks:
        members[0] = seen
        lost.look([CELL])
        assert all(marker.run_id == "me" for marker in written)
        told.append([marker.lost_run_id for marker in written])
        written.clear()
    return told


def test_runs_whose_member_is_gone_are_told_once() -> None:
    cursors = Cursors("me", "gone", "gone.2", "here")
    assert looks(cursors, {"me", "here"}, {"me", "here"}) == [["gone", "gone.2"], []]


def test_a_member_that_leaves_later_is_told_then() -> None:
    assert looks(Cursors("here"), {"me", "here"}, {"me"}) == [[], ["here"]]


def test_earlier_run_ids_of_living_members_are_not_lost() -> None:
    assert looks(Cursors("me.1", "here.12"), {"me", "here"}) == [[]]


def test_nobody_is_lost_where_the_group_cannot_be_seen() -> None:
    assert looks(Cursors("gone"), (), {"here"}) == [[], []]


def test_nothing_is_said_before_the_tracker_knows_the_owner() -> None:
    assert looks(Cursors("gone", owner="gone"), {"me"}) == [[]]


def test_messages_that_were_left_to_another_job_are_not_of_a_lost_member() -> None:
    assert looks(Cursors("gone", left={"gone"}), {"me"}) == [[]]
