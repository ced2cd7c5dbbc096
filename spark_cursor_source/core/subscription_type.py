"""Consumer group of a subscription, and the four subscription types of Pulsar."""

from __future__ import annotations

import enum

DEFAULT_GROUP_ID_PREFIX = "cursorq"


class SubscriptionType(enum.StrEnum):
    """Distribution of messages over the queries of a subscription (option subscriptionType), as in Pulsar."""

    EXCLUSIVE = "exclusive"  #: one query; a second query is rejected
    FAILOVER = "failover"  #: one query; a second query is a standby and takes over
    SHARED = "shared"  #: all queries, each with its own partitions
    KEY_SHARED = "key_shared"  #: as SHARED, and one task gets all messages of a key, in order

    @property
    def is_sole(self) -> bool:
        """True if one query has all partitions."""
        return self in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


def group_id(prefix: str, subscription: str) -> str:
    """Returns the consumer group of a subscription.

    >>> group_id("cursorq", "billing")
    'cursorq-billing'
    """
    return f"{prefix}-{subscription}"


def tracker_group(markers_topic: str) -> str:
    """Returns the consumer group of a markers topic's tracker, which is also its transactional id.

    A markers topic has one tracker.

    >>> tracker_group("__cursorq_markers")
    'cursorq-tracker-__cursorq_markers'
    """
    return f"cursorq-tracker-{markers_topic}"


def why_no_group(prefix: str, subscription: str, markers_topic: str) -> str | None:
    """Returns why a subscription cannot have its consumer group, or None if it can.

    >>> why_no_group("cursorq", "billing", "markers")
    >>> why_no_group("cursorq", "tracker-markers", "markers")
    'the consumer group would be cursorq-tracker-markers, which the tracker of this markers topic uses'
    """
    group = group_id(prefix, subscription)
    if group != tracker_group(markers_topic):
        return None
    return f"the consumer group would be {group}, which the tracker of this markers topic uses"
