"""The view ``stats``: one row per topic and subscription."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_cursor_source.admin.stats import stats_of
from spark_cursor_source.core.stats import SUMMED, TOTALS, SubscriptionStats
from spark_cursor_source.options.source import Isolation
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.views.columns import CONSUMERS, POSITIONS, rows_batch
from spark_cursor_source.spark.views.ranges import ALL_CELLS, check_names, shown_cursors
from spark_cursor_source.topics.message_columns import Columns

COLUMNS: Columns = {
    "topic": "STRING",
    "subscription": "STRING",
    "backlog": "BIGINT",
    "outstanding": "BIGINT",
    "leased": "BIGINT",
    "available": "BIGINT",
    "delayed": "BIGINT",
    "blocked": "BIGINT",
    "blocking": "BIGINT",
    "held": "BIGINT",
    "ack_holes": "BIGINT",
    "trouble": "STRING",
    "end_trouble": "STRING",
    "oldest_unacked": "TIMESTAMP",
    "oldest_unacked_age_ms": "BIGINT",
    "consumers": CONSUMERS,
    "positions": POSITIONS,
    **dict.fromkeys(TOTALS, "BIGINT"),
}


class StatsReader(DataSourceReader):
    """``view=stats``: one row per topic and subscription known to the tracker.

    The view shows the given subscription and topics, or all. Every action reads the current state::

        topic STRING, subscription STRING
        backlog        BIGINT     messages that are not acked: outstanding + never read; null: the topic is
                                  gone, or end_trouble
        outstanding, leased, available, delayed, blocked, blocking, held
                       BIGINT     sums over all partitions; see the view cursors
        ack_holes      BIGINT     number of acked ranges above the mark-delete positions
        trouble        STRING     why held dead letters could not be written; null: no failed attempt
        end_trouble    STRING     why the end of a log cannot be read, for example a partition without a
                                  leader; null: all can. Its messages are not in backlog
        oldest_unacked TIMESTAMP  time of the oldest outstanding or never read message; null: none
        oldest_unacked_age_ms
                       BIGINT     age of that message at the last known broker time: the time of the last
                                  marker or of the topic's newest message
        consumers      ARRAY<STRUCT<query_id, type, host, since: STRING, partitions: ARRAY<INT>,
                                    last_seen: TIMESTAMP, client_id: STRING>>
                                  current members of the consumer group. last_seen is the broker time of
                                  the query's last marker; an idle query writes no markers
        positions      ARRAY<STRUCT<partition: INT, mark_delete, read_position, log_end, backlog: BIGINT>>
        delivered, acked, redelivered, dead_lettered, unknown_ends, expired, overlapped, unknown_settlements,
        gaps, lease_timeouts, released, rejected
                       BIGINT     messages since the subscription began. unknown_ends: acked but not
                                  outstanding. overlapped: delivered or ended by a query that no longer
                                  owned the partition. unknown_settlements: released, rejected or extended
                                  for a delivery without a lease. gaps: offsets that were read and have no
                                  message
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        check_names(self._options)
        return [ALL_CELLS]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        stats = stats_of(
            {cursor.cell: cursor for cursor in shown_cursors(options)},
            options.kafka,
            markers_topic=options.markers_topic,
            group_id_prefix=options.group_id_prefix,
            committed=options.isolation is Isolation.READ_COMMITTED,
        )
        if stats.subscriptions:
            yield rows_batch(COLUMNS, [_row(one) for one in stats.subscriptions])


def _row(one: SubscriptionStats) -> tuple[Any, ...]:
    return (
        one.topic,
        one.subscription,
        one.backlog,
        *(one.total(count) for count in SUMMED),
        one.trouble,
        one.end_trouble,
        one.oldest_unacked_ms,
        one.oldest_unacked_age_ms,
        [
            {
                "query_id": consumer.query_id,
                "type": consumer.type,
                "host": consumer.host,
                "since": consumer.since,
                "partitions": list(consumer.partitions),
                "last_seen": None if consumer.last_seen_ms is None else consumer.last_seen_ms * 1000,
                "client_id": consumer.client_id,
            }
            for consumer in one.consumers
        ],
        [
            {
                "partition": part.cell.partition,
                "mark_delete": part.mark_delete,
                "read_position": part.read_position,
                "log_end": part.log_end,
                "backlog": part.backlog,
            }
            for part in one.partitions
        ],
        *(one.total(count) for count in TOTALS),
    )
