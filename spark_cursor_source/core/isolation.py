"""Which messages are planned apart, because one of them may be what kills the process.

A message that takes its process along gets no chance to say so: the whole batch dies with it. So messages
whose last delivery ended with the death of its run are suspects, and the nearer they come to their last
delivery the smaller the company: at the last but one, groups of about the square root of their number; at
the last, each alone. A poison message among ten thousand then costs about two hundred batches and
dead-letters itself only.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_cursor_source.core.offsets import OffsetSet, isqrt_ceil

UNLIMITED_SUSPECT_DELIVERIES = 5  #: where there is no limit, suspects part at this delivery all the same
MAX_ANNOUNCED = 16_384  #: offsets in one redelivery record: what a planner takes at least


def company(next_delivery: int, *, max_deliveries: int | None, suspects: int) -> int | None:
    """How many suspects may share a batch in their next delivery; None: any number, with others.

    >>> [company(n, max_deliveries=5, suspects=10_000) for n in (2, 3, 4, 5)]
    [None, None, 100, 1]
    """
    left = (max_deliveries or UNLIMITED_SUSPECT_DELIVERIES) - next_delivery
    if left <= 0:
        return 1
    return max(isqrt_ceil(suspects), 1) if left == 1 and next_delivery > 2 else None


def isolation_groups(
    offsets: OffsetSet, delivery_count: int, *, died: bool, max_deliveries: int | None
) -> Iterator[tuple[OffsetSet, bool]]:
    """The groups in which available messages are announced, and whether each is to be planned alone."""
    most = None
    if died:
        most = company(delivery_count + 1, max_deliveries=max_deliveries, suspects=len(offsets))
    for group in offsets.chunks(MAX_ANNOUNCED if most is None else min(most, MAX_ANNOUNCED)):
        yield group, most is not None
