"""Leases of members that have left the consumer group (option onMemberLost)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from spark_cursor_source.consumer.session import Cursors, TrackerSession
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import MemberLost
from spark_cursor_source.kafka.deadline import Pace

log = logging.getLogger(__name__)
_LOOK_MS = 500  # poll interval; a member that died is in the group until its session times out


class LostMembers:
    """Ends the leases of runs that are not in the consumer group any more.

    The owner of a cell looks at the leases of other runs in its cursor. The tracker has read all markers of
    the run before when the owner reads the cell, so that the leases of that run are in the cursor.
    """

    def __init__(
        self,
        cursors: Cursors,
        session: TrackerSession,
        living: Callable[[], Collection[str]],
        write: Callable[[Sequence[MemberLost]], object],
        *,
        look_ms: int = _LOOK_MS,
    ) -> None:
        """``living`` returns the query ids of the group's members, and no ids if the group is not known."""
        self._cursors, self._session, self._living, self._write = cursors, session, living, write
        self._look = Pace(look_ms)
        self._told: dict[Cell, frozenset[str]] = {}  # runs whose leases this run has ended

    def look(self, cells: Iterable[Cell]) -> None:
        """Ends the leases of lost members in the cells that this run owns. Does so at intervals.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if not self._look.is_time():
            return
        others = {cell: runs for cell in cells if (runs := self._new_runs(cell))}
        if not others:
            return
        living = self._living()
        if self._session.run_id not in living:
            return  # amid a rebalance, or without the right to see the group
        lost = {
            cell: gone
            for cell, runs in others.items()
            if (gone := frozenset(run for run in runs if not _is_of(run, living)))
        }
        if not lost:
            return
        markers = [
            MemberLost(cell=cell, run_id=self._session.id_of(cell), lost_run_id=run)
            for cell, runs in lost.items()
            for run in sorted(runs)
        ]
        self._write(markers)
        for cell, runs in lost.items():
            self._told[cell] = self._told.get(cell, frozenset()) | runs
        log.info(
            "Members have left the consumer group. What they had leased is released. "
            "event=members_lost run=%s cells=%d members=%d",
            self._session.run_id,
            len(lost),
            len(frozenset().union(*lost.values())),
        )

    def _new_runs(self, cell: Cell) -> frozenset[str]:
        """Returns the other runs with leases in the cell, without those that were told to the tracker."""
        own, cursor = self._session.id_of(cell), self._cursors.get(cell)
        if cursor is None or cursor.owner != own:
            return frozenset()
        runs = _holders(cursor) - {own}
        told = self._told.pop(cell, frozenset()) & runs
        if told:
            self._told[cell] = told
        return runs - told


def _holders(cursor: CursorSnapshot) -> frozenset[str]:
    return frozenset(lease.run_id for lease, _ in cursor.leases if lease.run_id and not lease.left)


def _is_of(run_id: str, living: Collection[str]) -> bool:
    """True if a living member has this run id, or has had it before a rebalance (``<query id>.<number>``)."""
    return run_id in living or run_id.rpartition(".")[0] in living
