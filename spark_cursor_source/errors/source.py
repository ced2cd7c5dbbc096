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
        "Spark starts its Python processes as '{python}', which cannot import spark_cursor_source. Set "
        "PYSPARK_PYTHON={driver} in the environment before you create the session, or install the package "
        "there."
    )


class UnsupportedSpark(CursorqError, ImportError):
    """Raised when the installed Spark lacks a feature that the library needs. Also an ``ImportError``.

    >>> print(UnsupportedSpark("4.1.0", "admission control of Python sources"))  # doctest: +ELLIPSIS
    pyspark 4.1.0 lacks admission control of Python sources. Use Apache Spark 4.2 or 4.3, or Databricks ...
    """

    version: str
    lacking: str
    template = (
        "pyspark {version} lacks {lacking}. Use Apache Spark 4.2 or 4.3, or Databricks Runtime 18.2 or "
        "later. spark_cursor_source.client needs no Spark."
    )


class QueueTopicRecreated(SourceError):
    """Raised when a queue topic was deleted and created again, so stored positions mean other messages."""

    topic: str
    was: str
    now: str
    template = (
        "Topic '{topic}' was deleted and created again: its id was {was} and is {now}. The offsets of this "
        "checkpoint and subscription belong to the deleted topic. Start with a new checkpoint and a new "
        "subscription. A Spark query with V2 markers can also continue with failOnDataLoss=false; it reads "
        "the new topic from its beginning."
    )


class RedeliveriesTopicRecreated(SourceError):
    """Raised when the redeliveries topic was deleted and created again while it was read."""

    topic: str
    was: str
    now: str
    template = (
        "Redeliveries topic '{topic}' was deleted and created again: its id was {was} and is {now}. Start "
        "the query again with its checkpoint, or open the consumer again. The tracker then announces all "
        "waiting messages again."
    )


class QueueTopicEndsEarlier(SourceError):
    """Raised when a queue topic ends before the position of the subscription."""

    topic: str
    partition: int
    position: int
    end: int
    template = (
        "Topic '{topic}' partition {partition} ends at offset {end}, before the position {position} of the "
        "subscription. The topic was deleted and created again, or its brokers have lost its end. New "
        "messages would get offsets that are acked already. Start with a new checkpoint and a new "
        "subscription, or set failOnDataLoss=false to continue after these offsets."
    )


class MarkerFormatChanged(SourceError):
    """Raised when a checkpoint was written with another marker format than the query has."""

    was: str
    now: str
    template = (
        "This checkpoint was written with markerFormat={was}, and the query has markerFormat={now}. Each "
        "tracker knows only leases of its own format. Let the old query finish, and start the new one with "
        "a new checkpoint."
    )


class CheckpointOfAnother(SourceError):
    """Raised when a checkpoint was written with another subscription or other control topics."""

    option: str
    was: str
    now: str
    template = (
        "This checkpoint was written with {option}={was}, and the query has {option}={now}. With the "
        "positions of another subscription the query would skip messages. Give the query its own "
        "checkpointLocation, or set {option}={was} to continue with this one."
    )


class DataLoss(SourceError):
    """Raised when messages were removed from the queue topic before they were acked."""

    topic: str
    partition: int
    ranges: str
    why: str
    template = (
        "Messages {ranges} of '{topic}' partition {partition} were lost before they were acked: {why}. "
        "Keep messages longer (retention.ms), or set failOnDataLoss=false to end these messages and "
        "continue."
    )


class SubscriptionInUse(SourceError):
    """Raised when a subscription has a consumer and its type does not admit a second one."""

    group: str
    asked: str
    holder: str
    template = (
        "subscriptionType={asked} is refused, because {holder} uses group '{group}'. Stop that member, set "
        "subscriptionType=failover to wait until it ends, or set subscriptionType=shared for both."
    )


class QueueIdConflict(SourceError):
    """Raised when members of one subscription read messages of different queue ids.

    A member ends the messages that it skips, so the others would never get them.
    """

    group: str
    ours: str
    theirs: str
    member: str
    template = (
        "This consumer reads {ours}, and in its group '{group}' {member} reads or has read {theirs}. Each "
        "one would skip and end the messages of the other. Use another subscription for each queueId."
    )


class MemberFenced(SourceError):
    """Raised when another query has replaced this one in the subscription's group."""

    group: str
    template = (
        "Another query has replaced this one in group '{group}'. This query ends, because otherwise both "
        "would deliver the same messages. Run only one query for an exclusive subscription, and stop the "
        "other."
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
        "A later query reads '{topic}' partition {partition} for subscription '{subscription}', and the "
        "tracker sends it the redeliveries. Stop one of the two queries, and give all queries of a "
        "subscription the same groupIdPrefix."
    )


class GroupInUse(KafkaFailure):
    """Raised when offsets are set for a consumer group that has members of its own."""

    group: str
    template = (
        "Consumer group '{group}' has members that own its offsets. Stop these consumers, or use another "
        "subscription name."
    )


class UnknownSubscription(KafkaFailure):
    """Raised when the tracker does not know a subscription; the message lists the known ones."""

    subscription: str
    topic: str | None
    cursors_topic: str
    known: tuple[str, ...]
    template = (
        "Cursors topic '{cursors_topic}' has no cursor of subscription '{subscription}'{_of_topic}. Its "
        "subscriptions are: {_known}. Correct the name of the subscription or topic, or start a query with "
        "this subscription. The tracker writes its cursor: check that a tracker runs."
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
        "Cursors topic '{cursors_topic}' has no cursor of queue topic '{topic}'. Its topics are: {_known}. "
        "Correct the name, or start a query that reads the topic. The tracker writes its cursor: check that "
        "a tracker runs."
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
        "Subscription '{subscription}' of topic '{topic}' is tracked through markers topic '{found}', not "
        "'{markers_topic}'. Set markersTopic to '{found}', or choose another subscription."
    )


class SubscriptionExists(KafkaFailure):
    """Raised when a subscription is created that exists already."""

    subscription: str
    topic: str
    template = (
        "Subscription '{subscription}' of topic '{topic}' exists already. Use seek to move it, or choose "
        "another name."
    )


class UnknownSnapshot(KafkaFailure):
    """Raised when a subscription has no snapshot of a name."""

    subscription: str
    topic: str
    name: str
    known: tuple[str, ...]
    template = "Subscription '{subscription}' of topic '{topic}' has {_missing}."

    @property
    def _missing(self) -> str:
        if self.name == "undo":
            return "nothing to undo: no seek, skip, expiry or restore has changed anything in the last week"
        return f"no snapshot '{self.name}'. Its snapshots are: {', '.join(self.known) or 'none'}"


class TooManySnapshots(KafkaFailure):
    """Raised when a subscription has as many snapshots as it can have."""

    subscription: str
    topic: str
    known: tuple[str, ...]
    template = (
        "Subscription '{subscription}' of topic '{topic}' has {_count} snapshots already, and cannot have "
        "more. Forget one of them: {_known}."
    )

    @property
    def _count(self) -> int:
        return len(self.known)

    @property
    def _known(self) -> str:
        return ", ".join(self.known)


class SnapshotNotTaken(KafkaFailure):
    """Raised when the tracker has read the command to take a snapshot and has not taken it."""

    subscription: str
    topic: str
    name: str
    template = (
        "The tracker has not taken the snapshot '{name}' of subscription '{subscription}' of topic "
        "'{topic}'. It is of a version that knows no snapshots. Update the tracker."
    )


class PastNotKept(KafkaFailure):
    """Raised when the markers of a past instant are not in the markers topic any more."""

    subscription: str
    topic: str
    partition: int
    at: str
    template = (
        "The state of subscription '{subscription}', topic '{topic}', partition {partition} at {at} is not "
        "known: there is no snapshot from before, and the markers topic does not reach back to its first "
        "marker. Give a later time, or take snapshots regularly."
    )


class SubscriptionHasConsumers(KafkaFailure):
    """Raised when a subscription is deleted that has consumers."""

    subscription: str
    members: tuple[str, ...]
    template = "Subscription '{subscription}' has consumers: {_members}. Stop them, or use force."

    @property
    def _members(self) -> str:
        return "; ".join(self.members) or "unknown"
