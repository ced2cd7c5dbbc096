"""Leases of dead runs, if the source acks for the sink (``ackMode`` batch or cumulative).

A run may die after Spark has committed its last batch and before the source has acked the messages of that
batch. The next run acks them. It acks only the batches that *this* checkpoint knows as committed: a lost or
old checkpoint does not know the last batches, and acking their messages would lose them.
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
    """Leases of dead runs at the start of a run."""

    committed: Mapping[Cell, OffsetSet]  #: messages leased by dead runs, in batches that Spark has committed
    unsure: frozenset[Cell]  #: cells with other outstanding messages, which a cumulative ack would end


def orphaned_leases(
    cursors: Mapping[Cell, CursorSnapshot],
    *,
    run_id: str,
    end: SourceOffset | None,
    later: Iterable[Redeliver],
    replayed: Mapping[Cell, OffsetSet],
    delivered: Mapping[Cell, OffsetSet],
) -> OrphanedLeases:
    """Returns the leases of dead runs, by the cursors at the start of this run.

    ``end`` is the end of the batches that Spark has committed, None without a checkpoint. ``later`` are the
    announcements after ``end``: batches unknown to this checkpoint took their messages. ``replayed`` messages
    are left to their replayed batch. ``delivered`` messages belong to this run.
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
        others = cursor.outstanding - cursor.leased  # delayed, available, or held dead letters
        if (dead | others) - known - delivered.get(cell, EMPTY):
            unsure.add(cell)
    return OrphanedLeases(committed=committed, unsure=frozenset(unsure))
