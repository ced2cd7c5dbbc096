"""Limits of a subscription that its consumers obey while they run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from numbers import Integral
from typing import Final, Literal, NamedTuple

from spark_cursor_source.admin.tracker_channel import TRACKER_TIMEOUT_MS, open_channel
from spark_cursor_source.core.limits import NO_LIMITS, Limits, strictest
from spark_cursor_source.core.marker import SetLimits
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.errors import CommandNotTaken, InvalidArgument
from spark_cursor_source.options.arguments import check_is_number

log = logging.getLogger(__name__)

Keep = Literal["keep"]
KEEP: Final = "keep"  #: the limit stays as it is


class Limited(NamedTuple):
    """Limits of a subscription."""

    rate: float | None  #: messages per second; None: no limit
    max_outstanding: int | None  #: outstanding messages; None: no limit
    partitions: int  #: partitions whose tracker knows the limits


def limit_subscription(
    kafka: Mapping[str, str],
    subscription: str,
    *,
    rate: float | Keep | None = KEEP,
    max_outstanding: int | Keep | None = KEEP,
    author: str | None = None,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    tracker_timeout_ms: int = TRACKER_TIMEOUT_MS,
) -> Limited:
    """Sets the limits of a subscription, which hold until they are changed (Pulsar's dispatch rate).

    ``rate`` is the number of messages that its queries and clients start per second, redeliveries included.
    ``max_outstanding`` is the number of outstanding messages at which they start no new message. None removes
    a limit, ``"keep"`` leaves it as it is. A query obeys the smaller of the limit and its own option
    ``maxOutstanding``. Running queries and clients follow within two seconds after the call returns.

    The limits are for the subscription on all its topics. Consumers that share it divide them by the number
    of their partitions, and what one does not use is not used by others. ``author`` is who acts, for
    :func:`read_audit`; None: this user and host.

    Example::

        from spark_cursor_source.admin import limit_subscription

        kafka = {"bootstrap.servers": "broker:9092"}
        print(limit_subscription(kafka, "billing", rate=100))
        # Limited(rate=100.0, max_outstanding=None, partitions=2)
        print(limit_subscription(kafka, "billing", rate=None))

    Raises:
        InvalidArgument: no limit is given, or one is out of bounds. The rate is from 0.001 to 1,000,000,000,
            the number of outstanding messages from 1. To stop a subscription, pause it. Also if
            ``subscription`` is not a text.
        UnknownSubscription: the tracker has no cursor of the subscription.
        TrackedElsewhere: the tracker of another markers topic has the subscription.
        TrackerBehind: one of the limits is to stay as it is, and the tracker has not read the earlier
            commands in time. Nothing was changed.
        CommandNotTaken: the tracker is of an earlier version.
        CommandWaits: no tracker has read the command in time; it takes effect when a tracker runs.
        MarkersNotDurable, TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    _check(rate, max_outstanding)
    channel = open_channel(
        kafka,
        markers_topic=markers_topic,
        cursors_topic=cursors_topic,
        timeout_ms=tracker_timeout_ms,
        author=author,
    )
    with closing(channel) as tracker:
        cursors = tracker.known(subscription)
        if KEEP in (rate, max_outstanding):
            # A command that still waits may change the limit that is to stay as it is.
            tracker.catch_up(cursors)
            cursors = tracker.known(subscription)
        # Partitions that are new since the last command have no limits yet.
        before = strictest(cursor.limits for cursor in cursors.values())
        limits = Limits(
            rate=before.rate if rate == KEEP else None if rate is None else float(rate),
            max_outstanding=before.max_outstanding if max_outstanding == KEEP else max_outstanding,
        )
        what = "remove the limits" if limits == NO_LIMITS else f"limit to {limits.words()}"
        markers = [SetLimits(cell=cell, limits=limits) for cell in cursors]
        answers = tracker.tell(markers, what=what)
    known = sum(one is not None and one.limits == limits for one in answers.values())
    if not known:
        raise CommandNotTaken("limit", subscription)
    log.info(
        "The operator has set the limits of the subscription. "
        "event=limits_requested subscription=%s rate=%s max_outstanding=%s partitions=%d",
        subscription,
        limits.rate,
        limits.max_outstanding,
        known,
    )
    return Limited(limits.rate, limits.max_outstanding, known)


def rate_of(text: str) -> float | None:
    """Returns the rate that an operator has typed; None: no limit.

    >>> rate_of("0.5"), rate_of("none"), rate_of(" ")
    (0.5, None, None)

    Raises:
        InvalidArgument: it is no number.
    """
    try:
        return None if _is_none(text) else float(text)
    except ValueError:
        raise InvalidArgument("rate", text, "give messages per second, or none") from None


def outstanding_of(text: str) -> int | None:
    """Returns the number of outstanding messages that an operator has typed; None: no limit.

    Raises:
        InvalidArgument: it is no whole number.
    """
    try:
        return None if _is_none(text) else int(text)
    except ValueError:
        raise InvalidArgument("max_outstanding", text, "give a number of messages, or none") from None


def check_limits(limits: Limits) -> None:
    """Checks the limits of a subscription.

    Raises:
        InvalidArgument: one is not a number, or is out of bounds.
    """
    rate, most = limits.rate, limits.max_outstanding
    if rate is not None:
        check_is_number("rate", rate)
    if most is not None:
        check_is_number("max_outstanding", most, kind=Integral, words="a whole number")
    given: tuple[tuple[str, object, Limits], ...] = (
        ("rate", rate, Limits(rate=rate)),
        ("max_outstanding", most, Limits(max_outstanding=most)),
    )
    for name, value, one in given:
        if (why := one.why_invalid) is not None:
            raise InvalidArgument(name, value, f"{why}; to stop a subscription, pause it")


def _is_none(text: str) -> bool:
    return text.strip().lower() in ("", "none")


def _check(rate: float | Keep | None, max_outstanding: int | Keep | None) -> None:
    if rate == KEEP and max_outstanding == KEEP:
        raise InvalidArgument("rate", rate, "give a rate, a number of outstanding messages, or both")
    check_limits(
        Limits(
            rate=None if rate == KEEP else rate,
            max_outstanding=None if max_outstanding == KEEP else max_outstanding,
        )
    )
