"""First delivery times of the messages of a cell, in compact form.

First deliveries follow the order of offsets. Their time is a step function of the offset, with one step per
batch.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter

MOST_STEPS = 100  #: limit of steps; beyond it, the steps that are nearest in time are merged


@dataclass(frozen=True, slots=True)
class FirstDeliveries:
    """Broker times of first deliveries, each with the offset where it begins to apply.

    >>> known = UNKNOWN.then(10, 1_000).then(20, 2_000)
    >>> [known.at(offset) for offset in (9, 10, 19, 20, 10**9)]
    [None, 1000, 1000, 2000, 2000]
    >>> known.since(25).steps, known.since(None).steps
    (((20, 2000),), ())
    """

    steps: tuple[tuple[int, int], ...] = ()  #: (first offset, broker ms; 0: unknown), ascending

    def then(self, offset: int, at_ms: int) -> FirstDeliveries:
        """Returns a copy in which every offset from ``offset`` on was first delivered at ``at_ms``."""
        before = tuple(step for step in self.steps if step[0] < offset)
        if at_ms == (before[-1][1] if before else 0):
            return FirstDeliveries(before)
        steps = (*before, (offset, at_ms))
        if len(steps) > MOST_STEPS:
            spans = [abs(later[1] - earlier[1]) for earlier, later in itertools.pairwise(steps)]
            nearest = spans.index(min(spans)) + 1
            steps = steps[:nearest] + steps[nearest + 1 :]
        return FirstDeliveries(steps)

    def since(self, offset: int | None) -> FirstDeliveries:
        """Returns the part for ``offset`` and later offsets; for None, an empty part."""
        if offset is None or not self.steps:
            return UNKNOWN
        return FirstDeliveries(self.steps[max(self._place(offset), 0) :])

    def at(self, offset: int) -> int | None:
        """Returns the first delivery time of this offset in broker ms, or None if unknown."""
        place = self._place(offset)
        return self.steps[place][1] or None if place >= 0 else None

    def _place(self, offset: int) -> int:
        return bisect_right(self.steps, offset, key=itemgetter(0)) - 1


UNKNOWN = FirstDeliveries()  #: no first delivery time is known
