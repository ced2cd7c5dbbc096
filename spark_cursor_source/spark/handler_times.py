"""Times of handler calls: measured in the tasks, sent with their acks, and counted on the driver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.metrics.table import BUCKETS, HANDLER
from spark_cursor_source.options.ack import AckAction

HANDLER_COUNTS = Counts()  #: times of the handlers of all queries of this driver

_ACK = AckAction.ACK.value
_BOUNDS = np.array(BUCKETS)
Floats = np.ndarray[Any, np.dtype[np.float64]]


class HandlerTimes:
    """Times of the handler calls of one task by outcome, in the buckets of histograms.

    >>> times = HandlerTimes()
    >>> times.add(["ack", "ack", "release"], [0.002, 0.02, 7.0])
    >>> [(outcome, sum(buckets), total) for outcome, (buckets, total) in json.loads(times.encoded()).items()]
    [('ack', 2, 0.022), ('release', 1, 7.0)]
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[np.ndarray[Any, np.dtype[np.int64]], float]] = {}

    def add(self, outcomes: Sequence[str] | None, seconds: Sequence[float] | Floats) -> None:
        """Adds calls. ``outcomes`` has the action of each call; None: all are acks. Not thread-safe."""
        took: Floats = np.asarray(seconds)
        outcomes = outcomes or [_ACK] * len(took)
        places = np.searchsorted(_BOUNDS, took)
        kinds = set(outcomes)
        for kind in sorted(kinds):
            own = np.array([one == kind for one in outcomes]) if len(kinds) > 1 else np.ones(len(took), bool)
            buckets, total = self._of.get(kind, (np.zeros(len(BUCKETS) + 1, np.int64), 0.0))
            counted = buckets + np.bincount(places[own], minlength=len(BUCKETS) + 1)
            self._of[kind] = counted, total + float(took[own].sum())

    def encoded(self) -> str:
        """Returns the times as JSON, for :func:`count_handler_times`."""
        return json.dumps({kind: (buckets.tolist(), total) for kind, (buckets, total) in self._of.items()})


def count_handler_times(subscription: str, encoded: str) -> None:
    """Adds the times of a task to the counts of this process."""
    for kind, (buckets, total) in json.loads(encoded).items():
        found = {place: times for place, times in enumerate(buckets) if times}
        HANDLER_COUNTS.merge(HANDLER, subscription, kind, buckets=found, total=total)
