"""A subscription's consumer group, and who takes part in it: the four types of Pulsar's subscriptions."""

from __future__ import annotations

import enum

DEFAULT_GROUP_ID_PREFIX = "cursorq"


class SubscriptionType(enum.StrEnum):
    """Which queries of a subscription get messages (option subscriptionType); Pulsar's names and meaning."""

    EXCLUSIVE = "exclusive"  #: one; a second one is refused
    FAILOVER = "failover"  #: one; a second one waits and takes over
    SHARED = "shared"  #: all, each its partitions
    KEY_SHARED = "key_shared"  #: the same, and all messages of a key go to one task, in order

    @property
    def is_sole(self) -> bool:
        """Whether one query has all partitions."""
        return self in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


def group_id(prefix: str, subscription: str) -> str:
    """The consumer group of a subscription.

    >>> group_id("cursorq", "billing")
    'cursorq-billing'
    """
    return f"{prefix}-{subscription}"


def tracker_group(markers_topic: str) -> str:
    """The consumer group of the tracker of a markers topic, and its transactional id: there is one tracker.

    >>> tracker_group("__cursorq_markers")
    'cursorq-tracker-__cursorq_markers'
    """
    return f"cursorq-tracker-{markers_topic}"
