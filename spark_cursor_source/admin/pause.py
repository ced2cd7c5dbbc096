"""Pause of a subscription, and its end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from spark_cursor_source.admin.tracker_channel import TRACKER_TIMEOUT_MS, open_channel
from spark_cursor_source.core.marker import CloseBreaker, EndPause, Marker, Pause
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.errors import CommandNotTaken

log = logging.getLogger(__name__)


class Paused(NamedTuple):
    """Counts of partitions of a pause."""

    paused: int  #: partitions that are paused now
    before: int  #: those of them that were paused before


class Resumed(NamedTuple):
    """Counts of affected partitions of a subscription."""

    paused: int  #: partitions that were paused and are read again
    opened: int  #: partitions whose breaker was open and closes
    retried: int  #: partitions with dead letters that could not be written and are retried
    unread: int = 0  #: other partitions whose markers the tracker has yet to read; a pause among them ends


def pause_subscription(
    kafka: Mapping[str, str],
    subscription: str,
    topic: str | None = None,
    *,
    author: str | None = None,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    tracker_timeout_ms: int = TRACKER_TIMEOUT_MS,
) -> Paused:
    """Pauses a subscription, on one topic or on all: its consumers lease no message until it is resumed.

    Running queries and clients follow within two seconds after the call returns. What they have leased by
    then is processed and acked as usual. Leases run on, so messages of a dead consumer become available and
    wait. Batches that a query had planned when it stopped are replayed in a pause too. Seeks, skips and acks
    work in a pause. ``author`` is who acts, for :func:`read_audit`; None: this user and host.

    A subscription of kafka-mq-go (``redelivery=reappend``) has no cursor and cannot be paused.

    Example::

        from spark_cursor_source.admin import pause_subscription, resume_subscription

        kafka = {"bootstrap.servers": "broker:9092"}
        print(pause_subscription(kafka, "billing", "orders"))  # Paused(paused=2, before=0)
        print(resume_subscription(kafka, "billing", "orders"))

    Raises:
        InvalidArgument: ``subscription`` is not a text. None does not stand for all subscriptions.
        UnknownSubscription: the tracker has no cursor of the subscription.
        TrackedElsewhere: the tracker of another markers topic has the subscription.
        CommandNotTaken: the tracker is of an earlier version.
        CommandWaits: no tracker has read the command in time; it takes effect when a tracker runs.
        MarkersNotDurable, TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    channel = open_channel(
        kafka,
        markers_topic=markers_topic,
        cursors_topic=cursors_topic,
        timeout_ms=tracker_timeout_ms,
        author=author,
    )
    with closing(channel) as tracker:
        cursors = tracker.known(subscription, topic)
        answers = tracker.tell([Pause(cell=cell) for cell in cursors], what="pause")
    paused = sum(one is not None and one.paused_ms is not None for one in answers.values())
    if not paused:
        raise CommandNotTaken("pause", subscription)
    log.info(
        "The operator paused the subscription. event=pause_requested subscription=%s partitions=%d",
        subscription,
        paused,
    )
    return Paused(paused, sum(one.paused_ms is not None for one in cursors.values()))


def resume_subscription(
    kafka: Mapping[str, str],
    subscription: str,
    topic: str | None = None,
    *,
    author: str | None = None,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> Resumed:
    """Ends whatever holds a subscription up, on one topic or on all: a pause, a breaker, failed dead letters.

    Consumers lease messages again within a few seconds. An open breaker closes: the tracker's next batch
    writes the dead letters that it held, leases expire again, and its count restarts at zero. Dead letters
    that could not be written are retried immediately. The call does not wait for the tracker, and has no
    effect if nothing holds the subscription up. It also ends a pause that still waits for a tracker.

    Raises:
        InvalidArgument: ``subscription`` is not a text. None does not stand for all subscriptions.
        UnknownSubscription: the tracker has no cursor of the subscription.
        TrackedElsewhere: the tracker of another markers topic has the subscription.
        MarkersNotDurable: the markers are not confirmed, so the tracker may not receive them.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    channel = open_channel(kafka, markers_topic=markers_topic, cursors_topic=cursors_topic, author=author)
    with closing(channel) as tracker:
        # Read before the cursors: what the tracker has read by then, they show.
        unread_partitions = tracker.unread_partitions()
        cells = tracker.known(subscription, topic)
        # Every cell gets a CloseBreaker, because a breaker may have opened since the read. An older tracker
        # does not know EndPause, so only cells get one that are paused, or for which a Pause may wait.
        paused = [cell for cell, cursor in cells.items() if cursor.paused_ms is not None]
        unread = [
            cell
            for cell, cursor in cells.items()
            if cursor.paused_ms is None and cursor.markers_partition in unread_partitions
        ]
        markers: list[Marker] = [CloseBreaker(cell=cell) for cell in cells]
        markers += [EndPause(cell=cell) for cell in (*paused, *unread)]
        tracker.send(markers, what="resume")
    # The counts refer to the cursors that were read.
    resumed = Resumed(
        paused=len(paused),
        opened=sum(cursor.breaker.is_open for cursor in cells.values()),
        retried=sum(cursor.trouble is not None for cursor in cells.values()),
        unread=len(unread),
    )
    log.info(
        "The operator resumed the subscription. event=resume_requested subscription=%s paused=%d "
        "breakers=%d retried=%d unread=%d",
        subscription,
        *resumed,
    )
    return resumed
