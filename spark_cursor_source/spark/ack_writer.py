"""``df.write.format("cursorq")`` with settlements: each row settles one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_cursor_source.consumer.message_id import needed_columns, require_columns
from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.errors import (
    AckedBySource,
    InvalidDuration,
    OverwriteRefused,
    UnfitColumn,
    UnknownAction,
)
from spark_cursor_source.kafka.admin import meet_brokers
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.actions import markers_partitions
from spark_cursor_source.spark.settling import settlement_of

_Column = Any  # a pyarrow column; pyarrow has no type annotations


@dataclass
class Settled(WriterCommitMessage):
    """Commit message of a task: the number of settled rows, whose markers are stored."""

    rows: int


class RowMarkers:
    """Columns of a settlement DataFrame, and the task that converts its rows to markers.

    ``topic``, ``partition`` and ``offset`` identify the message of a row. Release, reject and extend also
    need ``delivery_count`` and apply only to that delivery. V1 markers always need ``key`` in addition to the
    message id, and no ``delivery_count``.

    The option ``action`` sets the action of all rows. Without the option, the column ``action`` sets the
    action of each row; the default is ack. In the same way, ``delay`` (a duration such as "30s") or
    ``delay_ms`` sets the delay of a release, and ``reason`` the reason of a release or reject. A release
    without a delay is immediate. A release with a null delay uses the tracker's backoff. Columns are cast to
    the required types. Other columns are ignored.

    Raises:
        MissingColumns: a required column is missing.
        OverwriteRefused: the mode is overwrite.
    """

    def __init__(self, options: AckOptions, columns: Sequence[str], *, overwrite: bool) -> None:
        if overwrite:
            raise OverwriteRefused("acks")
        by_column = options.action is None and "action" in columns
        action = options.action or AckAction.ACK
        needed = needed_columns(options, by_column=by_column)
        require_columns(columns, needed, "a column action" if by_column else action.value)
        used = [*needed, "action"] if by_column else list(needed)
        if options.reason is None and "reason" in columns:
            used.append("reason")
        if options.delay_ms is None and ("delay_ms" in columns or "delay" in columns):
            used.append("delay_ms" if "delay_ms" in columns else "delay")
        self._used = tuple(used)
        self._options = options
        self._markers_partitions = markers_partitions(options)

    def write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Settles every row. The markers are stored on return.

        Raises:
            UnfitColumn, NullMessageId, UnknownAction: a row has no valid message id or action.
            MarkersNotDurable: the brokers did not store the markers. The leases continue.
        """
        settlement = settlement_of(self._options)
        for batch in batches:
            settlement.add(self._columns_of(batch))
        if settlement.settled:
            settlement.send(self._markers_partitions)
        return Settled(settlement.settled)

    def _columns_of(self, batch: pa.RecordBatch) -> pa.Table:
        found: dict[str, _Column] = {}
        for name in self._used:
            column = batch.column(name)
            try:
                found["delay_ms" if name == "delay" else name] = _CONVERT[name](column)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InvalidDuration) as cause:
                raise UnfitColumn(name, str(column.type), str(cause)) from cause
        for name, value in (("delay_ms", self._options.delay_ms or 0), ("reason", self._options.reason)):
            if name not in found and value is not None:
                found[name] = pa.repeat(pa.scalar(value), batch.num_rows)
        return pa.table(found)


class AckWriter(RowMarkers, DataSourceArrowWriter):
    """Batch writer of settlements. See :class:`RowMarkers` for the columns.

    ``df.write.format("cursorq").options(**options).option("action", "ack").mode("append").save()``

    The settlements are durable when ``save`` returns. A repeated Spark task writes its markers again without
    effect: acks are idempotent, and other markers name their delivery.

    Raises:
        KafkaUnavailable: the brokers are unreachable.
    """

    def __init__(self, options: AckOptions, columns: Sequence[str], *, overwrite: bool) -> None:
        if not overwrite:
            meet_brokers(options.kafka)
        super().__init__(options, columns, overwrite=overwrite)


class AckStreamWriter(RowMarkers, DataSourceStreamArrowWriter):
    """Streaming writer of settlements, ``df.writeStream.format("cursorq")``: settles each micro-batch.

    Raises:
        AckedBySource: the options select an ack mode in which the source acks.
    """

    def __init__(self, options: AckOptions, columns: Sequence[str], *, overwrite: bool) -> None:
        if options.ack_mode is not AckMode.INDIVIDUAL:
            raise AckedBySource(options.ack_mode.value)
        super().__init__(options, columns, overwrite=overwrite)


def _to(kind: pa.DataType) -> Callable[[_Column], _Column]:
    return lambda column: column.cast(kind)


def _actions(column: _Column) -> _Column:
    words = pc.utf8_lower(column.cast(pa.string()))
    if words.null_count:
        # A null action must not default to ack: an unhandled case in a CASE expression would ack the message.
        raise UnknownAction("null")
    return words


def _delays_ms(column: _Column) -> _Column:
    return column.cast(pa.int64())


def _durations_ms(column: _Column) -> _Column:
    texts = column.cast(pa.string()).dictionary_encode()
    parsed = [parse_duration(text) for text in texts.dictionary.to_pylist()]
    return pa.array(parsed, pa.int64()).take(texts.indices)


_CONVERT: dict[str, Callable[[_Column], _Column]] = {
    "key": _to(pa.binary()),
    "topic": _to(pa.string()),
    "partition": _to(pa.int32()),
    "offset": _to(pa.int64()),
    "delivery_count": _to(pa.int32()),
    "action": _actions,
    "delay": _durations_ms,
    "delay_ms": _delays_ms,
    "reason": _to(pa.string()),
}
