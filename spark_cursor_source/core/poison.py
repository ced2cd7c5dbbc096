"""Which messages are planned apart, because one of them may be what kills the process.

A message that takes its process along gets no chance to say so: the whole batch dies with it. So messages
whose last delivery ended with the death of its run are suspects. At the last delivery but one they go in
groups of about the square root of their number. At the last delivery each goes alone. Suspects that come to
their last delivery without having been in such a group go in one first, and get one delivery more after the
death of their group. So a death costs about twice the square root of the batch's size in batches, and a
poison message dead-letters itself only.

With ``maxDeliveries`` 1 nothing is told apart: all that a dying process held has had its only delivery.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_cursor_source.core.offsets import OffsetSet, isqrt_ceil

UNLIMITED_SUSPECT_DELIVERIES = 5  #: where there is no limit, suspects part at this delivery all the same
MAX_ANNOUNCED = 16_384  #: offsets in one redelivery record


def max_group_size(
    next_delivery: int, *, max_deliveries: int | None, suspects: int, grouped: bool = False
) -> int | None:
    """How many suspects may share a batch in their next delivery; None: any number, with others.

    ``grouped`` ones died in a group of suspects already.

    >>> [max_group_size(n, max_deliveries=5, suspects=10_000) for n in (2, 3, 4, 5)]
    [None, None, 100, 100]
    >>> max_group_size(5, max_deliveries=5, suspects=100, grouped=True)
    1
    """
    left = (max_deliveries or UNLIMITED_SUSPECT_DELIVERIES) - next_delivery
    if left > 1:
        return None
    group = max(isqrt_ceil(suspects), 1)
    # Groups of few save no batch, and would cost the limit one delivery more.
    if left < 1 and (grouped or suspects <= 2 * group):
        return 1
    return group


def isolation_groups(
    offsets: OffsetSet, delivery_count: int, *, died: bool, max_deliveries: int | None, grouped: bool = False
) -> Iterator[tuple[OffsetSet, bool]]:
    """The groups in which available messages are announced, and whether each is to be planned alone."""
    most = None
    if died:
        most = max_group_size(
            delivery_count + 1, max_deliveries=max_deliveries, suspects=len(offsets), grouped=grouped
        )
    for group in offsets.chunks(MAX_ANNOUNCED if most is None else min(most, MAX_ANNOUNCED)):
        yield group, most is not None
