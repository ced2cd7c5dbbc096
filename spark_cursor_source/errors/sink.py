"""Errors of sinks: rows that cannot be acked or enqueued."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class SinkError(CursorqError):
    """Base class of errors about rows that a sink cannot ack or enqueue."""


class MissingColumns(SinkError):
    """Raised when a DataFrame to be acked lacks columns that identify a message."""

    action: str
    missing: tuple[str, ...]
    has: tuple[str, ...]
    template = (
        "{action} needs the columns {_missing}; the DataFrame has {_has}: keep them when you select (topic, "
        "partition, offset; delivery_count too for release, reject and extend; with markerFormat=v1 key "
        "instead)"
    )

    @property
    def _missing(self) -> str:
        return ", ".join(self.missing)

    @property
    def _has(self) -> str:
        return ", ".join(self.has)


class NullMessageId(SinkError):
    """Raised when a row to be acked has null as topic, partition or offset, or as a needed delivery_count."""

    action: str
    columns: tuple[str, ...]
    template = (
        "{action}: a row has null in {_columns}, so nobody knows which message it is: filter such rows out, "
        "or keep the columns as the source gave them; nothing was acked by this task"
    )

    @property
    def _columns(self) -> str:
        return ", ".join(self.columns)


class InvalidMessageId(SinkError):
    """Raised when a row to be acked names a message that no topic can have."""

    column: str
    value: str
    why: str
    template = (
        "a row has {column} {value!r}: {why}; keep the columns topic, partition and offset as the source "
        "gave them; nothing was acked by this task"
    )


class UnknownOutcome(SinkError):
    """Raised when a handler returns a value that is not an outcome."""

    kind: str
    template = (
        "the handler returned a {kind}: return None or True to ack, False to release, Release(...), "
        "Reject(...) or Leave(); to return results, give AckSink.per_row(..., result='<type in DDL>')"
    )


class UnknownAction(SinkError):
    """Raised when a value of the column ``action`` is none of ack, release, reject, extend."""

    action: str
    template = "action '{action}' is none of ack, release, reject, extend: correct the column"


class HandlerNotPicklable(SinkError):
    """Raised when a handler holds an object that cannot be sent to the executors."""

    handler: str
    why: str
    template = (
        "the handler {handler} cannot be sent to the executors ({why}): what it uses of its surroundings is "
        "pickled with it, so open connections, locks and the like inside of it"
    )


class AckedBySource(SinkError):
    """Raised when a sink acks rows that the source of the same options acks too."""

    mode: str
    template = (
        "ackMode={mode} lets the source ack, so an AckSink would ack what your function has not: use "
        "foreachBatch with the function alone, or ackMode=individual"
    )


class SinkOfAnotherSource(SinkError):
    """Raised when a sink's options name other leases than those of the source that delivered the rows."""

    option: str
    source: str
    sink: str
    template = (
        "the rows come from a source with {option}={source}, and this sink has {option}={sink}: its acks "
        "would end nothing, and every message would come again; give the sink the options of its source, or "
        "none: AckSink(fn)"
    )


class OptionsNotCarried(SinkError):
    """Raised when a sink has no options and its rows do not carry those of their source."""

    withheld: tuple[str, ...]
    template = "{_why}: give the options of the source here too, as in AckSink(fn, options)"

    @property
    def _why(self) -> str:
        if self.withheld:
            return f"the source has {', '.join(self.withheld)}, which rows do not carry"
        return "the rows do not say which source they come from (their column offset was computed anew)"


class NotOfSubscription(SinkError):
    """Raised when a row to be acked is of a topic or partition that its subscription does not read."""

    subscription: str
    what: str
    has: str
    template = (
        "subscription '{subscription}' has no cursor of {what}, only of {has}: correct the columns topic and "
        "partition, or the option subscription; nothing was acked by this task"
    )


class NoSuchMessages(SinkError):
    """Raised when rows to be acked have offsets beyond the end of their queue topic."""

    topic: str
    partition: int
    offsets: str
    end: int
    template = (
        "topic '{topic}' partition {partition} ends at offset {end}, so there is no message {offsets}: "
        "correct the column offset; nothing was acked by this task"
    )


class RejectRefused(SinkError):
    """Raised when a message is rejected with V1 markers, which have no dead letters."""

    template = (
        "markerFormat=v1 cannot reject: kafka-mq-go's tracker has no dead letters; write the message "
        "elsewhere and ack it, or release it"
    )


class UnfitColumn(SinkError):
    """Raised when a column of a DataFrame to be acked has an unsuitable type or value."""

    column: str
    kind: str
    why: str
    template = (
        "column '{column}' of type {kind} cannot be read as what it stands for ({why}): cast or correct it "
        "(topic STRING, partition INT, offset BIGINT, delivery_count INT, action STRING, delay STRING such "
        "as '30s', delay_ms BIGINT, reason STRING)"
    )


class OverwriteRefused(SinkError):
    """Raised when a write has a mode that would replace existing data; use ``append``."""

    what: str
    template = "{what} are added and never replaced: write with mode('append')"


class NoMessageColumn(SinkError):
    """Raised when rows to be enqueued lack a column for the value or the topic."""

    column: str
    has: tuple[str, ...]
    next_move: str
    template = "enqueue needs a column '{column}'; the DataFrame has {_has}: {next_move}"

    @property
    def _has(self) -> str:
        return ", ".join(self.has)


class UnfitMessageColumn(SinkError):
    """Raised when a column of rows to be enqueued has a type or a value that no message can have."""

    column: str
    why: str
    wanted: str
    template = "enqueue: column '{column}' {why}; give {wanted}"


class NoSuchPartition(SinkError):
    """Raised when a row is enqueued to a partition that its topic does not have."""

    topic: str
    partition: int
    partitions: int
    template = (
        "enqueue: topic '{topic}' has no partition {partition}, only 0 to {_last}; correct the column "
        "partition, or leave it null to go by the key"
    )

    @property
    def _last(self) -> int:
        return self.partitions - 1
