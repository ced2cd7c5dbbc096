"""DeltaSink: foreachBatch function that writes each message to a Delta table exactly once, and acks it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.core.table_commit import TableCommit
from spark_cursor_source.errors import TableHistoryDamaged
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.ack_batch import acks_of, write_acks
from spark_cursor_source.spark.ack_sink import BatchSink
from spark_cursor_source.spark.queue_state import (
    OffsetsByPlace,
    QueueState,
    borrowed_queue_state,
    check_exactly_once,
    common,
    cursors_topic_of,
    without,
)
from spark_cursor_source.spark.sink_arguments import check_not_blank, check_takes

log = logging.getLogger(__name__)

_LOOKS = (10, 1_000, 2**31 - 1)  # numbers of commits that are searched for the latest one of this writer
#: conditions of Spark and Delta for a table that is not there yet
_NO_TABLE = {
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_TABLE_ONLY_OPERATION",
    "TABLE_OR_VIEW_NOT_FOUND",
}

Transform = Callable[[DataFrame], DataFrame]


class DeltaSink(BatchSink):
    """Appends every message to a Delta table exactly once, then acks it: ``foreachBatch(DeltaSink(table))``.

    A message can be delivered again after it was written: its lease expired, or a process died between the
    commit of the table and the ack. It then comes in another batch, with another batch id, perhaps to another
    query. Such a message is acked and not written again. The same holds for messages that have ended
    meanwhile, acked by another job or dead-lettered.

    The sink keeps the offsets of what it wrote in the ``userMetadata`` of its commits. A commit lists the
    messages that the table contains and that the tracker has not seen acked, so its size is bounded by what
    is outstanding. Delta's options for idempotent writes, ``txnAppId`` and ``txnVersion``, order the commits
    of all queries of the subscription. Queries of different subscriptions may write to the same table.

    ``table`` is a name as in SQL, or delta.`/path`. It is created if it does not exist. ``transform(batch)``
    returns the rows to append, any number for each message; by default they are the rows of the source. Rows
    that it drops are acked. It may be called several times for a batch. ``options`` are needed as by
    :class:`AckSink`. If ``transform`` or the write raises, nothing is written or acked, and the query fails.

    After a seek back, messages that were acked before are written again, except those that the latest commit
    lists: they are acked and not written again. ``RESTORE TABLE`` removes rows without a trace of their
    messages. After it, messages that were written and not acked are written again.

    Example::

        from spark_cursor_source import DeltaSink

        def parse(batch):
            return batch.selectExpr("offset", "cast(value AS STRING) AS line")

        sink = DeltaSink("main.sales.orders", transform=parse)

    Raises:
        InvalidOption: ``table`` is no text, or ``transform`` does not take a batch.
        ConflictingOptions: the options have ``markerFormat=v1``, which has no cursors, or another action
            than ack.
        TableHistoryDamaged: a commit of this sink cannot be read.
        AckedBySource: the source acks before the write, with ``ackMode=cumulative``.
    """

    def __init__(
        self, table: str, options: Mapping[str, str] | None = None, *, transform: Transform | None = None
    ) -> None:
        super().__init__(options, persist=True)
        check_not_blank("table", table, "the name of a table as in SQL, or delta.`/path`")
        if transform is not None:
            check_takes("transform", transform, "batch")
        if self._options is not None:
            check_exactly_once("DeltaSink", self._options)
        self._table = table
        self._transform = transform

    def _call(self, rows: DataFrame, batch_id: int, options: AckOptions) -> int:
        check_exactly_once("DeltaSink", options)
        acks = acks_of(rows, options.subscription)
        if acks:
            with borrowed_queue_state(options, cursors_topic_of(rows, self._options)) as state:
                self._append(rows, state.places(acks, options.topic_ids), state)
        if options.ack_mode is AckMode.BATCH:
            return 0
        return write_acks(acks, options)

    def _append(self, rows: DataFrame, ids: OffsetsByPlace, queue: QueueState) -> None:
        """Appends the rows of messages that are neither in the table nor ended.

        Each turn that fails has let another commit of the subscription pass, or raises.
        """
        table, step = _DeltaTable(rows.sparkSession, self._table), 1
        while True:
            # The history first: a message that its latest commit no longer lists had ended before.
            before = table.history(queue.writer)
            ended = queue.ended({*ids, *before.latest.written})
            again = common(ids, before.latest.written, ended)
            fresh = {place: new for place, all_ in ids.items() if (new := all_ - again.get(place, EMPTY))}
            if not fresh:
                return
            if again:
                log.info(
                    "Messages came again that are in the table or have ended. They are not written again. "
                    "event=already_in_table table=%s messages=%d",
                    *(self._table, sum(map(len, again.values()))),
                )
            sequence, attempt = before.latest.sequence + step, uuid4().hex
            commit = before.latest.next(fresh, ended, sequence=sequence, attempt=attempt)
            some = without(rows, again)
            some = some if self._transform is None else self._transform(some)
            if before.version is None:
                table.create(some)
            failure = table.append(some, commit)
            after = table.history(queue.writer)
            if after.latest.attempt == attempt:
                return
            if after.latest.sequence == before.latest.sequence:
                if failure is not None:
                    raise failure
                if before.version is not None and after.version != before.version:
                    raise TableHistoryDamaged(self._table, after.version or 0, "it is not the sink's own")
                # Delta knows a later number of this writer, and the history has forgotten that commit.
                step *= 2


class _Version(NamedTuple):
    version: int
    operation: str | None
    metadata: str | None


class _History(NamedTuple):
    """History of a table. ``version`` is its latest version, None if there is no table."""

    version: int | None
    latest: TableCommit  #: of the writer; an empty one if the history has none


class _DeltaTable:
    """A Delta table, by its name in SQL."""

    def __init__(self, session: SparkSession, name: str) -> None:
        self._session, self._name = session, name

    def history(self, writer: str) -> _History:
        """Returns the latest version, and the latest commit of the writer.

        Raises:
            TableHistoryDamaged
        """
        found: list[_Version] = []
        for most in _LOOKS:
            found, is_restored = self._versions(most), False
            for one in found:
                is_restored = is_restored or one.operation == "RESTORE"
                try:
                    commit = TableCommit.of_json(one.metadata, writer)
                except ValueError as why:
                    raise TableHistoryDamaged(self._name, one.version, str(why)) from why
                if commit is not None:
                    # It is unknown which of the rows the table still has.
                    return _History(found[0].version, replace(commit, written={}) if is_restored else commit)
            if len(found) < most:
                break
        return _History(found[0].version if found else None, TableCommit(writer))

    def create(self, rows: DataFrame) -> None:
        """Creates an empty table for such rows, unless there is a table.

        A write that also creates the table would keep no metadata.
        """
        rows.limit(0).write.format("delta").mode("ignore").saveAsTable(self._name)

    def append(self, rows: DataFrame, commit: TableCommit) -> PySparkException | None:
        """Tries to append rows. The history shows whether it has succeeded.

        Delta skips the write if the table has a commit of the writer with this sequence or a later one.
        """
        order: dict[str, Any] = {"txnAppId": commit.writer, "txnVersion": commit.sequence}
        write = rows.write.format("delta").mode("append").options(userMetadata=commit.to_json(), **order)
        try:
            write.saveAsTable(self._name)
        except PySparkException as why:
            return why
        return None

    def _versions(self, most: int) -> list[_Version]:
        """Returns so many versions of the table, the latest first."""
        try:
            rows = self._session.sql(f"DESCRIBE HISTORY {self._name} LIMIT {most}")
            found = rows.select("version", "operation", "userMetadata").collect()
            return [_Version(int(version), operation, metadata) for version, operation, metadata in found]
        except AnalysisException as why:
            if why.getCondition() in _NO_TABLE:
                return []
            raise
