"""Operator command that closes a breaker and retries held dead letters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from spark_cursor_source.admin.tracker_channel import open_channel
from spark_cursor_source.core.marker import CloseBreaker
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC

log = logging.getLogger(__name__)


class ClosedBreakers(NamedTuple):
    """Counts of affected partitions of a subscription."""

    opened: int  #: partitions whose breaker was open and closes
    retried: int  #: partitions with dead letters that could not be written and are retried


def close_breaker(
    kafka: Mapping[str, str],
    subscription: str,
    topic: str | None = None,
    *,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> ClosedBreakers:
    """Closes the breaker of a subscription, on one topic or on all, and retries its held dead letters.

    The tracker's next batch writes the dead letters that the breaker held. Leases expire again, and the
    breaker's dead-letter count restarts at zero. Dead letters that could not be written are retried
    immediately. The call has no effect if the breaker is closed and no dead letters wait. ``kafka`` contains
    options of the Kafka clients.

    Raises:
        InvalidArgument: ``subscription`` is not a text. None does not stand for all subscriptions.
        UnknownSubscription: the tracker has no cursor of the subscription.
        TrackedElsewhere: the tracker of another markers topic has the subscription.
        MarkersNotDurable: the markers are not confirmed, so the tracker may not receive them.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    channel = open_channel(kafka, markers_topic=markers_topic, cursors_topic=cursors_topic)
    with closing(channel) as tracker:
        cells = tracker.known(subscription, topic)
        tracker.send([CloseBreaker(cell=cell) for cell in cells], what="close the breaker")
    # Every cell gets the marker, because a breaker may have opened since the read. The counts refer to the
    # cursors that were read.
    resumed = ClosedBreakers(
        opened=sum(cursor.breaker.is_open for cursor in cells.values()),
        retried=sum(cursor.trouble is not None for cursor in cells.values()),
    )
    log.info(
        "The operator closed the breaker. event=breaker_close_requested subscription=%s "
        "partitions=%d retried=%d",
        subscription,
        resumed.opened,
        resumed.retried,
    )
    return resumed
