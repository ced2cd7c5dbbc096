"""Isolation of messages that may have killed their process.

A message that kills its process cannot be identified, because the whole batch dies with the process. Messages
whose last delivery ended with the death of their run are therefore suspects. In the last delivery but one,
suspects are delivered in groups of about the square root of their number. In the last delivery, each suspect
is delivered alone. Some suspects reach their last delivery without having been in such a group. They are
delivered in a group first, and get one more delivery after the death of that group. One death costs about
twice the square root of the batch size in batches, and a poison message dead-letters only itself.

With ``maxDeliveries`` 1, isolation is impossible: all messages of a dead process have had their only
delivery.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_cursor_source.core.offsets import OffsetSet, isqrt_ceil

UNLIMITED_SUSPECT_DELIVERIES = 5  #: delivery that isolates suspects if no limit is set
MAX_ANNOUNCED = 16_384  #: limit of offsets in one announcement


def max_group_size(
    next_delivery: int, *, max_deliveries: int | None, suspects: int, grouped: bool = False
) -> int | None:
    """Returns how many suspects may share a batch in their next delivery.

    None means no limit, and other messages may join. ``grouped`` suspects have already died in a group of
    suspects.

    >>> [max_group_size(n, max_deliveries=5, suspects=10_000) for n in (2, 3, 4, 5)]
    [None, None, 100, 100]
    >>> max_group_size(5, max_deliveries=5, suspects=100, grouped=True)
    1
    """
    left = (max_deliveries or UNLIMITED_SUSPECT_DELIVERIES) - next_delivery
    if left > 1:
        return None
    group = max(isqrt_ceil(suspects), 1)
    # Small groups save no batches, and would need one delivery more than the limit.
    if left < 1 and (grouped or suspects <= 2 * group):
        return 1
    return group


def isolation_groups(
    offsets: OffsetSet, delivery_count: int, *, died: bool, max_deliveries: int | None, grouped: bool = False
) -> Iterator[tuple[OffsetSet, bool]]:
    """Yields the groups in which available messages are announced, each with True if it is planned alone."""
    most = None
    if died:
        most = max_group_size(
            delivery_count + 1, max_deliveries=max_deliveries, suspects=len(offsets), grouped=grouped
        )
    for group in offsets.chunks(MAX_ANNOUNCED if most is None else min(most, MAX_ANNOUNCED)):
        yield group, most is not None
