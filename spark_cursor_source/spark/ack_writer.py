"""``df.write.format("cursorq")`` with settlements: each row settles one message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_cursor_source.consumer.action_columns import ActionColumns
from spark_cursor_source.errors import AckedBySource, OverwriteRefused
from spark_cursor_source.kafka.admin import meet_brokers
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.actions import markers_partitions
from spark_cursor_source.spark.settling import settle


@dataclass
class Settled(WriterCommitMessage):
    """Commit message of a task: the number of settled rows, whose markers are stored."""

    rows: int


class RowMarkers:
    """Columns of a settlement DataFrame, and the task that converts its rows to markers.

    ``topic``, ``partition`` and ``offset`` identify the message of a row. Release, reject and extend also
    need ``delivery_count`` and apply only to that delivery. V1 markers always need ``key`` in addition to the
    message id, and no ``delivery_count``.

    :class:`~spark_cursor_source.consumer.action_columns.ActionColumns` has the rules for the columns. A
    release without a delay is immediate. A release with a null delay uses the tracker's backoff. Columns are
    cast to the required types. Other columns are ignored.

    Raises:
        MissingColumns: a required column is missing.
        OverwriteRefused: the mode is overwrite.
    """

    def __init__(self, options: AckOptions, columns: Sequence[str], *, overwrite: bool) -> None:
        if overwrite:
            raise OverwriteRefused("acks")
        self._columns = ActionColumns.of(options, columns)
        self._options = options
        self._markers_partitions = markers_partitions(options)

    def write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Settles every row. The markers are stored on return.

        Raises:
            UnfitColumn, NullMessageId, UnknownAction: a row has no valid message id or action.
            MarkersNotDurable: the brokers did not store the markers. The leases continue.
        """
        return Settled(settle(batches, self._columns, self._options, self._markers_partitions))


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
        super().__init__(options.settling_each(), columns, overwrite=overwrite)


class AckStreamWriter(RowMarkers, DataSourceStreamArrowWriter):
    """Streaming writer of settlements, ``df.writeStream.format("cursorq")``: settles each micro-batch.

    Raises:
        AckedBySource: the options select an ack mode in which the source acks.
    """

    def __init__(self, options: AckOptions, columns: Sequence[str], *, overwrite: bool) -> None:
        # The rows may come from a table that another query has written, and whose batch is acked by now.
        if options.ack_mode is not AckMode.INDIVIDUAL:
            raise AckedBySource(options.ack_mode.value, options.marker_version.value, "a streaming write")
        super().__init__(options, columns, overwrite=overwrite)
