"""The view ``cursors``: where every subscription stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_cursor_source.admin.oldest import ONE_MESSAGE, oldest_unacked_ms
from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.stats import PartitionStats
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.options.source import Isolation
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.views.columns import RANGES, Columns, rows_batch
from spark_cursor_source.spark.views.ranges import ShareOfCells, reader_config, shares_of_cells, shown_cursors

COLUMNS: Columns = {
    "subscription": "STRING",
    "topic": "STRING",
    "partition": "INT",
    "mark_delete": "BIGINT",
    "read_position": "BIGINT",
    "ack_holes": RANGES,
    "outstanding": "BIGINT",
    "leased": "BIGINT",
    "available": "BIGINT",
    "delayed": "BIGINT",
    "held": "BIGINT",
    "oldest_unacked": "TIMESTAMP",
    "log_end": "BIGINT",
    "backlog": "BIGINT",
    "delivered": "BIGINT",
    "acked": "BIGINT",
    "redelivered": "BIGINT",
    "dead_lettered": "BIGINT",
    "expired": "BIGINT",
    "breaker_opened": "TIMESTAMP",
    "trouble": "STRING",
    "next_try": "TIMESTAMP",
}
_HOLES_PER_BATCH = 500_000


class CursorsReader(DataSourceReader):
    """``view=cursors``: one row for each subscription, topic and partition that the tracker knows.

    Of the given subscription and topics, or of all; read anew by every action::

        subscription STRING, topic STRING, partition INT
        mark_delete    BIGINT     everything up to it, itself included, is acknowledged; -1: nothing is
        read_position  BIGINT     the first offset that was never leased
        ack_holes      ARRAY<STRUCT<start: BIGINT, stop: BIGINT>>
                                  acknowledged ranges above mark_delete, half-open; all of them
        outstanding    BIGINT     messages delivered and not acknowledged: leased + available + held
        leased         BIGINT     of these, under a lease
        available      BIGINT     of these, to be delivered again, now or after a delay
        delayed        BIGINT     of the available ones, those whose delay is not over
        held           BIGINT     dead letters that wait for the breaker to close, or could not be written
        oldest_unacked TIMESTAMP  of the first message that is outstanding or was never read; null: none
        log_end        BIGINT     the offset after the last that can be read; null: the topic is gone
        backlog        BIGINT     outstanding + what was never read; null: the topic is gone
        delivered, acked, redelivered, dead_lettered, expired
                       BIGINT     messages, since the subscription began; none is counted in two of the last
                                  three and acked
        breaker_opened TIMESTAMP  since when the breaker is open, in the broker's time; null: it is closed
        trouble        STRING     why held dead letters could not be written; null: none of them was tried
        next_try       TIMESTAMP  when they are tried again, in the broker's time

    Offsets that hold no message (transaction markers, compacted records) count in the backlog until they
    have been read past; where they get older than the TTL before that, they count as expired.
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return shares_of_cells(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ShareOfCells):
            return
        cursors = shown_cursors(self._options, partition)
        ends = self._log_ends([(one.cell.topic, one.cell.partition) for one in cursors])
        rows: list[Sequence[Any]] = []
        holes = 0
        with borrowed_consumer(ONE_MESSAGE | reader_config(self._options)) as consumer:
            for cursor in cursors:
                end = ends.get((cursor.cell.topic, cursor.cell.partition))
                oldest_ms = None if end is None else oldest_unacked_ms(consumer, cursor, end)
                ack_holes = cursor.ack_holes
                rows.append(_row(cursor, ack_holes, end, oldest_ms))
                holes += ack_holes.count_ranges()
                if holes > _HOLES_PER_BATCH:
                    yield rows_batch(COLUMNS, rows)
                    rows, holes = [], 0
        if rows:
            yield rows_batch(COLUMNS, rows)

    def _log_ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        topics = ClusterAdmin(client_config(self._options.kafka, "admin"))
        committed = self._options.isolation is Isolation.READ_COMMITTED
        return topics.existing_ends(partitions, committed=committed)


def _row(
    cursor: CursorSnapshot, ack_holes: OffsetSet, end: int | None, oldest_ms: int | None
) -> tuple[Any, ...]:
    part = PartitionStats.of(cursor, log_end=end, oldest_ms=oldest_ms)
    cell, totals = cursor.cell, cursor.totals
    return (
        cell.subscription,
        cell.topic,
        cell.partition,
        part.mark_delete,
        part.read_position,
        ack_holes,
        part.outstanding,
        part.leased,
        part.available,
        part.delayed,
        part.held,
        oldest_ms,
        end,
        part.backlog,
        totals.delivered,
        totals.acked,
        totals.redelivered,
        totals.dead_lettered,
        totals.expired,
        cursor.breaker.opened_ms,
        part.trouble,
        part.next_try_ms,
    )
