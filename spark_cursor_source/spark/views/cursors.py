"""The view ``cursors``: positions and counts of every subscription partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_cursor_source.admin.oldest import ONE_MESSAGE, OldestReader
from spark_cursor_source.admin.past_cursors import cursors_at
from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.stats import PartitionStats
from spark_cursor_source.errors import InvalidOption
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.options.source import Isolation
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.views.columns import RANGES, rows_batch
from spark_cursor_source.spark.views.ranges import ShareOfCells, reader_config, shares_of_cells, shown_cursors
from spark_cursor_source.topics.message_columns import Columns
from spark_cursor_source.wire.deliver_at import parse_instant

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
    "blocked": "BIGINT",
    "blocking": "BIGINT",
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
    "end_trouble": "STRING",
}
_HOLES_PER_BATCH = 500_000


class CursorsReader(DataSourceReader):
    """``view=cursors``: one row per subscription, topic and partition known to the tracker.

    The view shows the given subscription and topics, or all. Every action reads the current state::

        subscription STRING, topic STRING, partition INT
        mark_delete    BIGINT     the offset up to which (inclusive) all messages are acked; -1: none
        read_position  BIGINT     the first offset that was never leased
        ack_holes      ARRAY<STRUCT<start: BIGINT, stop: BIGINT>>
                                  all acked ranges above mark_delete, half-open
        outstanding    BIGINT     messages delivered and not acked: leased + available + blocked + held
        leased         BIGINT     outstanding messages under a lease
        available      BIGINT     outstanding messages to redeliver, immediately or after a delay
        delayed        BIGINT     available messages whose delay is not over
        blocked        BIGINT     messages that wait behind an earlier message of their key
        blocking       BIGINT     messages that others wait for
        held           BIGINT     dead letters that wait for the breaker to close or for a retried write
        oldest_unacked TIMESTAMP  time of the first outstanding or never read message; null: none
        log_end        BIGINT     the offset after the last readable message; null: the topic is gone,
                                  or end_trouble
        backlog        BIGINT     outstanding + never read messages; null: as log_end
        delivered, acked, redelivered, dead_lettered, expired
                       BIGINT     messages since the subscription began; a message counts in at most one
                                  of acked, dead_lettered and expired
        breaker_opened TIMESTAMP  broker time at which the breaker opened; null: closed
        trouble        STRING     why held dead letters could not be written; null: no failed attempt
        next_try       TIMESTAMP  broker time of the next attempt to write them
        end_trouble    STRING     why log_end cannot be read, for example without a leader; null: it can

    With ``asOf``, the rows show the cursors at that time of the brokers: the last snapshot of the
    subscription before it, with the markers since. Cells that did not exist then are left out. The totals
    count from the snapshot on. ``oldest_unacked``, ``log_end`` and ``backlog`` use the present topic.

    Offsets without a message (transaction markers, compacted records) count in the backlog until the read
    position passes them. If they first become older than the TTL, they count as expired.
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options
        self._as_of_ms = None if options.as_of is None else _instant_ms(options.as_of)

    def partitions(self) -> Sequence[InputPartition]:
        return shares_of_cells(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ShareOfCells):
            return
        cursors = shown_cursors(self._options, partition)
        if self._as_of_ms is not None:
            cursors = cursors_at(self._options.kafka, self._options.markers_topic, cursors, self._as_of_ms)
        ends, unknown = self._log_ends([one.cell.topic_partition for one in cursors])
        rows: list[Sequence[Any]] = []
        holes = 0
        oldest = OldestReader()
        with borrowed_consumer(ONE_MESSAGE | reader_config(self._options)) as consumer:
            for cursor in cursors:
                place = cursor.cell.topic_partition
                end = ends.get(place)
                first = None if end is None else oldest.read(consumer, cursor, end)
                oldest_ms = None if first is None else first.at_ms
                ack_holes = cursor.ack_holes
                rows.append(_row(cursor, ack_holes, end, unknown.get(place), oldest_ms))
                holes += ack_holes.count_ranges()
                if holes > _HOLES_PER_BATCH:
                    yield rows_batch(COLUMNS, rows)
                    rows, holes = [], 0
        if rows:
            yield rows_batch(COLUMNS, rows)

    def _log_ends(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        topics = ClusterAdmin(client_config(self._options.kafka, "admin"))
        committed = self._options.isolation is Isolation.READ_COMMITTED
        return topics.known_ends(partitions, committed=committed)


def _instant_ms(text: str) -> int:
    at_ms = parse_instant(text)
    if at_ms is None:
        next_move = "give ISO 8601 with an offset, such as 2026-11-21T08:00:00Z, or milliseconds since 1970"
        raise InvalidOption("asOf", text, "it is not an instant", next_move)
    return at_ms


def _row(
    cursor: CursorSnapshot,
    ack_holes: OffsetSet,
    end: int | None,
    end_trouble: str | None,
    oldest_ms: int | None,
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
        part.blocked,
        part.blocking,
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
        end_trouble,
    )
