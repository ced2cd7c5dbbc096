"""Reaction of a reader to messages that were deleted from the queue topic."""

from __future__ import annotations

import logging

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import DataLoss, QueueTopicEndsEarlier

log = logging.getLogger(__name__)


def report_loss(topic: str, partition: int, offsets: OffsetSet, *, fail: bool) -> None:
    """Report deleted messages in the log or as an error.

    Raises:
        DataLoss: ``fail`` is true.
    """
    first, last = offsets.first, offsets.last
    ranges = f"{first} to {last} ({len(offsets)} of them)"
    if fail:
        raise DataLoss(topic, partition, ranges, "retention or a truncation removed them")
    log.warning(
        "Unacknowledged messages are no longer in the queue topic. event=data_loss topic=%s "
        "partition=%d offsets=%s",
        topic,
        partition,
        ranges,
    )


def report_truncation(lost: QueueTopicEndsEarlier, *, fail: bool) -> None:
    """Report records that a queue topic has lost at its end, in the log or as an error.

    Raises:
        QueueTopicEndsEarlier: ``fail`` is true.
    """
    if fail:
        raise lost
    log.warning(
        "The queue topic ends before the position of the subscription. event=queue_ends_earlier why=%s", lost
    )
