"""DeltaSink: foreachBatch function that writes each message to a Delta table exactly once, and acks it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_cursor_source.consumer.action_columns import MESSAGE_ID
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.table_commit import Place, TableCommit
from spark_cursor_source.errors import (
    ConflictingOptions,
    InvalidControlRecord,
    LaterCursorVersion,
    TableHistoryDamaged,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.pool import ClientPool
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.ack_batch import acks_of, write_acks
from spark_cursor_source.spark.ack_sink import AckSink
from spark_cursor_source.spark.schema import origin_of
from spark_cursor_source.topics.cursors import CursorTable

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
_Ids = Mapping[Place, OffsetSet]


class DeltaSink(AckSink):
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

    After a seek back, messages that were acked before are written again. ``RESTORE TABLE`` removes rows
    without a trace of their messages. After it, messages that were written and not acked are written again.

    Example::

        from spark_cursor_source import DeltaSink

        def parse(batch):
            return batch.selectExpr("offset", "cast(value AS STRING) AS line")

        sink = DeltaSink("main.sales.orders", transform=parse)

    Raises:
        ConflictingOptions: the options have ``markerFormat=v1``, which has no cursors, or another action
            than ack.
        TableHistoryDamaged: a commit of this sink cannot be read.
        AckedBySource: the source acks before the write, with ``ackMode=cumulative``.
    """

    def __init__(
        self, table: str, options: Mapping[str, str] | None = None, *, transform: Transform | None = None
    ) -> None:
        super().__init__(_never_called, options, persist=True)
        if self._options is not None:
            _check(self._options)
        self._table = table
        self._transform = transform

    def _call(self, rows: DataFrame, batch_id: int, options: AckOptions) -> int:
        _check(options)
        acks = acks_of(rows, options.subscription)
        sets = {(one.cell.topic, one.cell.partition): one.offsets for one in acks}
        if sets:
            cursors_topic = self._cursors_topic(rows)
            queue = _queue(options, cursors_topic)
            with _queues.lend(queue, lambda: _Queue(*queue)) as known:
                self._append(rows, known.places(sets), known)
        if options.ack_mode is AckMode.BATCH:
            return 0
        return write_acks(acks, options)

    def _append(self, rows: DataFrame, ids: _Ids, queue: _Queue) -> None:
        """Appends the rows of messages that are neither in the table nor ended.

        Each turn that fails has let another commit of the subscription pass, or raises.
        """
        table, step = _DeltaTable(rows.sparkSession, self._table), 1
        while True:
            # The history first: a message that its latest commit no longer lists had ended before.
            before = table.history(queue.writer)
            ended = queue.ended({*ids, *before.latest.written})
            known = {
                place: before.latest.written.get(place, EMPTY) | ended.get(place, EMPTY) for place in ids
            }
            fresh = {place: new for place, offsets in ids.items() if (new := offsets - known[place])}
            if not fresh:
                return
            again = {place: both for place, offsets in ids.items() if (both := offsets & known[place])}
            if again:
                log.info(
                    "Messages came again that are in the table or have ended. They are not written again. "
                    "event=already_in_table table=%s messages=%d",
                    *(self._table, sum(map(len, again.values()))),
                )
            sequence, attempt = before.latest.sequence + step, uuid4().hex
            commit = before.latest.next(fresh, ended, sequence=sequence, attempt=attempt)
            some = _without(rows, again)
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

    def _cursors_topic(self, rows: DataFrame) -> str:
        origin, given = origin_of(rows.schema), self._options
        if given is None:
            assert origin is not None  # checked by options_of_batch
            given = AckOptions.parse(origin.sink_options())
        assert given.cursors_topic is not None
        return given.cursors_topic


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


class _Queue:
    """State of the messages of a subscription, as the brokers have it."""

    def __init__(
        self, kafka: frozenset[tuple[str, str]], subscription: str, markers_topic: str, cursors_topic: str
    ) -> None:
        config = dict(kafka)
        self._subscription = subscription
        self._topics = ClusterAdmin(config, timeout_ms=PATIENCE_MS)
        self._cursors = CursorTable(
            config,
            cursors_topic,
            timeout_ms=PATIENCE_MS,
            markers_topic=markers_topic,
            subscription=subscription,
        )
        #: name of the subscription that no other one has, on any cluster
        self.writer = f"cursorq/{self._topics.cluster_id()}/{markers_topic}/{subscription}"

    def close(self) -> None:
        self._cursors.close()

    def places(self, sets: Mapping[tuple[str, int], OffsetSet]) -> _Ids:
        """Returns the offset sets with the ids of their topics."""
        found = self._topics.describe({topic for topic, _ in sets})
        return {
            Place(topic, found[topic].topic_id, partition): offsets
            for (topic, partition), offsets in sets.items()
        }

    def ended(self, places: set[Place]) -> _Ids:
        """Returns the messages that the tracker has seen acked, dead-lettered or expired."""
        with suppress(TopicNotFound):  # no tracker has worked yet
            self._cursors.refresh()
        return {place: ended for place in places if (ended := self._ended(place))}

    def _ended(self, place: Place) -> OffsetSet:
        cell = Cell(subscription=self._subscription, topic=place.topic, partition=place.partition)
        try:
            cursor = self._cursors.get(cell)
        except (LaterCursorVersion, InvalidControlRecord):
            return EMPTY  # what was written stays in the metadata
        if cursor is None or cursor.topic_id not in (None, place.topic_id):
            return EMPTY
        return OffsetSet.of((0, cursor.read_position)) - cursor.outstanding if cursor.read_position else EMPTY


def _check(options: AckOptions) -> None:
    if options.marker_version is MarkerVersion.V1:
        raise ConflictingOptions(
            ("DeltaSink", "markerFormat"),
            "with V1 markers, nothing tells which messages have ended",
            "use markerFormat=v2, or AckSink with a MERGE",
        )
    if options.action not in (None, AckAction.ACK):
        raise ConflictingOptions(
            ("DeltaSink", "action"), "the sink acks what it has written", "leave action out"
        )


def _queue(options: AckOptions, cursors_topic: str) -> tuple[frozenset[tuple[str, str]], str, str, str]:
    config = client_config(options.kafka, "consumer")
    return frozenset(config.items()), options.subscription, options.markers_topic, cursors_topic


def _without(rows: DataFrame, messages: _Ids) -> DataFrame:
    """Returns the rows of all other messages."""
    if not messages:
        return rows
    tables = []
    for place, offsets in messages.items():
        numbers = np.asarray(offsets.to_array(), dtype=np.int64)
        count = len(numbers)
        columns: list[Any] = [
            pa.repeat(pa.scalar(place.topic), count),
            pa.repeat(pa.scalar(place.partition, pa.int32()), count),
            pa.array(numbers),
        ]
        tables.append(pa.table(columns, names=list(MESSAGE_ID)))
    listed = rows.sparkSession.createDataFrame(pa.concat_tables(tables))
    return rows.join(F.broadcast(listed), list(MESSAGE_ID), "left_anti")


def _never_called(batch: DataFrame, batch_id: int) -> None:
    raise AssertionError("DeltaSink writes the batch itself")


_queues: ClientPool[_Queue] = ClientPool(_Queue.close, kept=4)
