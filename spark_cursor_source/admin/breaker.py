"""Operator command that closes a breaker and retries held dead letters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from spark_cursor_source.core.marker import CloseBreaker
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.topics.cursors import CursorTable, tracked_here
from spark_cursor_source.topics.markers import MarkerSender

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
        UnknownSubscription: the tracker has no cursor of the subscription.
        TrackedElsewhere: the tracker of another markers topic has the subscription.
        MarkersNotDurable: the markers are not confirmed, so the tracker may not receive them.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    with closing(CursorTable(client_config(kafka, "consumer"), cursors_topic)) as cursors:
        cursors.refresh_until(lambda: cursors.of(subscription=subscription, topic=topic))
        cells = tracked_here(cursors.of(subscription=subscription, topic=topic), markers_topic)
        if not cells:
            raise cursors.unknown(subscription=subscription, topic=topic)
    partitions = topics.describe([markers_topic])[markers_topic].partitions
    with closing(MarkerSender(client_config(kafka, "producer"), markers_topic, partitions)) as sender:
        sender.send(CloseBreaker(cell=cell) for cell in cells)
        sender.flush()
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
