"""Columnar leases of single messages: the state behind the markers of kafka-mq-go (V1) and kmq.

The rules, in one line each. A message is open from its first Start to its End:

===========  =======================================================================================
not open     + Start -> open, at the Start's place in the log · KeepAlive or End -> ignored
open         + Start or KeepAlive -> its deadline moves, its place does not · + End -> not open
             + now > deadline -> due: appended to the queue topic again, and not open any more
===========  =======================================================================================

As in kafka-mq-go and kmq, the state has no positions and no order between queues: a Start opens any message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from spark_cursor_source.core.marker import MAX_LEASE_MS

START, END, KEEP_ALIVE = 0, 1, 2  #: marker kinds with the numbers of kafka-mq-go
_OPEN = 3  # kind of a lease already in the table, sorted among newer markers

Column = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MessageMarkers:
    """Single-message markers of one markers partition, in log order."""

    sequences: Column  #: offsets of the markers, ascending
    at_ms: Column  #: append time at the broker, in ms
    kinds: Column  #: START, END or KEEP_ALIVE
    partitions: Column  #: partitions of the queue topic
    offsets: Column  #: offsets of the messages
    leases_ms: Column  #: leases of Starts and KeepAlives in ms, limited to 12 h

    def __len__(self) -> int:
        return len(self.sequences)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, int, int]]) -> MessageMarkers:
        """Returns the markers of rows (sequence, at_ms, kind, partition, offset, lease_ms)."""
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        return cls(**{field.name: columns[at] for at, field in enumerate(fields(cls))})

    @classmethod
    def concatenated(cls, parts: Sequence[MessageMarkers]) -> MessageMarkers:
        """Returns the markers of all parts, in the given order."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})

    def __getitem__(self, rows: slice | npt.NDArray[np.intp]) -> MessageMarkers:
        return MessageMarkers(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def sorted(self) -> MessageMarkers:
        """Returns the markers in log order."""
        if (self.sequences[1:] > self.sequences[:-1]).all():
            return self
        return self[np.argsort(self.sequences, kind="stable")]

    def starting_at(self, sequence: int) -> MessageMarkers:
        """Returns the markers from ``sequence`` on."""
        return self[int(np.searchsorted(self.sequences, sequence)) :]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeaseTable:
    """Open messages of one markers partition. ``LeaseTable.resume(None)`` returns an empty table.

    >>> table = LeaseTable.resume(None).apply(
    ...     MessageMarkers.of([(7, 0, START, 0, 40, 30_000), (8, 5, START, 0, 41, 10_000)]))
    >>> table.commit_position, table.next_event_ms
    (7, 10005)
    >>> due, left = table.expire(20_000)
    >>> due.offsets.tolist(), left.offsets.tolist()
    ([41], [40])
    """

    next_marker: int  #: offset of the first marker that is not applied yet
    partitions: Column  #: partitions of the queue topic; rows are ordered by (partition, offset)
    offsets: Column
    deadlines_ms: Column  #: deadlines in broker time
    starts: Column  #: offsets of the Starts in the markers partition

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def resume(cls, table: LeaseTable | None) -> LeaseTable:
        """Returns the given table, or an empty table for None."""
        if table is not None:
            return table
        none = np.empty(0, np.int64)
        return cls(next_marker=0, partitions=none, offsets=none, deadlines_ms=none, starts=none)

    @property
    def commit_position(self) -> int:
        """First marker that a tracker without state has to read. kafka-mq-go commits this offset."""
        return int(self.starts.min()) if len(self) else self.next_marker

    @property
    def next_event_ms(self) -> int | None:
        """The earliest deadline."""
        return int(self.deadlines_ms.min()) if len(self) else None

    def apply(self, markers: MessageMarkers) -> LeaseTable:
        """Returns the table after these markers. Markers that are already applied are skipped."""
        markers = markers.starting_at(self.next_marker)
        if not len(markers):
            return self
        partitions = np.concatenate([self.partitions, markers.partitions])
        offsets = np.concatenate([self.offsets, markers.offsets])
        # A stable sort keeps log order within a message, with its open lease first.
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
        """Returns the expired leases, ordered by deadline and at most ``most``, and the remaining table.

        A lease expires when ``now_ms`` is greater than its deadline.
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
    """Returns the first and last row of each life of a message: its markers up to an End or the last one."""
    ends_life = np.ones(len(kinds), bool)
    ends_life[:-1] = (partitions[1:] != partitions[:-1]) | (offsets[1:] != offsets[:-1]) | (kinds[:-1] == END)
    lasts = np.flatnonzero(ends_life)
    firsts = np.empty_like(lasts)
    firsts[0], firsts[1:] = 0, lasts[:-1] + 1
    return firsts, lasts
