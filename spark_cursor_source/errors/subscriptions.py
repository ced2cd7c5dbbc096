"""Subscriptions, and who may have them."""

from __future__ import annotations

from spark_cursor_source.errors.kafka import KafkaFailure
from spark_cursor_source.errors.source import SourceError


class GroupInUse(KafkaFailure):
    """A consumer group whose offsets are to be set has members of its own."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"consumer group '{self.group}' has members, and its offsets belong to them; "
            "end these consumers, or use a subscription of another name"
        )


class UnknownSubscription(KafkaFailure):
    """The tracker knows nothing of the subscription that something is to be done about."""

    def __init__(
        self, subscription: str, topic: str | None, cursors_topic: str, known: tuple[str, ...]
    ) -> None:
        super().__init__(subscription, topic, cursors_topic, known)
        self.subscription, self.topic, self.known = subscription, topic, known
        self.cursors_topic = cursors_topic

    def __str__(self) -> str:
        of_topic = "" if self.topic is None else f" of topic '{self.topic}'"
        known = ", ".join(self.known) or "none"
        return (
            f"cursors topic '{self.cursors_topic}' holds no cursor of subscription '{self.subscription}'"
            f"{of_topic}; it knows {known}: correct the name, or the topic's, or start a query that reads "
            "under it"
        )


class UnknownQueueTopic(KafkaFailure):
    """The tracker knows no subscription of the queue topic that was asked about."""

    def __init__(self, topic: str, cursors_topic: str, known: tuple[str, ...]) -> None:
        super().__init__(topic, cursors_topic, known)
        self.topic, self.cursors_topic, self.known = topic, cursors_topic, known

    def __str__(self) -> str:
        return (
            f"cursors topic '{self.cursors_topic}' holds no cursor of queue topic '{self.topic}'; it knows "
            f"{', '.join(self.known) or 'none'}: correct the name, or start a query that reads the topic"
        )


class TrackedElsewhere(KafkaFailure):
    """The subscription belongs to the tracker of another markers topic, which would not see these markers."""

    def __init__(self, subscription: str, topic: str, markers_topic: str, found: str) -> None:
        super().__init__(subscription, topic, markers_topic, found)
        self.subscription, self.topic = subscription, topic
        self.markers_topic, self.found = markers_topic, found

    def __str__(self) -> str:
        return (
            f"subscription '{self.subscription}' of topic '{self.topic}' is tracked through markers topic"
            f" '{self.found}', and this is to use '{self.markers_topic}': set markersTopic to '{self.found}',"
            " or choose another subscription"
        )


class SubscriptionExists(KafkaFailure):
    """A subscription was to be created that is there already."""

    def __init__(self, subscription: str, topic: str) -> None:
        super().__init__(subscription, topic)
        self.subscription, self.topic = subscription, topic

    def __str__(self) -> str:
        return (
            f"subscription '{self.subscription}' of topic '{self.topic}' exists: seek to move it, or choose "
            "another name"
        )


class SubscriptionHasConsumers(KafkaFailure):
    """A subscription that is to be deleted has consumers, which would go on without it."""

    def __init__(self, subscription: str, members: tuple[str, ...]) -> None:
        super().__init__(subscription, members)
        self.subscription, self.members = subscription, members

    def __str__(self) -> str:
        return (
            f"subscription '{self.subscription}' has consumers ({'; '.join(self.members) or 'unknown'}): "
            "stop them, or force it"
        )


class SubscriptionInUse(SourceError):
    """Somebody has the subscription, and its type does not let a second one in."""

    def __init__(self, group: str, asked: str, holder: str) -> None:
        super().__init__(group, asked, holder)
        self.group, self.asked, self.holder = group, asked, holder

    def __str__(self) -> str:
        return (
            f"subscription type {self.asked} is refused, because group '{self.group}' is in use by"
            f" {self.holder}: stop that one, or give subscriptionType=failover to wait for its end, or"
            " subscriptionType=shared to both"
        )


class MemberFenced(SourceError):
    """Another query has taken the place of this one in the subscription's group; this one ends."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"another query has taken the place of this one in group '{self.group}', so this one ends before"
            " both deliver the same: run one query for an exclusive subscription, and see which is not wanted"
        )


class RunSuperseded(SourceError):
    """Another run of the same subscription was started later; this one ends.

    In one consumer group a later one is refused, or waits. So it is in another group, or this one was paused
    for longer than a session and given up for dead.
    """

    def __init__(self, subscription: str, topic: str, partition: int) -> None:
        super().__init__(subscription, topic, partition)
        self.subscription, self.topic, self.partition = subscription, topic, partition

    def __str__(self) -> str:
        return (
            f"another query reads '{self.topic}' partition {self.partition} for subscription"
            f" '{self.subscription}' and was started later, so redeliveries go to it: end the one that is"
            " not wanted, and give all queries of a subscription the same groupIdPrefix"
        )
