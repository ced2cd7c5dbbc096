"""What dead runs left leased, where the source acks for the sink (``ackMode`` batch or cumulative).

A run may die after Spark has committed its last batch and before the source has ended the messages of it: the
next run ends them. But only those of batches that *this* checkpoint knows as committed: one that is lost or
old knows nothing of the last batches, and to end theirs would lose them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.tracker import Redeliver


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedLeases:
    """What a run finds at its beginning."""

    committed: Mapping[Cell, OffsetSet]  #: leased by dead runs, in batches that Spark has committed
    unsure: frozenset[Cell]  #: cells with other outstanding messages: "all up to here" would end them too


def orphaned_leases(
    cursors: Mapping[Cell, CursorSnapshot],
    *,
    run_id: str,
    end: SourceOffset | None,
    later: Iterable[Redeliver],
    replayed: Mapping[Cell, OffsetSet],
    delivered: Mapping[Cell, OffsetSet],
) -> OrphanedLeases:
    """What dead runs left, by the cursors as they were when the run began.

    ``end`` is where the batches end that Spark has committed, None without a checkpoint. ``later`` are the
    announcements after it: what they name was taken by batches that this checkpoint has never seen. A batch
    that was ``replayed`` speaks for all its messages, and this run has those that it ``delivered``.
    """
    announced: dict[Cell, OffsetSet] = {}
    for one in later:
        announced[one.cell] = announced.get(one.cell, EMPTY) | one.offsets
    committed: dict[Cell, OffsetSet] = {}
    unsure = set()
    for cell, cursor in cursors.items():
        dead = OffsetSet.union(offsets for lease, offsets in cursor.leases if lease.run_id != run_id)
        position = 0 if end is None else end.queue.get((cell.topic, cell.partition), 0)
        known = dead.below(position) - announced.get(cell, EMPTY) - replayed.get(cell, EMPTY)
        if known:
            committed[cell] = known
        others = cursor.outstanding - cursor.leased  # they wait, or are dead letters that are held
        if (dead | others) - known - delivered.get(cell, EMPTY):
            unsure.add(cell)
    return OrphanedLeases(committed=committed, unsure=frozenset(unsure))
