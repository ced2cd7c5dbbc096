"""Errors of the streaming source, and of subscriptions and their consumers."""

from __future__ import annotations

from spark_cursor_source.errors.kafka import KafkaFailure
from spark_cursor_source.errors.root import CursorqError


class SourceError(CursorqError):
    """Base class of errors that stop the streaming source because it would lose or invent messages."""


class PythonWithoutPackage(SourceError):
    """Raised when Spark would start a Python that does not have this package."""

    python: str
    driver: str
    template = (
        "Spark starts its Python processes as '{python}', where spark_cursor_source cannot be imported: set "
        "PYSPARK_PYTHON={driver} in the environment before the session is made, or install the package there"
    )


class QueueTopicRecreated(SourceError):
    """Raised when a queue topic was deleted and created again, so stored positions mean other messages."""

    topic: str
    was: str
    now: str
    template = (
        "topic '{topic}' was deleted and created again (its id was {was} and is {now}), so the positions of "
        "this checkpoint and subscription mean other messages now: start with a new checkpoint and a new "
        "subscription, or, in a Spark query with V2 markers, with failOnDataLoss=false, which reads the new "
        "topic from its beginning"
    )


class RedeliveriesTopicRecreated(SourceError):
    """Raised when the redeliveries topic was deleted and created again while it was read."""

    topic: str
    was: str
    now: str
    template = (
        "redeliveries topic '{topic}' was deleted and created again (its id was {was} and is {now}): start "
        "the query again with its checkpoint, or open the consumer anew; all that waits is announced to it "
        "again"
    )


class QueueTopicEndsEarlier(SourceError):
    """Raised when a queue topic ends before the position of the subscription."""

    topic: str
    partition: int
    position: int
    end: int
    template = (
        "topic '{topic}' partition {partition} ends at offset {end}, and the subscription stands at "
        "{position}: the topic was deleted and created again, or its brokers have lost its end; what is "
        "appended now has offsets that are acked already, so start with a new checkpoint and a new "
        "subscription, or set failOnDataLoss=false to go on after them"
    )


class MarkerFormatChanged(SourceError):
    """Raised when a checkpoint was written with another marker format than the query has."""

    was: str
    now: str
    template = (
        "this checkpoint was written with markerFormat={was}, and the query has markerFormat={now}: each "
        "tracker knows only of its own leases, so let the old query finish and start a new checkpoint"
    )


class CheckpointOfAnother(SourceError):
    """Raised when a checkpoint was written with another subscription or other control topics."""

    option: str
    was: str
    now: str
    template = (
        "this checkpoint was written with {option}={was}, and the query has {option}={now}: its positions "
        "are not those of this query, which would skip messages that it never had; give the query a "
        "checkpointLocation of its own, or set {option}={was} to go on with this one"
    )


class DataLoss(SourceError):
    """Raised when messages were removed from the queue topic before they were acked."""

    topic: str
    partition: int
    ranges: str
    why: str
    template = (
        "messages {ranges} of '{topic}' partition {partition} are gone ({why}) and were never acked; keep "
        "messages longer (retention.ms), or set failOnDataLoss=false to end them and go on"
    )


class SubscriptionInUse(SourceError):
    """Raised when a subscription has a consumer and its type does not admit a second one."""

    group: str
    asked: str
    holder: str
    template = (
        "subscription type {asked} is refused, because group '{group}' is in use by {holder}: stop that one, "
        "or give subscriptionType=failover to wait for its end, or subscriptionType=shared to both"
    )


class MemberFenced(SourceError):
    """Raised when another query has replaced this one in the subscription's group."""

    group: str
    template = (
        "another query has taken the place of this one in group '{group}', so this one ends before both "
        "deliver the same: run one query for an exclusive subscription, and see which is not wanted"
    )


class RunSuperseded(SourceError):
    """Raised when another run of the same subscription was started later.

    A later run in the same consumer group is refused or waits. So the other run uses another group, or this
    one paused for longer than its session timeout: give all queries of a subscription the same groupIdPrefix.
    """

    subscription: str
    topic: str
    partition: int
    template = (
        "another query reads '{topic}' partition {partition} for subscription '{subscription}' and was "
        "started later, so redeliveries go to it: end the one that is not wanted, and give all queries of a "
        "subscription the same groupIdPrefix"
    )


class GroupInUse(KafkaFailure):
    """Raised when offsets are set for a consumer group that has members of its own."""

    group: str
    template = (
        "consumer group '{group}' has members, and its offsets belong to them; end these consumers, or use a "
        "subscription of another name"
    )


class UnknownSubscription(KafkaFailure):
    """Raised when the tracker does not know a subscription; the message lists the known ones."""

    subscription: str
    topic: str | None
    cursors_topic: str
    known: tuple[str, ...]
    template = (
        "cursors topic '{cursors_topic}' holds no cursor of subscription '{subscription}'{_of_topic}; it "
        "knows {_known}: correct the name, or the topic's, or start a query that reads under it"
    )

    @property
    def _of_topic(self) -> str:
        return "" if self.topic is None else f" of topic '{self.topic}'"

    @property
    def _known(self) -> str:
        return ", ".join(self.known) or "none"


class UnknownQueueTopic(KafkaFailure):
    """Raised when the tracker knows no subscription of a queue topic; the message lists the known topics."""

    topic: str
    cursors_topic: str
    known: tuple[str, ...]
    template = (
        "cursors topic '{cursors_topic}' holds no cursor of queue topic '{topic}'; it knows {_known}: "
        "correct the name, or start a query that reads the topic"
    )

    @property
    def _known(self) -> str:
        return ", ".join(self.known) or "none"


class TrackedElsewhere(KafkaFailure):
    """Raised when a subscription belongs to the tracker of another markers topic, which ignores this one."""

    subscription: str
    topic: str
    markers_topic: str
    found: str
    template = (
        "subscription '{subscription}' of topic '{topic}' is tracked through markers topic '{found}', and "
        "this is to use '{markers_topic}': set markersTopic to '{found}', or choose another subscription"
    )


class SubscriptionExists(KafkaFailure):
    """Raised when a subscription is created that exists already."""

    subscription: str
    topic: str
    template = (
        "subscription '{subscription}' of topic '{topic}' exists: seek to move it, or choose another name"
    )


class SubscriptionHasConsumers(KafkaFailure):
    """Raised when a subscription is deleted that has consumers."""

    subscription: str
    members: tuple[str, ...]
    template = "subscription '{subscription}' has consumers ({_members}): stop them, or force it"

    @property
    def _members(self) -> str:
        return "; ".join(self.members) or "unknown"
