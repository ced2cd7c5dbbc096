"""Counts of a tracker without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spark_cursor_source.metrics import table
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.metrics.table import Sample
from spark_cursor_source.tracker.rows import DecidedBatch


class TrackerCounts:
    """Counts of one tracker, over all assignments of its group. It is called once for each batch."""

    def __init__(self) -> None:
        self._counts = Counts()
        self.rescue = Counts()  #: counts of the rescue before retention
        self.is_running = False
        self.partitions: frozenset[int] = frozenset()  #: markers partitions that the tracker has now

    def batch(
        self, decided: DecidedBatch, kinds: Mapping[str, int], *, seconds: float, lag_s: float | None
    ) -> None:
        """Counts a committed batch: its decisions, its markers by type, its duration and its lag.

        ``lag_s`` is None if the batch contains no marker.
        """
        counts = self._counts
        counts.observe(table.TRACKER_TRIGGER, seconds=seconds)
        counts.set(table.TRACKER_LAG, to=lag_s or 0.0)
        for kind, markers in kinds.items():
            counts.add(table.MARKERS, kind, by=markers)
        counts.add(table.QUARANTINED, by=len(decided.quarantined))
        counts.add(table.CURSOR_UPDATES, by=len(decided.cursors))
        for one in decided.dead_letters:
            labels = (one.cell.topic, one.cell.subscription, one.reason)
            counts.add(table.TRACKER_DEAD_LETTERS, *labels, by=len(one.offsets))

    def late(self, seconds: float) -> None:
        """Counts an event that was decided this long after it was due."""
        self._counts.observe(table.LATENESS, seconds=max(seconds, 0.0))

    def idle(self) -> None:
        """Notes that no marker waits."""
        self._counts.set(table.TRACKER_LAG, to=0.0)

    def samples(self) -> Iterator[Sample]:
        """Yields the metrics of the tracker."""
        yield Sample(table.TRACKER_UP, (), self.is_running)
        yield Sample(table.TRACKER_PARTITIONS, (), len(self.partitions))
        yield from self._counts.samples()
        yield from self.rescue.samples()
