"""Counts, gauges and histograms of one process."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator

from spark_cursor_source.metrics.table import BUCKETS, Histogram, Metric, Sample

OTHER = "other"  #: label value that stands for all values above a limit


class Counts:
    """Values of the metrics of one process. Threads may share it.

    Writers call it once for a batch of work, never for each message.

    >>> from spark_cursor_source.metrics.table import MARKERS, TRACKER_TRIGGER
    >>> counts = Counts()
    >>> counts.add(MARKERS, "Start", by=3)
    >>> counts.observe(TRACKER_TRIGGER, seconds=0.2)
    >>> [(one.metric.name, one.labels, one.value) for one in counts.samples()][0]
    ('cursorq_markers_total', ('Start',), 3.0)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[Metric, tuple[str, ...]], float] = {}
        self._histograms: dict[tuple[Metric, tuple[str, ...]], tuple[list[int], float]] = {}

    def add(self, metric: Metric, *labels: str, by: float = 1) -> None:
        """Increases a counter."""
        with self._lock:
            self._values[metric, labels] = self._values.get((metric, labels), 0.0) + by

    def set(self, metric: Metric, *labels: str, to: float) -> None:
        """Sets a gauge."""
        with self._lock:
            self._values[metric, labels] = float(to)

    def observe(self, metric: Metric, *labels: str, seconds: float, times: int = 1) -> None:
        """Adds a value to a histogram, ``times`` times."""
        self.merge(metric, *labels, buckets={bisect_left(BUCKETS, seconds): times}, total=seconds * times)

    def merge(self, metric: Metric, *labels: str, buckets: dict[int, int], total: float) -> None:
        """Adds values to a histogram that are already sorted into its buckets."""
        with self._lock:
            counted, so_far = self._histograms.get((metric, labels), ([0] * (len(BUCKETS) + 1), 0.0))
            for bucket, times in buckets.items():
                counted[bucket] += times
            self._histograms[metric, labels] = counted, so_far + total

    def samples(self) -> Iterator[Sample]:
        """Yields all values, as they are now."""
        with self._lock:
            values = list(self._values.items())
            histograms = [
                (key, Histogram(tuple(buckets), total)) for key, (buckets, total) in self._histograms.items()
            ]
        for (metric, labels), value in values:
            yield Sample(metric, labels, value)
        for (metric, labels), histogram in histograms:
            yield Sample(metric, labels, histogram)


class LimitedLabel:
    """Values of a label, up to a limit. Values above the limit become ``other``.

    >>> queues = LimitedLabel(most=2)
    >>> [queues(name) for name in ("mails", "jobs", "orders", "mails")]
    ['mails', 'jobs', 'other', 'mails']
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, value: str) -> str:
        with self._lock:
            if value not in self._known and len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
            return value
