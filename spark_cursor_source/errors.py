"""Every error of spark_cursor_source, in one tree.

An error states the facts and the next move. Errors of other libraries are turned into these once, where
they enter (``kafka/`` for librdkafka), and nothing here imports anything.
"""

from __future__ import annotations


class CursorqError(Exception):
    """Root of all errors of this library: ``except CursorqError`` catches each of them."""


class OptionsError(CursorqError):
    """An option, or a set of options, that was refused before anything ran."""


class InvalidDuration(OptionsError):
    """A text that is no duration: ``500ms``, ``30s``, ``5m``, ``2h`` and ``1d`` are."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return (
            f"{_shown(self.text)} is no duration; write a whole number and a unit: 500ms, 30s, 5m, 2h or 1d"
        )


class UnknownOption(OptionsError):
    """An option nobody reads; the nearest known one is named, its value never is."""

    def __init__(self, option: str, did_you_mean: str | None = None, why: str | None = None) -> None:
        super().__init__(option, did_you_mean, why)
        self.option, self.did_you_mean, self.why = option, did_you_mean, why

    def __str__(self) -> str:
        facts = f"unknown option '{self.option}'" + (f": {self.why}" if self.why else "")
        return facts + (f"; did you mean '{self.did_you_mean}'?" if self.did_you_mean else "; remove it")


class InvalidOption(OptionsError):
    """A known option with a value that cannot be; ``value`` is None where it could be a secret."""

    def __init__(self, option: str, value: object | None, why: str, next_move: str) -> None:
        super().__init__(option, value, why, next_move)
        self.option, self.value, self.why, self.next_move = option, value, why, next_move

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {_shown(self.value)}"
        return f"option '{self.option}'{value}: {self.why}; {self.next_move}"


class MissingOption(OptionsError):
    """An option that must be given is not there."""

    def __init__(self, option: str, next_move: str) -> None:
        super().__init__(option, next_move)
        self.option, self.next_move = option, next_move

    def __str__(self) -> str:
        return f"option '{self.option}' is missing; {self.next_move}"


class ConflictingOptions(OptionsError):
    """Options that are each valid and cannot be together."""

    def __init__(self, options: tuple[str, ...], why: str, next_move: str) -> None:
        super().__init__(options, why, next_move)
        self.options, self.why, self.next_move = options, why, next_move

    def __str__(self) -> str:
        named = ", ".join(f"'{option}'" for option in self.options)
        return f"options {named}: {self.why}; {self.next_move}"


class RefusedKafkaOption(OptionsError):
    """A ``kafka.*`` option that would break a promise, has no equivalent, or that librdkafka refuses."""

    def __init__(self, option: str, why: str, next_move: str) -> None:
        super().__init__(option, why, next_move)
        self.option, self.why, self.next_move = option, why, next_move

    def __str__(self) -> str:
        return f"option 'kafka.{self.option}': {self.why}; {self.next_move}"


class KafkaConfigFileUnreadable(CursorqError):
    """The file that ``kafka.config.file`` names cannot be read where it is needed."""

    def __init__(self, path: str, host: str, why: str) -> None:
        super().__init__(path, host, why)
        self.path, self.host, self.why = path, host, why

    def __str__(self) -> str:
        return (
            f"kafka.config.file '{self.path}' cannot be read on host '{self.host}': {self.why}; "
            "put the file at the same path on the driver and on every executor"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


class BrokerError(CursorqError):
    """Something about the embedded development broker; see its subclasses for what to do next."""


class BrokerNotRunning(BrokerError):
    """An operation needs a running broker and there is none."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(
            f"{wanted} needs a running broker; call start() first, or use `with EmbeddedKafka() as broker:`"
        )


class JavaNotFound(BrokerError):
    """No Java that can run the broker.

    >>> print(JavaNotFound("java on PATH is version 11"))  # doctest: +ELLIPSIS
    java on PATH is version 11; the embedded broker needs Java 17 or later: install one and set JAVA_HOME ...
    """

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"{found}; the embedded broker needs Java 17 or later: "
            "install one and set JAVA_HOME to it, or put its bin directory on PATH"
        )


class PortTaken(BrokerError):
    """Another process listens on the port that was asked for.

    >>> print(PortTaken(9092))  # doctest: +ELLIPSIS
    port 9092 of 127.0.0.1 is taken by another process; end that process, choose another ...
    """

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(
            f"port {port} of 127.0.0.1 is taken by another process; "
            "end that process, choose another port, or give none to get a free one"
        )


class JarsNotResolved(BrokerError):
    """Spark's resolver could not get the broker's jars, most often for want of a network."""

    def __init__(self, coordinate: str, detail: str) -> None:
        self.coordinate = coordinate
        self.detail = detail
        super().__init__(
            f"Spark's resolver did not find {coordinate}; "
            "the first start needs a network, later ones use the cache: connect once, or name a repository "
            "that can be reached, spark.jars.ivySettings or spark.jars.repositories in spark-defaults.conf. "
            f"The resolver's last words:\n{detail}"
        )


class BrokerNotReady(BrokerError):
    """The broker ended, or answered nothing in time, while it was starting."""

    def __init__(self, what: str, log_path: str, log_tail: str) -> None:
        self.what = what
        self.log_path = log_path
        self.log_tail = log_tail
        super().__init__(
            f"{what}; see the end of its log below (whole: {log_path}), "
            "then check `properties` and the data directory, or give a longer ready_timeout_s. "
            f"Last lines:\n{log_tail or '(the log is empty)'}"
        )


class WireError(CursorqError):
    """Bytes in a control topic or a checkpoint are not what this library writes."""


class InvalidMarker(WireError):
    """A record of the markers topic is no marker. The tracker counts, logs and skips it."""


class InvalidControlRecord(WireError):
    """A record of the redeliveries or cursors topic cannot be read.

    It was written by another program, or by a later version: use one version of the library everywhere, and
    topics that nothing else writes to.
    """


class LaterCursorVersion(InvalidControlRecord):
    """A tracker of a later version of this library has written the cursor.

    Not to know it would deliver again what it says is acked: use one version of the library everywhere.
    """

    def __init__(self, version: int, known: int) -> None:
        super().__init__(version, known)
        self.version, self.known = version, known

    def __str__(self) -> str:
        return (
            f"a cursor of version {self.version} cannot be read, only up to version {self.known}: its "
            "tracker has a later version of spark_cursor_source; install that version here too"
        )


class InvalidOffset(WireError):
    """The offset in a checkpoint is not one of this source.

    The checkpoint belongs to another kind of source or to a later version: start the query with a checkpoint
    of its own; its subscription's cursor still says where to go on.
    """


class ReadError(CursorqError):
    """Records of a topic-partition could not be read."""


class ReadStalled(ReadError):
    """No record, and no end of the partition, came for the whole stall timeout."""

    def __init__(
        self, topic: str, partition: int, position: int, stop: int, waited_ms: int, last: str
    ) -> None:
        super().__init__(topic, partition, position, stop, waited_ms, last)
        self.topic, self.partition, self.position, self.stop = topic, partition, position, stop
        self.waited_ms, self.last = waited_ms, last

    def __str__(self) -> str:
        return (
            f"no progress in {self.waited_ms} ms at offset {self.position} of {self.topic}-{self.partition}, "
            f"which was to be read up to {self.stop}; the last that was heard: {self.last}; "
            "see that the partition has a leader that can be reached, then start again"
        )


class TopicGone(ReadError):
    """The topic, or this partition of it, does not exist any more."""

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.topic, self.partition = topic, partition

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} does not exist any more; "
            "if it was deleted on purpose, take the topic out of the options and start with a new checkpoint"
        )


class RecordsGone(ReadError):
    """Offsets that were to be read are outside what the partition has: retention, truncation, a new topic."""

    def __init__(
        self, topic: str, partition: int, wanted: tuple[int, int], available: tuple[int, int]
    ) -> None:
        super().__init__(topic, partition, wanted, available)
        self.topic, self.partition, self.wanted, self.available = topic, partition, wanted, available

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} has offsets {self.available[0]} to {self.available[1]}, and "
            f"{self.wanted[0]} to {self.wanted[1]} were to be read: retention removed them, or the topic was "
            "created again; lengthen retention.ms, or set failOnDataLoss=false to go on without them"
        )


class ReadRefused(ReadError):
    """The broker, or the client, refuses to read on, and waiting would not help."""

    def __init__(self, topic: str, partition: int, position: int, why: str) -> None:
        super().__init__(topic, partition, position, why)
        self.topic, self.partition, self.position, self.why = topic, partition, position, why

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} cannot be read at offset {self.position}: {self.why}; "
            "correct that (the kafka.* options, the topic's ACLs) and start again"
        )


class KafkaFailure(CursorqError):
    """The Kafka cluster did not do what it was asked to."""


class KafkaUnavailable(KafkaFailure):
    """No answer, or only "not now", until a deadline."""

    def __init__(self, operation: str, waited_ms: int, last: str) -> None:
        super().__init__(operation, waited_ms, last)
        self.operation, self.waited_ms, self.last = operation, waited_ms, last

    def __str__(self) -> str:
        return (
            f"{self.operation}: no answer from Kafka in {self.waited_ms} ms (the last that was heard: "
            f"{self.last}); see that the brokers of kafka.bootstrap.servers run, can be reached from here, "
            "and accept the kafka.security.protocol and login given"
        )


class NotAuthorized(KafkaFailure):
    """The principal of the kafka.* options may not do this."""

    def __init__(self, resource: str, operation: str) -> None:
        super().__init__(resource, operation)
        self.resource, self.operation = resource, operation

    def __str__(self) -> str:
        return (
            f"not authorized: {self.operation} on '{self.resource}'; "
            "give the principal of the kafka.* options an ACL that allows it"
        )


class KafkaRefused(KafkaFailure):
    """An answer that waiting does not change."""

    def __init__(self, operation: str, resource: str, why: str) -> None:
        super().__init__(operation, resource, why)
        self.operation, self.resource, self.why = operation, resource, why

    def __str__(self) -> str:
        return f"{self.operation} on '{self.resource}' was refused: {self.why}; correct that and start again"


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


class TopicNotFound(KafkaFailure):
    """Topics that were named do not exist, or may not be seen."""

    def __init__(self, topics: tuple[str, ...]) -> None:
        super().__init__(topics)
        self.topics = topics

    def __str__(self) -> str:
        named = ", ".join(f"'{topic}'" for topic in self.topics)
        return f"topics that do not exist: {named}; create them, or correct the names in the options"


class ControlTopicUnfit(KafkaFailure):
    """A control topic is there and its settings would break a promise."""


class MarkersTopicNotLogAppendTime(ControlTopicUnfit):
    """Leases are measured in the broker's time, and this topic does not record it."""

    def __init__(self, topic: str, found: str) -> None:
        super().__init__(topic, found)
        self.topic, self.found = topic, found

    def __str__(self) -> str:
        return (
            f"markers topic '{self.topic}' uses {self.found}; set message.timestamp.type=LogAppendTime "
            f"(kafka-configs.sh --alter --entity-type topics --entity-name {self.topic} "
            "--add-config message.timestamp.type=LogAppendTime), or delete it and let cursorq create it"
        )


class CursorsTopicNotCompacted(ControlTopicUnfit):
    """A cursors topic that forgets old records forgets whole subscriptions."""

    def __init__(self, topic: str, found: str) -> None:
        super().__init__(topic, found)
        self.topic, self.found = topic, found

    def __str__(self) -> str:
        return (
            f"cursors topic '{self.topic}' has cleanup.policy={self.found}; set cleanup.policy=compact "
            f"(kafka-configs.sh --alter --entity-type topics --entity-name {self.topic} "
            "--add-config cleanup.policy=compact), or name another one and let cursorq create it"
        )


class MarkersPartitionsChanged(ControlTopicUnfit):
    """The partition of a cell's markers follows from their number, which is fixed once the topic is used."""

    def __init__(self, topic: str, was: int, now: int) -> None:
        super().__init__(topic, was, now)
        self.topic, self.was, self.now = topic, was, now

    def __str__(self) -> str:
        return (
            f"markers topic '{self.topic}' has {self.now} partitions and was used with {self.was}; "
            "their number is fixed once used: name a new topic in markersTopic, for the tracker and all "
            "queries"
        )


class MarkersGone(ControlTopicUnfit):
    """Markers that the tracker has not read are not there any more."""

    def __init__(self, topic: str, partition: int, position: int, available: tuple[int, int]) -> None:
        super().__init__(topic, partition, position, available)
        self.topic, self.partition, self.position, self.available = topic, partition, position, available

    def __str__(self) -> str:
        found = (
            f"markers topic '{self.topic}' partition {self.partition} has offsets {self.available[0]} to"
            f" {self.available[1]}, and the tracker stands at {self.position}"
        )
        if self.position > self.available[1]:
            return (
                f"{found}: the topic was created again, or its brokers have lost its end; name new topics in"
                " markersTopic, redeliveriesTopic and cursorsTopic, for the tracker and all queries"
            )
        return (
            f"{found}: what was removed in between may be the only trace of messages that were delivered and"
            " not acked; lengthen its retention.ms, and to go on without them start the tracker with a new"
            " checkpointLocation and takeOver=true"
        )


class MarkersNotDurable(KafkaFailure):
    """Markers the brokers have not confirmed: what they say may not have happened."""

    def __init__(self, topic: str, unsent: int, why: str) -> None:
        super().__init__(topic, unsent, why)
        self.topic, self.unsent, self.why = topic, unsent, why

    def __str__(self) -> str:
        return (
            f"{self.unsent} markers are not confirmed by markers topic '{self.topic}': {self.why}; "
            "see that its brokers run and start the query again: what was not acknowledged comes again"
        )


class CopiesNotDurable(KafkaFailure):
    """Dead letters the brokers have not confirmed; nothing of their origin was forgotten."""

    def __init__(self, topic: str, unsent: int, why: str) -> None:
        super().__init__(topic, unsent, why)
        self.topic, self.unsent, self.why = topic, unsent, why

    def __str__(self) -> str:
        return (
            f"{self.unsent} copies are not confirmed by topic '{self.topic}': {self.why}; "
            "correct that and start the tracker again: it writes them again and loses none"
        )


class MessagesNotDurable(KafkaFailure):
    """Messages of a queue topic the brokers have not confirmed; some may be there all the same."""

    def __init__(self, topic: str, unsent: int, why: str) -> None:
        super().__init__(topic, unsent, why)
        self.topic, self.unsent, self.why = topic, unsent, why

    def __str__(self) -> str:
        return (
            f"{self.unsent} messages are not confirmed by topic '{self.topic}': {self.why}; "
            "see that its brokers run and send them again: some may be there twice then"
        )


class TrackerOwnedByAnother(KafkaFailure):
    """What a tracker of another checkpoint has done is newer than this checkpoint."""

    def __init__(self, markers_topic: str, owner: str, stale: bool = False) -> None:
        super().__init__(markers_topic, owner, stale)
        self.markers_topic, self.owner, self.stale = markers_topic, owner, stale

    def __str__(self) -> str:
        owned = f"markers topic '{self.markers_topic}' belongs to the tracker {self.owner}"
        if self.stale:
            return (
                f"{owned}, which has gone on where this checkpoint stopped; use the checkpointLocation of "
                "that tracker, or a new one with takeOver=true: it begins with the cursors, and loses nothing"
            )
        return (
            f"{owned}, of another checkpoint; use the checkpointLocation of that tracker, or, if it is lost, "
            "set takeOver=true once"
        )


class RedriveFenced(KafkaFailure):
    """Another redrive of the same dead letters, by the same filter, was started later; this one ends."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"another redrive of '{self.topic}' with the same filter was started later and goes on from "
            "here; run one at a time"
        )


class NoDeadLetter(KafkaFailure):
    """A record of the topic to redrive does not say where it came from."""

    def __init__(self, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(topic, partition, offset, why)
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} at offset {self.offset} is no dead letter: {self.why}; "
            "name a topic that only a tracker of this library writes to"
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
        return (
            f"cursors topic '{self.cursors_topic}' holds no cursor of subscription '{self.subscription}'"
            f"{of_topic}; it knows {', '.join(self.known) or 'none'}: correct the name, or the topic's"
        )


class TrackerFenced(KafkaFailure):
    """Another tracker for the same topics was started later; this one ends."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.transactional_id = transactional_id

    def __str__(self) -> str:
        return (
            f"another tracker was started later with the id '{self.transactional_id}' and has taken over; "
            "run one tracker for these topics, and see which of the two is not wanted"
        )


class SourceError(CursorqError):
    """The streaming source cannot go on without losing or inventing something."""


class NoTracker(SourceError):
    """No tracker answered, so nothing that is not acked would ever come back."""

    def __init__(self, cells: int, waited_ms: int, markers_topic: str, cursors_topic: str) -> None:
        super().__init__(
            f"no tracker answered for {cells} queue partitions in {waited_ms / 1000:.0f} s: start one"
            f" (spark-submit jobs/tracker.py, or cursorq.start_tracker) that reads markers topic"
            f" '{markers_topic}' and writes cursors topic '{cursors_topic}', or raise trackerTimeout"
        )


class RunSuperseded(SourceError):
    """Another run of the same subscription was started later; this one ends."""

    def __init__(self, subscription: str, topic: str, partition: int) -> None:
        super().__init__(
            f"another query reads '{topic}' partition {partition} for subscription '{subscription}' and was"
            " started later, so redeliveries go to it: run one query for them, and see which is not wanted"
        )


class QueueTopicRecreated(SourceError):
    """A queue topic was deleted and created again: its old positions mean other messages now."""

    def __init__(self, topic: str, was: str, now: str) -> None:
        super().__init__(
            f"topic '{topic}' was deleted and created again (its id was {was} and is {now}), so the positions"
            " of this checkpoint and subscription mean other messages now: start with a new checkpoint and a"
            " new subscription"
        )


class QueueTopicEndsEarlier(SourceError):
    """A queue topic ends before the position of the subscription: it is another topic, or lost its end."""

    def __init__(self, topic: str, partition: int, position: int, end: int) -> None:
        super().__init__(
            f"topic '{topic}' partition {partition} ends at offset {end}, and the subscription stands at"
            f" {position}: the topic was deleted and created again, or its brokers have lost its end; what is"
            " appended now has offsets that are acked already, so start with a new checkpoint and a new"
            " subscription"
        )


class MarkerFormatChanged(SourceError):
    """A checkpoint was written with other markers than the query asks for."""

    def __init__(self, was: str, now: str) -> None:
        super().__init__(
            f"this checkpoint was written with markerFormat={was}, and the query has markerFormat={now}: each"
            " tracker knows only of its own leases, so let the old query finish and start a new checkpoint"
        )


class DataLoss(SourceError):
    """Messages that were not acked are gone from the queue topic."""

    def __init__(self, topic: str, partition: int, ranges: str, why: str) -> None:
        super().__init__(
            f"messages {ranges} of '{topic}' partition {partition} are gone ({why}) and were never acked;"
            " keep messages longer (retention.ms), or set failOnDataLoss=false to end them and go on"
        )


class SinkError(CursorqError):
    """The ack sink was given something that it cannot ack."""


class MissingColumns(SinkError):
    """A DataFrame to be acked lacks columns that say which message a row is."""

    def __init__(self, action: str, missing: tuple[str, ...], has: tuple[str, ...]) -> None:
        super().__init__(
            f"{action} needs the columns {', '.join(missing)}; the DataFrame has {', '.join(has)}: keep them"
            " when you select (topic, partition, offset; delivery_count too for release, reject and extend;"
            " with markerFormat=v1 key instead)"
        )


class NullMessageId(SinkError):
    """A row to be acked has no topic, partition or offset (or no delivery_count where one is needed)."""

    def __init__(self, action: str, columns: tuple[str, ...]) -> None:
        super().__init__(
            f"{action}: a row has null in {', '.join(columns)}, so nobody knows which message it is: filter"
            " such rows out, or keep the columns as the source gave them; nothing was acked by this task"
        )


class UnknownOutcome(SinkError):
    """A handler returned something that says neither ack nor anything else."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"the handler returned a {kind}: return None or True to ack, False to release, Release(...),"
            " Reject(...) or Leave(); to return results, give AckSink.per_row(..., result='<type in DDL>')"
        )


class UnknownAction(SinkError):
    """A value of the column action is none of ack, release, reject, extend."""

    def __init__(self, action: str) -> None:
        super().__init__(f"action '{action}' is none of ack, release, reject, extend: correct the column")


class AckedBySource(SinkError):
    """A sink acks rows, and the source of the same options does it too."""

    def __init__(self, mode: str) -> None:
        super().__init__(
            f"ackMode={mode} lets the source ack, so an AckSink would ack what your function has not: use"
            " foreachBatch with the function alone, or ackMode=individual"
        )


class RejectRefused(SinkError):
    """A message is to be rejected, and V1 markers have no word for it."""

    def __init__(self) -> None:
        super().__init__(
            "markerFormat=v1 cannot reject: kafka-mq-go's tracker has no dead letters; write the message"
            " elsewhere and ack it, or release it"
        )


class OverwriteRefused(SinkError):
    """A write of acks with a mode that would replace what is there."""

    def __init__(self) -> None:
        super().__init__("acks are added and never replaced: write with mode('append')")


class UnfitColumn(SinkError):
    """A column of a DataFrame to be acked cannot be read as what it is needed for."""

    def __init__(self, column: str, kind: str, why: str) -> None:
        super().__init__(
            f"column '{column}' of type {kind} cannot be read as what it stands for ({why}): cast or correct"
            " it (topic STRING, partition INT, offset BIGINT, delivery_count INT, action STRING,"
            " delay STRING such as '30s', delay_ms BIGINT, reason STRING)"
        )


class ClientError(CursorqError):
    """A call of the plain client that cannot be done as it was made."""


class ClientClosed(ClientError):
    """A client was used after its close."""

    def __init__(self) -> None:
        super().__init__("the client is closed: make another, or call it inside its `with` block")


class InvalidArgument(ClientError):
    """An argument with a value that cannot be."""

    def __init__(self, argument: str, value: object, why: str) -> None:
        super().__init__(argument, value, why)
        self.argument, self.value, self.why = argument, value, why

    def __str__(self) -> str:
        return f"{self.argument}={_shown(self.value)}: {self.why}; correct the call"


class CursorFenced(ClientError):
    """A cursor was set with a higher epoch than this one: another has taken over. Nothing was changed."""

    def __init__(self, cursor: str, epoch: int | None, stored: int) -> None:
        super().__init__(cursor, epoch, stored)
        self.cursor, self.epoch, self.stored = cursor, epoch, stored

    def __str__(self) -> str:
        given = "no epoch" if self.epoch is None else f"epoch {self.epoch}"
        return (
            f"cursor '{self.cursor}' was set with epoch {self.stored}, and {given} is lower: another owner "
            "has taken over; end this one, or get an epoch above that one first"
        )


class CursorOfTracker(ClientError):
    """A cursor that a tracker keeps was to be set: acks move it, and nothing else."""

    def __init__(self, cursor: str) -> None:
        super().__init__(cursor)
        self.cursor = cursor

    def __str__(self) -> str:
        return (
            f"cursor '{self.cursor}' belongs to a tracker, which would write over it: ack messages to move "
            "it, or choose another cursor id"
        )


class StreamExists(ClientError):
    """A stream was to be created under a name that is taken."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.stream = stream

    def __str__(self) -> str:
        return f"stream '{self.stream}' exists: use it as it is, or choose another name"


class NoSuchStream(ClientError):
    """A stream, or a partition of it, that does not exist."""

    def __init__(self, stream: str, partition: int | None = None) -> None:
        super().__init__(stream, partition)
        self.stream, self.partition = stream, partition

    def __str__(self) -> str:
        of = "" if self.partition is None else f"partition {self.partition} of "
        return f"{of}stream '{self.stream}' does not exist: create it, or correct the name"


class AckTimeout(ClientError):
    """The brokers did not confirm a message in time; it may be there all the same, or come later."""

    def __init__(self, stream: str, correlation_id: str | None, waited_ms: int) -> None:
        super().__init__(stream, correlation_id, waited_ms)
        self.stream, self.correlation_id, self.waited_ms = stream, correlation_id, waited_ms

    def __str__(self) -> str:
        named = "" if self.correlation_id is None else f" '{self.correlation_id}'"
        return (
            f"message{named} to stream '{self.stream}' was not confirmed in {self.waited_ms} ms; see that its"
            " brokers run, and publish it again if it may be there twice"
        )


class DemoProcessEnded(CursorqError):
    """A Spark process of the demo ended by itself."""

    def __init__(self, name: str, log_tail: str) -> None:
        super().__init__(name, log_tail)
        self.name, self.log_tail = name, log_tail

    def __str__(self) -> str:
        return f"the {self.name} of the demo ended by itself; its log says:\n{self.log_tail}"
