"""Errors of the tracker: its control topics, their records, and the dead letters it writes."""

from __future__ import annotations

from spark_cursor_source.errors.kafka import KafkaFailure
from spark_cursor_source.errors.root import CursorqError
from spark_cursor_source.errors.source import SourceError


class TrackerOwnedByAnother(KafkaFailure):
    """Raised when a tracker of another checkpoint has progressed beyond this checkpoint."""

    markers_topic: str
    owner: str
    stale: bool = False
    other_kind: str | None = None  #: the kind of the owner, in words, if it is not that of the refused one
    template = "Markers topic '{markers_topic}' belongs to the tracker {owner}. {_next_move}"

    @property
    def _next_move(self) -> str:
        if self.other_kind is not None:
            return (
                f"It {self.other_kind}, and a tracker of another kind does not work beside it. Leave the "
                "topics to it, or start this one once with takeOver=true (cursorq tracker: --take-over), and "
                "a Spark query also with a new checkpointLocation."
            )
        if self.stale:
            return (
                "It has continued beyond this checkpoint. Use the checkpointLocation of that tracker, or a "
                "new one with takeOver=true, which starts from the cursors and loses nothing."
            )
        return (
            "Use the checkpointLocation of that tracker. If that checkpoint is lost, set takeOver=true once."
        )


class TrackerProgressLost(KafkaFailure):
    """Raised when the brokers have committed less progress of a tracker than its checkpoint holds."""

    markers_topic: str
    template = (
        "The brokers have lost progress that the tracker of markers topic '{markers_topic}' had committed "
        "(after a crash, see KAFKA-20734, or from a backup), so its checkpoint is ahead of the cursors. Use "
        "a new checkpointLocation with takeOver=true, which starts from the cursors and loses nothing."
    )


class TrackerFenced(KafkaFailure):
    """Raised when another tracker for the same topics was started later."""

    transactional_id: str
    template = (
        "Another tracker with the id '{transactional_id}' was started later and has taken over. Run one "
        "tracker for these topics, and stop the other."
    )


class NoTracker(SourceError):
    """Raised when no tracker answers, so unacked messages would never be redelivered."""

    cells: int
    waited_ms: int
    markers_topic: str
    cursors_topic: str
    template = (
        "No tracker answered for {_cells} in {_waited_s:.0f} s. Start one (cursorq "
        "tracker, Tracker of spark_cursor_source.tracker, or in Spark start_tracker) that reads "
        "markers topic '{markers_topic}' and writes "
        "cursors topic '{cursors_topic}', set tracker=embedded, or raise trackerTimeout."
    )

    @property
    def _cells(self) -> str:
        return f"{self.cells} queue partition{'' if self.cells == 1 else 's'}"

    @property
    def _waited_s(self) -> float:
        return self.waited_ms / 1000


class CommandWaits(NoTracker):
    """Raised when no tracker has confirmed an operator's command yet. The command is stored."""

    cells: int
    waited_ms: int
    markers_topic: str
    cursors_topic: str
    template = (
        "The command is stored in markers topic '{markers_topic}', but no tracker has confirmed it for "
        "{_cells} in {_waited_s:.0f} s. It takes effect when a tracker runs, so do not "
        "repeat it. Start a tracker (cursorq tracker, Tracker of spark_cursor_source.tracker, or in Spark "
        "start_tracker) that reads this topic and writes cursors topic '{cursors_topic}'."
    )


class CommandNotTaken(KafkaFailure):
    """Raised when the tracker has read an operator's command and no cursor shows its effect."""

    command: str
    subscription: str
    template = (
        "The tracker has not taken the command '{command}' for subscription '{subscription}'. It is of a "
        "version that does not know the command, unless another command took this one back. Update the "
        "tracker."
    )


class TrackerBehind(NoTracker):
    """Raised when the tracker has not read the markers that a command depends on. Nothing was changed."""

    template = (
        "The tracker has not read markers topic '{markers_topic}' to its end in {_waited_s:.0f} s, so an "
        "earlier command may still wait there. Nothing was changed. Start a tracker (cursorq tracker, "
        "Tracker of spark_cursor_source.tracker, or in Spark start_tracker) that reads this topic and "
        "writes cursors topic '{cursors_topic}', and repeat the command."
    )

    def __init__(self, waited_ms: int, markers_topic: str, cursors_topic: str) -> None:
        super().__init__(0, waited_ms, markers_topic, cursors_topic)
        self.args = (waited_ms, markers_topic, cursors_topic)


class TrackerSilent(NoTracker):
    """Raised when no tracker has read a marker for as long as ``failWithoutTracker`` allows."""

    template = (
        "No tracker has read a marker for {_waited_s:.0f} s (option failWithoutTracker), so messages that "
        "are not acked are not redelivered. Start a tracker (cursorq tracker, Tracker of "
        "spark_cursor_source.tracker, or with Spark and its checkpointLocation jobs/tracker.py) that reads "
        "markers topic '{markers_topic}' and writes "
        "cursors topic '{cursors_topic}'. Then start this query again with its checkpoint."
    )

    def __init__(self, waited_ms: int, markers_topic: str, cursors_topic: str) -> None:
        super().__init__(0, waited_ms, markers_topic, cursors_topic)
        self.args = (waited_ms, markers_topic, cursors_topic)


class ControlTopicUnfit(KafkaFailure):
    """Base class of errors about a control topic with settings, or a past, that would break a guarantee."""


class MarkersTopicNotLogAppendTime(ControlTopicUnfit):
    """Raised when a markers topic does not record the broker's time, in which leases are measured."""

    topic: str
    found: str
    servers: str
    template = (
        "Markers topic '{topic}' uses {found}. Set message.timestamp.type=LogAppendTime (kafka-configs.sh "
        "--bootstrap-server {servers} --alter --entity-type topics --entity-name {topic} --add-config "
        "message.timestamp.type=LogAppendTime), or delete the topic and let cursorq create it."
    )


class CursorsTopicNotCompacted(ControlTopicUnfit):
    """Raised when a cursors topic deletes old records, and with them whole subscriptions."""

    topic: str
    found: str
    servers: str
    template = (
        "Cursors topic '{topic}' has cleanup.policy={found}. Set cleanup.policy=compact (kafka-configs.sh "
        "--bootstrap-server {servers} --alter --entity-type topics --entity-name {topic} --add-config "
        "cleanup.policy=compact), or choose another topic name and let cursorq create it."
    )


class RescueTopicNotCompacted(ControlTopicUnfit):
    """Raised when a rescue topic deletes old records, and with them messages that are not acked."""

    topic: str
    found: str
    servers: str
    template = (
        "Rescue topic '{topic}' has cleanup.policy={found}. Set cleanup.policy=compact (kafka-configs.sh "
        "--bootstrap-server {servers} --alter --entity-type topics --entity-name {topic} --add-config "
        "cleanup.policy=compact), or choose another topic name and let cursorq create it."
    )


class StreamsTopicUnfit(ControlTopicUnfit):
    """Raised when a streams topic deletes old records, or does not record the broker's time."""

    topic: str
    setting: str
    found: str
    wanted: str
    servers: str
    template = (
        "Streams topic '{topic}' has {setting}={found}. Set {setting}={wanted} (kafka-configs.sh "
        "--bootstrap-server {servers} --alter --entity-type topics --entity-name {topic} --add-config "
        "{setting}={wanted}), or choose another topic name and let cursorq create it."
    )


class MarkersPartitionsChanged(ControlTopicUnfit):
    """Raised when a markers topic has another number of partitions than when it was first used.

    The number decides where markers are written and is fixed: name a new topic in ``markersTopic``.
    """

    topic: str
    was: int
    now: int
    template = (
        "Markers topic '{topic}' has {now} partitions and was used with {was}. The number must not change "
        "after the first use. Set a new topic in markersTopic, for the tracker and all queries."
    )


class MarkersTopicRecreated(ControlTopicUnfit):
    """Raised when the markers topic was deleted and created again; the cursors refer to the earlier one."""

    topic: str
    was: str
    now: str
    template = (
        "Markers topic '{topic}' was deleted and created again: its id was {was} and is {now}. The cursors "
        "refer to the deleted markers. Set new topics in markersTopic, redeliveriesTopic and cursorsTopic, "
        "for the tracker and all queries."
    )


class MarkersGone(ControlTopicUnfit):
    """Raised when the markers topic no longer has the tracker's position, so unread markers are lost."""

    topic: str
    partition: int
    position: int
    available: tuple[int, int]
    template = (
        "Markers topic '{topic}' partition {partition} has offsets {available[0]} to {available[1]}, and "
        "the tracker's position is {position}. {_next_move}"
    )

    @property
    def _next_move(self) -> str:
        if self.position > self.available[1]:
            return (
                "The topic was created again, or its brokers have lost its end. Set new topics in "
                "markersTopic, redeliveriesTopic and cursorsTopic, for the tracker and all queries. If all "
                "topics are new, as with a new cursorq broker, new checkpoints for the tracker and all "
                "queries are enough."
            )
        return (
            "The removed markers may have been the only record of messages that were delivered and not "
            "acked. Raise retention.ms of the topic. To continue without these markers, start the tracker "
            "with a new checkpointLocation and takeOver=true."
        )


class RedriveFenced(KafkaFailure):
    """Raised when another redrive of the same dead letters was started later."""

    topic: str
    template = (
        "Another redrive of '{topic}' was started later, and it continues from the records of this one. "
        "Run only one redrive at a time."
    )


class NoDeadLetter(KafkaFailure):
    """Raised when a record of a topic to redrive does not say where it came from."""

    topic: str
    partition: int
    offset: int
    why: str
    template = (
        "{topic}-{partition} at offset {offset} is not a dead letter: {why}. Choose a topic that only a "
        "tracker of this library writes to."
    )


class WireError(CursorqError):
    """Base class of errors about bytes in a control topic or checkpoint that this library did not write."""


class InvalidMarker(WireError):
    """Raised when a record of the markers topic is not a marker; the tracker counts, logs and skips it."""


class InvalidControlRecord(WireError):
    """Raised when a record of the redeliveries or cursors topic cannot be read.

    Another program or a later version wrote it: use one version of the library everywhere, and topics to
    which nothing else writes.
    """


class LaterCursorVersion(InvalidControlRecord):
    """Raised when a tracker of a later version of this library has written a cursor.

    Ignoring it would deliver acked messages again: use one version of the library everywhere.
    """

    version: int
    known: int
    template = (
        "A cursor of version {version} cannot be read; this installation reads up to version {known}. The "
        "tracker runs a later version of spark_cursor_source. Install that version here too."
    )


class LeaseTableUnreadable(InvalidControlRecord):
    """Raised when the table of the open leases of kafka-mq-go or kmq cannot be read.

    Another program wrote to the cursors topic. Without its table, a tracker would forget the open leases.
    """

    cursors_topic: str
    key: str
    markers_topic: str
    partition: int
    group: str
    why: str
    template = (
        "The table of open leases in the record '{key}' of cursors topic '{cursors_topic}' cannot be read: "
        "{why}. Stop the tracker, write a record with this key and without a value, and set the offset of "
        "consumer group '{group}' for partition {partition} of topic '{markers_topic}' back to a marker "
        "before all open ones (kafka-consumer-groups.sh --reset-offsets). Then the tracker builds the table "
        "again."
    )


class InvalidOffset(WireError):
    """Raised when the offset in a checkpoint is not one of this source.

    The checkpoint belongs to another kind of source or to a later version: start the query with a checkpoint
    of its own; the cursor of its subscription keeps the position.
    """
