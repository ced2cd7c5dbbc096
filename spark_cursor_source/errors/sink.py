"""Errors of sinks: rows that cannot be acked or enqueued."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError, next_move_sentence


class SinkError(CursorqError):
    """Base class of errors about rows that a sink cannot ack or enqueue."""


class MissingColumns(SinkError):
    """Raised when a DataFrame to be acked lacks columns that identify a message."""

    action: str
    missing: tuple[str, ...]
    has: tuple[str, ...]
    template = (
        "{action} needs the columns {_missing}, and the DataFrame has {_has}. Keep them in each select: "
        "topic, partition and offset; also delivery_count for release, reject and extend. With "
        "markerFormat=v1, keep key instead of delivery_count."
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
        "{action}: a row has null in {_columns}, so it identifies no message. Filter such rows out, or "
        "keep the values of the source. This task acked nothing."
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
        "A row has the invalid {column} {value!r}: {why}. Keep the columns topic, partition and offset of "
        "the source. This task acked nothing."
    )


class UnknownOutcome(SinkError):
    """Raised when a handler returns a value that is not an outcome."""

    kind: str
    template = (
        "The handler returned a value of type {kind}. Return None or True to ack, False to release, or "
        "Release(...), Reject(...) or Leave(). To return results, set AckSink.per_row(..., result='<type in "
        "DDL>')."
    )


class UnknownAction(SinkError):
    """Raised when a value of the column ``action`` is none of ack, release, reject, extend and leave."""

    action: str
    template = (
        "Action '{action}' is none of ack, release, reject, extend and leave. Correct the column action."
    )


class HandlerNotPicklable(SinkError):
    """Raised when a handler holds an object that cannot be sent to the executors."""

    handler: str
    why: str
    template = (
        "The handler {handler} cannot be sent to the executors: {why}. All objects that the handler refers "
        "to are pickled with it. Open connections and create locks inside the handler."
    )


class HandlerSetupFailed(SinkError):
    """Raised in a worker when the ``resources`` of a handler cannot be opened. No message is handled."""

    resources: str
    why: str
    template = (
        "The resources {resources} of the handler cannot be opened in a worker: {why}. No message of the "
        "task was handled, and the leases continue. Correct the function that opens the resources."
    )


class AckedBySource(SinkError):
    """Raised when a sink settles rows, and the source would also end those that the sink gives back."""

    mode: str
    marker_format: str
    sink: str
    template = (
        "With ackMode={mode} and markerFormat={marker_format} the source acks all rows of a batch, including "
        "rows that {sink} releases, rejects or leaves, so {sink} is refused. Set ackMode=individual, or pass "
        "a function without AckSink to foreachBatch. In the query that reads the queue, AckSink works with "
        "ackMode=batch and markerFormat=v2."
    )


class SinkOfAnotherSource(SinkError):
    """Raised when a sink's options name other leases than those of the source that delivered the rows."""

    option: str
    source: str
    sink: str
    template = (
        "The rows come from a source with {option}={source}, and this sink has {option}={sink}. Its acks "
        "would end no lease, and every message would be delivered again. Give the sink the options of its "
        "source, or none: AckSink(fn)."
    )


class RowsOfTwoSources(SinkError):
    """Raised when a sink gets a union of sources whose messages are not settled alike."""

    option: str
    first: str
    other: str
    template = (
        "The rows are a union of sources with {option}={first} and {option}={other}. A row does not tell its "
        "source, so the sink would settle all rows with {option}={first}. Give each source its own query."
    )


class OptionsNotCarried(SinkError):
    """Raised when a sink has no options and its rows do not carry those of their source."""

    withheld: tuple[str, ...]
    template = (
        "The sink has no options, and {_why}. Give the sink the options of the source: AckSink(fn, options)."
    )

    @property
    def _why(self) -> str:
        if self.withheld:
            return f"rows do not carry the source's {', '.join(self.withheld)}"
        return "the rows do not carry their source's options: their column offset was computed again"


class NotOfSubscription(SinkError):
    """Raised when a row to be acked is of a topic or partition that its subscription does not read."""

    subscription: str
    what: str
    has: str
    template = (
        "Subscription '{subscription}' has no cursor of {what}. It has cursors of {has}. Correct the "
        "columns topic and partition, or the option subscription. This task acked nothing."
    )


class NoSuchMessages(SinkError):
    """Raised when rows to be acked have offsets beyond the end of their queue topic."""

    topic: str
    partition: int
    offsets: str
    end: int
    template = (
        "Topic '{topic}' partition {partition} ends at offset {end}, so it has no message {offsets}. "
        "Correct the column offset. This task acked nothing."
    )


class KeyOrderLost(SinkError):
    """Raised when rows of one key reach a sink with ``ordering=key`` in another order than their offsets."""

    topic: str
    partition: int
    offset: int
    later: int
    template = (
        "ordering=key: the message at offset {offset} of topic '{topic}' partition {partition} reached the "
        "sink after the message at offset {later} of the same key. The query shuffles or sorts the rows "
        "before the sink. Remove the repartition, join, aggregation or sort, or leave ordering out."
    )


class RejectRefused(SinkError):
    """Raised when a message is rejected with V1 markers, which have no dead letters."""

    template = (
        "markerFormat=v1 does not support reject, because the tracker of kafka-mq-go has no dead letters. "
        "Write the message to a topic of your own and ack it, or release it."
    )


class UnfitColumn(SinkError):
    """Raised when a column of a DataFrame to be acked has an unsuitable type or value."""

    column: str
    kind: str
    why: str
    template = (
        "Column '{column}' of type {kind} cannot be used: {why}. Cast or correct it. The types are: topic "
        "STRING, partition INT, offset BIGINT, delivery_count INT, action STRING, delay STRING such as "
        "'30s', delay_ms BIGINT, reason STRING."
    )


class OverwriteRefused(SinkError):
    """Raised when a write has a mode that would replace existing data; use ``append``."""

    what: str
    template = "A write of {what} can only append. Use mode('append')."


class NoMessageColumn(SinkError):
    """Raised when rows to be enqueued lack a column for the value or the topic."""

    column: str
    has: tuple[str, ...]
    next_move: str
    template = "enqueue needs the column '{column}', and the DataFrame has {_has}. {_next_move}"
    _next_move = next_move_sentence

    @property
    def _has(self) -> str:
        return ", ".join(self.has)


class UnfitMessageColumn(SinkError):
    """Raised when a column of rows to be enqueued has a type or a value that no message can have."""

    column: str
    why: str
    wanted: str
    template = "enqueue: column '{column}' {why}. Give {wanted}."


class NoSuchPartition(SinkError):
    """Raised when a row is enqueued to a partition that its topic does not have."""

    topic: str
    partition: int
    partitions: int
    template = (
        "enqueue: topic '{topic}' has no partition {partition}. Its partitions are 0 to {_last}. Correct "
        "the column partition, or leave it null to choose the partition by key."
    )

    @property
    def _last(self) -> int:
        return self.partitions - 1


class OutputOfNoMessage(SinkError):
    """Raised when a row for KafkaSink names a message that is not in its batch."""

    topic: str
    partition: int
    offset: int
    template = (
        "KafkaSink: the column message of a row names offset {offset} of topic '{topic}' partition "
        "{partition}, which is not in the batch. The row was not written. Let transform keep the column "
        "message of the row from which it makes the output."
    )


class TableHistoryDamaged(SinkError):
    """Raised when a commit of DeltaSink cannot be read, so that it is unknown what the table contains."""

    table: str
    version: int
    why: str
    template = (
        "The userMetadata of version {version} of table {table} cannot be read: {why}. Nothing was written "
        "or acked. Look at DESCRIBE HISTORY. If another program wrote that text, let it write another commit "
        "with the userMetadata of the version before."
    )
