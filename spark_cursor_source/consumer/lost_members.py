"""Leases of members that have left the consumer group (option onMemberLost)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from spark_cursor_source.consumer.membership import Membership
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import MemberLost
from spark_cursor_source.kafka.deadline import Pace
from spark_cursor_source.options.source import OnMemberLost
from spark_cursor_source.topics.cursors import CursorTable

log = logging.getLogger(__name__)
_LOOK_MS = 500  # poll interval; a member that died is in the group until its session times out


class LostMembers:
    """Ends the leases of runs that are not in the consumer group any more.

    The owner of a cell looks at the leases of other runs in its cursor. The tracker has read all markers of
    the run before when the owner reads the cell, so that the leases of that run are in the cursor.
    """

    def __init__(
        self,
        cursors: CursorTable,
        session: TrackerSession,
        living: Callable[[], Collection[str]],
        write: Callable[[Sequence[MemberLost]], object],
        *,
        look_ms: int = _LOOK_MS,
    ) -> None:
        """``living`` returns the query ids of the group's members, and no ids if the group is not known."""
        self._cursors, self._session, self._living, self._write = cursors, session, living, write
        self._look = Pace(look_ms)
        self._told: set[tuple[Cell, str]] = set()  # runs whose leases this run has ended, by cell

    @classmethod
    def of(
        cls,
        policy: OnMemberLost,
        cursors: CursorTable,
        session: TrackerSession,
        membership: Membership,
        write: Callable[[Sequence[MemberLost]], object],
    ) -> LostMembers | None:
        """Returns None if leases of lost members run out."""
        if policy is OnMemberLost.LEASE:
            return None
        return cls(cursors, session, membership.living, write)

    def look(self, cells: Iterable[Cell]) -> None:
        """Ends the leases of lost members in the cells that this run owns. Does so at intervals.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if not self._look.is_time():
            return
        present = {(cell, run) for cell in cells for run in self._other_runs(cell)}
        self._told &= present
        if not (new := present - self._told):
            return
        living = self._living()
        if self._session.run_id not in living:
            return  # amid a rebalance, or without the right to see the group
        lost = sorted((cell, run) for cell, run in new if not _is_of(run, living))
        if not lost:
            return
        id_of = self._session.id_of
        self._write([MemberLost(cell=cell, run_id=id_of(cell), lost_run_id=run) for cell, run in lost])
        self._told |= set(lost)
        log.info(
            "Members have left the consumer group. What they had leased is released. "
            "event=members_lost run=%s cells=%d members=%d",
            self._session.run_id,
            len({cell for cell, _ in lost}),
            len({run for _, run in lost}),
        )

    def _other_runs(self, cell: Cell) -> frozenset[str]:
        """Returns the other runs with leases in the cell, if this run owns it."""
        own, cursor = self._session.id_of(cell), self._cursors.get(cell)
        if cursor is None or cursor.owner != own:
            return frozenset()
        return _holders(cursor) - {own}


def _holders(cursor: CursorSnapshot) -> frozenset[str]:
    return frozenset(lease.run_id for lease, _ in cursor.leases if lease.run_id and not lease.left)


def _is_of(run_id: str, living: Collection[str]) -> bool:
    """True if a living member has this run id, or has had it before a rebalance (``<query id>.<number>``)."""
    return run_id in living or run_id.rpartition(".")[0] in living
