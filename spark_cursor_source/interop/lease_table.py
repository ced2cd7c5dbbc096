"""Leases of single messages, in columns: the state behind the markers of kafka-mq-go (V1) and of kmq.

Their rules, one line each; a message is open from its first Start to its End:

===========  =======================================================================================
not open     + Start -> open, at the Start's place in the log · KeepAlive or End -> ignored
open         + Start or KeepAlive -> its deadline moves, its place does not · + End -> not open
             + now > deadline -> due: appended to the queue topic again, and not open any more
===========  =======================================================================================

There are no positions and no order between queues, as there: a Start opens whatever it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from spark_cursor_source.core.marker import MAX_LEASE_MS

START, END, KEEP_ALIVE = 0, 1, 2  #: kinds of markers, numbered as kafka-mq-go does
_OPEN = 3  # a lease that is in the table, among the markers that come after it

Column = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MessageMarkers:
    """Markers of one message each, all of one markers partition, in the order of its log."""

    sequences: Column  #: their own offsets, ascending
    at_ms: Column  #: when the broker appended them
    kinds: Column  #: START, END or KEEP_ALIVE
    partitions: Column  #: of the queue topic
    offsets: Column  #: of the message
    leases_ms: Column  #: of Starts and KeepAlives; cut to 12 h

    def __len__(self) -> int:
        return len(self.sequences)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, int, int]]) -> MessageMarkers:
        """Markers of rows (sequence, at_ms, kind, partition, offset, lease_ms)."""
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        return cls(**{field.name: columns[at] for at, field in enumerate(fields(cls))})

    @classmethod
    def concatenated(cls, parts: Sequence[MessageMarkers]) -> MessageMarkers:
        """The markers of all the parts, each of which comes after the one before."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})

    def __getitem__(self, rows: slice | npt.NDArray[np.intp]) -> MessageMarkers:
        return MessageMarkers(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def sorted(self) -> MessageMarkers:
        """In the order of the log, where they were put together out of it."""
        if (self.sequences[1:] > self.sequences[:-1]).all():
            return self
        return self[np.argsort(self.sequences, kind="stable")]

    def starting_at(self, sequence: int) -> MessageMarkers:
        """Those from a place in the log on."""
        return self[int(np.searchsorted(self.sequences, sequence)) :]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeaseTable:
    """The open messages of one markers partition; a new one is ``LeaseTable.resume(None)``.

    >>> table = LeaseTable.resume(None).apply(
    ...     MessageMarkers.of([(7, 0, START, 0, 40, 30_000), (8, 5, START, 0, 41, 10_000)]))
    >>> table.commit_position, table.next_event_ms
    (7, 10005)
    >>> due, left = table.expire(20_000)
    >>> due.offsets.tolist(), left.offsets.tolist()
    ([41], [40])
    """

    next_marker: int  #: the first marker that is not in the table
    partitions: Column  #: of the queue topic; rows are in the order of (partition, offset)
    offsets: Column
    deadlines_ms: Column  #: in broker time
    starts: Column  #: where in the markers partition the Start is

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def resume(cls, table: LeaseTable | None) -> LeaseTable:
        """The table as it was; an empty one if there is none."""
        if table is not None:
            return table
        none = np.empty(0, np.int64)
        return cls(next_marker=0, partitions=none, offsets=none, deadlines_ms=none, starts=none)

    @property
    def commit_position(self) -> int:
        """The first marker that a tracker without a state would have to read: kafka-mq-go commits it."""
        return int(self.starts.min()) if len(self) else self.next_marker

    @property
    def next_event_ms(self) -> int | None:
        """The first deadline."""
        return int(self.deadlines_ms.min()) if len(self) else None

    def apply(self, markers: MessageMarkers) -> LeaseTable:
        """The table after these markers; those that are in it already are passed over."""
        markers = markers.starting_at(self.next_marker)
        if not len(markers):
            return self
        partitions = np.concatenate([self.partitions, markers.partitions])
        offsets = np.concatenate([self.offsets, markers.offsets])
        # Stable: within a message the log's order stays, and its open lease comes first.
        order = np.lexsort((offsets, partitions))
        partitions, offsets = partitions[order], offsets[order]
        kinds = np.concatenate([np.full(len(self), _OPEN), markers.kinds])[order]
        deadlines = np.concatenate(
            [self.deadlines_ms, markers.at_ms + np.minimum(markers.leases_ms, MAX_LEASE_MS)]
        )[order]
        starts = np.concatenate([self.starts, markers.sequences])[order]
        firsts, lasts = _lives(partitions, offsets, kinds)
        places = np.arange(len(kinds))
        opening = np.where((kinds == START) | (kinds == _OPEN), places, len(places))
        opened_at = np.minimum.reduceat(opening, firsts)
        is_open = (opened_at <= lasts) & (kinds[lasts] != END)
        opened_at, lasts = opened_at[is_open], lasts[is_open]
        return LeaseTable(
            next_marker=int(markers.sequences[-1]) + 1,
            partitions=partitions[lasts],
            offsets=offsets[lasts],
            deadlines_ms=deadlines[lasts],
            starts=starts[opened_at],
        )

    def expire(self, now_ms: int, *, most: int | None = None) -> tuple[LeaseTable, LeaseTable]:
        """The leases that are over, in the order of their deadlines and at most so many; and the rest.

        A deadline has passed when now is *after* it.
        """
        over = np.flatnonzero(self.deadlines_ms < now_ms)
        due = over[np.argsort(self.deadlines_ms[over], kind="stable")][:most]
        if not len(due):
            return self._rows(due), self
        left = np.ones(len(self), bool)
        left[due] = False
        return self._rows(due), self._rows(np.flatnonzero(left))

    def _rows(self, places: npt.NDArray[np.intp]) -> LeaseTable:
        return LeaseTable(
            next_marker=self.next_marker,
            partitions=self.partitions[places],
            offsets=self.offsets[places],
            deadlines_ms=self.deadlines_ms[places],
            starts=self.starts[places],
        )


def _lives(
    partitions: Column, offsets: Column, kinds: Column
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The first and last row of each life: a message's markers up to an End, or to its last one."""
    ends_life = np.ones(len(kinds), bool)
    ends_life[:-1] = (partitions[1:] != partitions[:-1]) | (offsets[1:] != offsets[:-1]) | (kinds[:-1] == END)
    lasts = np.flatnonzero(ends_life)
    firsts = np.empty_like(lasts)
    firsts[0], firsts[1:] = 0, lasts[:-1] + 1
    return firsts, lasts
