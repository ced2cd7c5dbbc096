"""The operator's word that a breaker closes, and that held dead letters are tried again."""

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
    """On how many partitions of a subscription something was to be done."""

    opened: int  #: the breaker was open there, and closes
    retried: int  #: there are dead letters that could not be written, and they are tried again


def close_breaker(
    kafka: Mapping[str, str],
    subscription: str,
    topic: str | None = None,
    *,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> ClosedBreakers:
    """Close the breaker of a subscription, on one topic or on all, and try its held dead letters again.

    What the breaker held is in the dead letters with the tracker's next batch, leases run out again, and
    dead letters are counted from nothing. Dead letters that could not be written are tried at once. Nothing
    happens where there are none and the breaker is closed. ``kafka`` are options of the Kafka clients.

    Raises:
        UnknownSubscription: the tracker has no cursor of it.
        TrackedElsewhere: another markers topic's tracker has it.
        MarkersNotDurable: the tracker may not have been told.
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
    # All are told, also those whose breaker has opened since; the counts are of the cursors that were read.
    resumed = ClosedBreakers(
        opened=sum(cursor.breaker.is_open for cursor in cells.values()),
        retried=sum(cursor.trouble is not None for cursor in cells.values()),
    )
    log.info(
        "breaker_resumed subscription=%s partitions=%d retried=%d",
        subscription,
        resumed.opened,
        resumed.retried,
    )
    return resumed
