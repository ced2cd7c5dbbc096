"""Rows that cannot be acked."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class SinkError(CursorqError):
    """The ack sink was given something that it cannot ack."""


class MissingColumns(SinkError):
    """A DataFrame to be acked lacks columns that say which message a row is."""

    def __init__(self, action: str, missing: tuple[str, ...], has: tuple[str, ...]) -> None:
        super().__init__(action, missing, has)
        self.action, self.missing, self.has = action, missing, has

    def __str__(self) -> str:
        return (
            f"{self.action} needs the columns {', '.join(self.missing)}; the DataFrame has"
            f" {', '.join(self.has)}: keep them when you select (topic, partition, offset; delivery_count"
            " too for release, reject and extend; with markerFormat=v1 key instead)"
        )


class NullMessageId(SinkError):
    """A row to be acked has no topic, partition or offset (or no delivery_count where one is needed)."""

    def __init__(self, action: str, columns: tuple[str, ...]) -> None:
        super().__init__(action, columns)
        self.action, self.columns = action, columns

    def __str__(self) -> str:
        return (
            f"{self.action}: a row has null in {', '.join(self.columns)}, so nobody knows which message it"
            " is: filter such rows out, or keep the columns as the source gave them; nothing was acked by"
            " this task"
        )


class InvalidMessageId(SinkError):
    """A row to be acked names a message that no topic can have."""

    def __init__(self, column: str, value: str, why: str) -> None:
        super().__init__(column, value, why)
        self.column, self.value, self.why = column, value, why

    def __str__(self) -> str:
        return (
            f"a row has {self.column} {self.value!r}: {self.why}; keep the columns topic, partition and"
            " offset as the source gave them; nothing was acked by this task"
        )


class UnknownOutcome(SinkError):
    """A handler returned something that says neither ack nor anything else."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind

    def __str__(self) -> str:
        return (
            f"the handler returned a {self.kind}: return None or True to ack, False to release, Release(...),"
            " Reject(...) or Leave(); to return results, give AckSink.per_row(..., result='<type in DDL>')"
        )


class UnknownAction(SinkError):
    """A value of the column action is none of ack, release, reject, extend."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action

    def __str__(self) -> str:
        return f"action '{self.action}' is none of ack, release, reject, extend: correct the column"


class HandlerNotPicklable(SinkError):
    """A handler holds something that cannot be sent to the executors."""

    def __init__(self, handler: str, why: str) -> None:
        super().__init__(handler, why)
        self.handler, self.why = handler, why

    def __str__(self) -> str:
        return (
            f"the handler {self.handler} cannot be sent to the executors ({self.why}): what it uses of its"
            " surroundings is pickled with it, so open connections, locks and the like inside of it"
        )


class AckedBySource(SinkError):
    """A sink acks rows, and the source of the same options does it too."""

    def __init__(self, mode: str) -> None:
        super().__init__(mode)
        self.mode = mode

    def __str__(self) -> str:
        return (
            f"ackMode={self.mode} lets the source ack, so an AckSink would ack what your function has not:"
            " use foreachBatch with the function alone, or ackMode=individual"
        )


class SinkOfAnotherSource(SinkError):
    """A sink's options name other leases than those under which its source delivered the rows."""

    def __init__(self, option: str, source: str, sink: str) -> None:
        super().__init__(option, source, sink)
        self.option, self.source, self.sink = option, source, sink

    def __str__(self) -> str:
        return (
            f"the rows come from a source with {self.option}={self.source}, and this sink has"
            f" {self.option}={self.sink}: its acks would end nothing, and every message would come again;"
            " give the sink the options of its source, or none: AckSink(fn)"
        )


class OptionsNotCarried(SinkError):
    """A sink was given no options, and its rows do not carry those of their source."""

    def __init__(self, withheld: tuple[str, ...]) -> None:
        super().__init__(withheld)
        self.withheld = withheld

    def __str__(self) -> str:
        if self.withheld:
            why = f"the source has {', '.join(self.withheld)}, which rows do not carry"
        else:
            why = "the rows do not say which source they come from (their column offset was computed anew)"
        return f"{why}: give the options of the source here too, as in AckSink(fn, options)"


class NotOfSubscription(SinkError):
    """A row to be acked is of a topic or partition that its subscription does not read."""

    def __init__(self, subscription: str, what: str, has: str) -> None:
        super().__init__(subscription, what, has)
        self.subscription, self.what, self.has = subscription, what, has

    def __str__(self) -> str:
        return (
            f"subscription '{self.subscription}' has no cursor of {self.what}, only of {self.has}: correct"
            " the columns topic and partition, or the option subscription; nothing was acked by this task"
        )


class NoSuchMessages(SinkError):
    """Rows to be acked have offsets beyond the end of their queue topic."""

    def __init__(self, topic: str, partition: int, offsets: str, end: int) -> None:
        super().__init__(topic, partition, offsets, end)
        self.topic, self.partition, self.offsets, self.end = topic, partition, offsets, end

    def __str__(self) -> str:
        return (
            f"topic '{self.topic}' partition {self.partition} ends at offset {self.end}, so there is no"
            f" message {self.offsets}: correct the column offset; nothing was acked by this task"
        )


class RejectRefused(SinkError):
    """A message is to be rejected, and V1 markers have no word for it."""

    def __str__(self) -> str:
        return (
            "markerFormat=v1 cannot reject: kafka-mq-go's tracker has no dead letters; write the message"
            " elsewhere and ack it, or release it"
        )


class UnfitColumn(SinkError):
    """A column of a DataFrame to be acked cannot be read as what it is needed for."""

    def __init__(self, column: str, kind: str, why: str) -> None:
        super().__init__(column, kind, why)
        self.column, self.kind, self.why = column, kind, why

    def __str__(self) -> str:
        return (
            f"column '{self.column}' of type {self.kind} cannot be read as what it stands for ({self.why}):"
            " cast or correct it (topic STRING, partition INT, offset BIGINT, delivery_count INT, action"
            " STRING, delay STRING such as '30s', delay_ms BIGINT, reason STRING)"
        )
